"""Records of a study on disk, and a reader that says what is missing.

::

    study.json                       format, run key, settings, the cells that were planned
    environment.json                 versions, threads, cores
    models.parquet                   a row per model that was used
    cells/<key>/cell.json            the cell's own fields, outcome, seconds, latency; written last
    cells/<key>/instances.parquet    a row per instance
    cells/<key>/steps.parquet        a row per accepted point, step 0 is the start
    cells/<key>/fields.npz           answers of the first instances

Tables are in long format (``study/tables.py``). Reading needs no solver and runs no code of the
folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deceptron import CheckpointError
from deceptron.work import read_json
from deceptron_paper.study.entries import PROBLEMS, ProblemEntry, shown_problem
from deceptron_paper.study.methods import ENTRIES, METHODS
from deceptron_paper.study.names import TRUTH
from deceptron_paper.study.tables import (
    AXES,
    CELLS,
    INSTANCES,
    MODELS,
    STEPS,
    Columns,
    Unusable,
    check_columns,
    concatenated,
    first_line,
    read_table,
    readable,
)

FORMAT = 1
DONE = "done"

# The tables of a cell that solves; the truth has none.
_TABLES = {"instances": INSTANCES, "steps": STEPS}


@dataclass(frozen=True)
class Missing:
    """A planned part of the study that the folder does not hold, and why, in a sentence."""

    cell: str
    sentence: str


@dataclass(frozen=True)
class MethodRecord:
    """What a study noted about a method that it ran; see ``method_entry.MethodEntry``."""

    name: str
    words: str = ""
    physics: str = "surrogate"
    prior: bool = False
    start: str = "own"
    operation: str = ""
    color: str = ""
    dashes: tuple[float, ...] = ()
    marker: str = "o"
    filled: bool = True
    width: float = 1.1
    direct: bool = False
    uses_reverse: bool = False
    begins: str = "x0 = 0"


@dataclass(frozen=True)
class Records:
    """The tables of a study, concatenated; ``missing`` names what they lack."""

    folder: Path
    study: dict[str, Any]
    environment: dict[str, Any]
    models: pd.DataFrame
    cells: pd.DataFrame
    instances: pd.DataFrame
    steps: pd.DataFrame
    missing: tuple[Missing, ...]

    @property
    def name(self) -> str:
        """What the study is called."""
        return str(self.study.get("name", self.folder.name))

    @property
    def small(self) -> bool:
        """Whether its samples are too small to conclude anything from."""
        return bool(self.study.get("small", False))

    @cached_property
    def methods(self) -> dict[str, MethodRecord]:
        """What was noted about each planned method, in the order of display."""
        shown = self._shown("methods") or {name: ENTRIES[name].shown() for name in METHODS}
        planned = self._planned("method", shown)
        return {n: MethodRecord(n, **shown.get(n, {})) for n in planned if n != TRUTH}

    @cached_property
    def problems(self) -> dict[str, ProblemEntry]:
        """What was noted about each planned problem, in the order of display."""
        shown = self._shown("problems") or {name: shown_problem(name) for name in PROBLEMS}
        planned = self._planned("problem", shown)
        return {n: ProblemEntry(**shown.get(n, {})) for n in planned}

    def _shown(self, kind: str) -> dict[str, dict[str, Any]]:
        """Empty in folders of version 0.1: they hold names of the library, so ask its entries."""
        return self.study.get("shown", {}).get(kind, {})

    def _planned(self, axis: str, known: dict[str, dict[str, Any]]) -> list[str]:
        """In the order of what is known; a name that is not has the defaults and comes last."""
        planned = dict.fromkeys(cell[axis] for cell in self.study["cells"])
        return [n for n in known if n in planned] + [n for n in planned if n not in known]

    def fields(
        self, problem: str, set: str, model: str, seed: int, method: str
    ) -> dict[str, NDArray[np.float32]] | None:
        """``{"x": answers}`` of the first instances of a cell, None if there are none."""
        key = self._keys.get((problem, set, model, seed, method))
        if key is None:
            return None
        try:
            with np.load(self.folder / "cells" / key / "fields.npz", allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None

    def truth(self, problem: str, set: str, seed: int) -> dict[str, NDArray[np.float32]] | None:
        """``{"x": latents, "y": observations}`` of the first instances of a set."""
        return self.fields(problem, set, "", seed, TRUTH)

    @cached_property
    def _keys(self) -> dict[tuple[object, ...], str]:
        rows = self.cells[list(AXES)].itertuples(index=False, name=None)
        return dict(zip(rows, self.cells["key"], strict=True))


def read(folder: str | os.PathLike[str]) -> Records:
    """Everything of a study folder that can be read; the rest is named in ``missing``.

    Only a folder that is no study at all, or of a later format, is an error.
    """
    path = Path(folder)
    study = _study(path)
    missing: list[Missing] = []
    cells, instances, steps = [], [], []
    planned = {entry["key"]: entry for entry in study["cells"]}
    present = {entry.name for entry in (path / "cells").glob("*/") if entry.name[0] != "."}
    for key in planned:
        place = path / "cells" / key
        try:
            cell = finished(place)
            found = {
                name: read_table(place / f"{name}.parquet", columns)
                for name, columns in _tables(cell)
            }
        except Unusable as reason:
            missing.append(Missing(key, f"{describe(planned[key])}: {reason}"))
            continue
        cells.append(cell)
        instances += [found["instances"]] if found else []
        steps += [found["steps"]] if found else []
    for key in sorted(present - planned.keys()):
        missing.append(Missing(key, f"cell {key} is not part of this study and was left out"))
    try:
        models = read_table(path / "models.parquet", MODELS).to_pandas()
    except Unusable as reason:
        models = concatenated([], MODELS)
        missing.insert(0, Missing("models", f"the table of models: {reason}"))
    return Records(
        path,
        study,
        read_json(path / "environment.json") or {},
        models,
        pa.Table.from_pylist(cells, schema=pa.schema(CELLS.items())).to_pandas(),
        concatenated(instances, INSTANCES),
        concatenated(steps, STEPS),
        tuple(missing),
    )


def finished(place: Path) -> dict[str, Any]:
    """The cell.json of a cell that is done and whose tables are there; else ``Unusable``, why.

    Looks at the footers of the tables, not at their rows.
    """
    cell = _cell(place)
    for name, columns in _tables(cell):
        path = place / f"{name}.parquet"
        if not path.exists():
            raise Unusable(f"its {path.name} is missing")
        footer = readable(path, pq.read_metadata)
        check_columns(path, columns, footer.schema.names)
        if name == "instances" and footer.num_rows != cell["instances"]:
            raise Unusable(f"it holds {footer.num_rows} of {cell['instances']} instances")
    return cell


def describe(cell: dict[str, Any]) -> str:
    """A cell in words, such as ``heat-1d, test, standard, seed 7, d-ipg``."""
    words = [cell["problem"], cell["set"], cell["model"], f"seed {cell['seed']}", cell["method"]]
    return ", ".join(word for word in words if word)


def _study(folder: Path) -> dict[str, Any]:
    path = folder / "study.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a study folder: it has no study.json")
    try:
        study: dict[str, Any] = json.loads(path.read_text())
        version = study["format"]
        planned = [{name: entry[name] for name in ("key", *AXES)} for entry in study["cells"]]
        if not isinstance(version, int):
            raise TypeError("format is not a number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error
    if version > FORMAT:
        raise CheckpointError(
            f"{path} has format {version}; this library reads up to {FORMAT}: upgrade it"
        )
    return {**study, "cells": planned}


def _cell(place: Path) -> dict[str, Any]:
    if not (place / "cell.json").is_file():
        raise Unusable("it has not been run")
    try:
        cell: dict[str, Any] = json.loads((place / "cell.json").read_text())
        version, outcome = cell["format"], cell["outcome"]
        for name in (*AXES, "instances"):
            cell[name]
    except (OSError, ValueError) as error:
        raise Unusable(f"its cell.json cannot be read ({first_line(error)})") from None
    except (KeyError, TypeError) as error:
        raise Unusable(f"its cell.json lacks {error}") from None
    if version != FORMAT:
        raise Unusable(f"it has format {version}, this library reads {FORMAT}")
    if outcome != DONE:
        raise Unusable(f"{outcome}, {cell.get('why', 'for an unknown reason')}")
    return cell


def _tables(cell: dict[str, Any]) -> Iterable[tuple[str, Columns]]:
    return () if cell["method"] == TRUTH else _TABLES.items()
