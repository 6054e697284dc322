"""Tables read back as a reader of their CSV would."""

from __future__ import annotations

import io

import pandas as pd

from deceptron_paper.report.tables.formats import to_csv


def frame(table) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(to_csv(table)), dtype={"steps": str})


def line(table, **keys) -> pd.Series:
    """The one line with these values."""
    rows = frame(table)
    for name, value in keys.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, f"{keys}: {len(rows)} lines"
    return rows.iloc[0]
