"""The tables of a study: their columns, and parquet files that hold exactly these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deceptron.work import replacing

Columns = dict[str, pa.DataType]

_TEXT, _WHOLE, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
# What a cell is; every row of its tables carries it.
AXES: Columns = {
    "problem": _TEXT,
    "set": _TEXT,
    "model": _TEXT,
    "seed": _WHOLE,
    "method": _TEXT,
}
MODELS: Columns = {
    "problem": _TEXT,
    "model": _TEXT,
    "seed": _WHOLE,
    "preset": _TEXT,
    "train_seconds": _NUMBER,
    "parameters_f": _WHOLE,
    "parameters_g": _WHOLE,
    "surrogate_error": _NUMBER,
    "noise_level": _NUMBER,
    "rjcp": _NUMBER,
    "rjcp_noise_aware": _NUMBER,
    "recon_rmse": _NUMBER,
    "shipped": _FLAG,
    "recipe": _TEXT,
}
# Residuals are RMS in normalised units; true_residual is the simulator's, against the noisy y.
# seconds is the row's share of its batch, by its share of evaluations; coverage the share of the
# latent's components inside their 90% intervals, where those were made.
INSTANCES: Columns = {
    **AXES,
    "instance": _WHOLE,
    "status": _TEXT,
    "reason": _TEXT,
    "iterations": _WHOLE,
    "rmse": _NUMBER,
    "rmse_start": _NUMBER,
    "residual": _NUMBER,
    "residual_start": _NUMBER,
    "relative_residual": _NUMBER,
    "true_residual": _NUMBER,
    "noise_level": _NUMBER,
    "accepted_fraction": _NUMBER,
    "seconds": _NUMBER,
    "f": _WHOLE,
    "g": _WHOLE,
    "jvp": _WHOLE,
    "vjp": _WHOLE,
    "linear_steps": _WHOLE,
    "evaluations": _WHOLE,
    "rjcp": _NUMBER,
    "coverage": _NUMBER,
}
STEPS: Columns = {
    **AXES,
    "instance": _WHOLE,
    "step": _WHOLE,
    "residual": _NUMBER,
    "relative_residual": _NUMBER,
    "rmse": _NUMBER,
    "step_size": _NUMBER,
    "step_norm": _NUMBER,
    "decrease": _NUMBER,
    "cosine": _NUMBER,
    "trials": _WHOLE,
    "rule": _TEXT,
    "evaluations": _NUMBER,
    "seconds": _NUMBER,
}
# The finished cells themselves, from cell.json; latency_ms is the median wall time of instances
# solved one at a time, library the version that solved them.
CELLS: Columns = {
    "key": _TEXT,
    **AXES,
    "instances": _WHOLE,
    "max_iterations": _WHOLE,
    "seconds": _NUMBER,
    "latency_ms": _NUMBER,
    "library": _TEXT,
}
# Added after the first records were written: a table without them is read as one that has none.
LATER = {"coverage": float("nan"), "recipe": ""}


def read_table(path: Path, columns: Columns) -> pa.Table:
    """A parquet file with these columns; others that it may have are left out."""
    # pq.read_table looks for partitions in the path.
    table = readable(path, lambda place: pq.ParquetFile(place).read())
    check_columns(path, columns, table.column_names)
    for name in [name for name in columns if name not in table.column_names]:
        later = pa.array([LATER[name]] * len(table), columns[name])
        table = table.append_column(pa.field(name, columns[name]), later)
    try:
        return table.select(list(columns)).cast(pa.schema(columns.items()))
    except (pa.ArrowException, ValueError) as error:
        raise Unusable(f"its {path.name} has other columns ({first_line(error)})") from None


def write_table(path: Path, columns: Columns, rows: pd.DataFrame) -> None:
    """A parquet file with exactly these columns, which appears whole or not at all."""
    if sorted(rows.columns) != sorted(columns):
        raise ValueError(f"columns must be {list(columns)}; got {list(rows.columns)}")
    schema = pa.schema(columns.items())
    table = pa.Table.from_pandas(rows[list(columns)], schema=schema, preserve_index=False)
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(None), temporary, compression="zstd")


class Unusable(Exception):
    """Why a cell, or the table of models, cannot be used."""


def readable(path: Path, read: Callable[[Path], Any]) -> Any:
    """What ``read`` makes of the file."""
    try:
        return read(path)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise Unusable(f"its {path.name} cannot be read ({first_line(error)})") from None


def check_columns(path: Path, columns: Columns, found: Iterable[str]) -> None:
    """All of them, but for those that were added later."""
    lacking = [name for name in columns if name not in {*found, *LATER}]
    if lacking:
        raise Unusable(f"its {path.name} has no column {lacking[0]!r}")


def concatenated(tables: Iterable[pa.Table], columns: Columns) -> pd.DataFrame:
    """All rows."""
    # The empty table gives columns and dtypes to a study in which nothing has finished.
    empty = pa.schema(columns.items()).empty_table()
    return pa.concat_tables([empty, *tables]).to_pandas()


def first_line(error: Exception) -> str:
    """Of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
