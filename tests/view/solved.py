"""A solved file as ``deceptron solve`` writes it, whose every number is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deceptron.core.status import Reason
from deceptron.solve.results import MARK, Store

FLAGGED, UNSOLVED = (5, 3), (7,)


def columns(rows: int, shape: tuple[int, ...] = (12,), *, noise: bool = True) -> dict[str, Any]:
    """Residual over noise rises with the row; some rows are flagged, some have no answer."""
    generator = np.random.default_rng(0)
    reason = np.full(rows, Reason.DISCREPANCY, np.int8)
    reason[rows // 2 :] = Reason.SURROGATE_LIMIT
    over_noise = np.linspace(0.5, 3.5, rows, dtype=np.float32)
    trust = np.linspace(-0.5, 0.5, rows, dtype=np.float32)
    trust[list(FLAGGED)] = 40.0, np.inf
    for row in UNSOLVED:
        reason[row], over_noise[row] = Reason.NO_DATA, np.nan
    return {
        "x": generator.random((rows, *shape), dtype=np.float32),
        "std": np.full((rows, *shape), 0.25, np.float32),
        "status": np.array([Reason(code).status for code in reason], np.int8),
        "reason": reason,
        "iterations": np.arange(rows, dtype=np.int32),
        "residual": over_noise / 10,
        "over_noise": over_noise if noise else np.full(rows, np.nan, np.float32),
        "explained": (over_noise <= 1.2).astype(np.int8),
        "trust": trust,
        "cost": np.tile(np.array([1, 2, 3, 4, 5, 100], np.int32), (rows, 1)),
    }


def write(path: Path, data: dict[str, Any], *, notes: dict[str, Any] | None = None) -> Path:
    """As the suffix says."""
    rows = len(data["x"])
    store = Store(path.with_name(f"{path.stem}-store.zarr"), rows, 1000)
    about = notes or {"method": "guarded", "pair": "heat-1d"}
    store.create(data, row="row", attributes={MARK: about})
    for start in range(0, rows, 1000):
        store.write(start, {name: values[start : start + 1000] for name, values in data.items()})
    store.publish(path)
    return path
