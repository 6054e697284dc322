"""Wrong sensors: how many ``dc.outliers`` finds, how many it wrongly suspects, what that is worth.

Of rows of the seven problems (pairs that ship) and of the eight of ``tests/foreign`` (preset
``smoke``), one sensor in fifty, or one, is off by twenty times its noise. RMSE of the default on
the true simulator with clean data, with these, and with what was found replaced by NaN; sensors
suspected in clean rows, and in those of the shifted and extreme sets where there are any.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import publish
from benchmarks.trusted import rmse
from tests.foreign import problems as foreign

SEED, ROWS, SIZE, SHARE = 7, 24, 20.0, 0.02
FOREIGN = ("attenuation", "beam", "heat_rod", "narrow", "predators", "saturated_image")
FOREIGN += ("spectrum", "travel_times")


def cases() -> Iterator[tuple[str, dc.problems.Problem, dc.Deceptron]]:
    for name in dc.maps.shipped():
        yield "ships", dc.problems.get(name), dc.load(name)
    for name in FOREIGN:
        problem = getattr(foreign, name)()
        yield "foreign", problem, dc.train(problem, "smoke", seed=SEED, progress=False)


def spoiled(problem: dc.problems.Problem, y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with wrong sensors, and which they are."""
    draw, n = Generator().manual_seed(SEED), y[0].numel()
    count = max(1, int(SHARE * n))
    places = torch.stack([torch.randperm(n, generator=draw)[:count] for _ in y])
    sign = 2 * torch.randint(2, places.shape, generator=draw) - 1
    noise = torch.as_tensor(problem.noise_std).broadcast_to(y.shape[1:]).flatten().to(y)
    wrong = torch.zeros(len(y), n, dtype=torch.bool).scatter_(1, places, True)
    off = y.flatten(1).scatter_add(1, places, SIZE * noise[places] * sign)
    return off.reshape(y.shape), wrong.reshape(y.shape)


def measure(kind: str, problem: dc.problems.Problem, pair: dc.Deceptron) -> dict[str, object]:
    data = problem.dataset(SEED)
    x, y = data.test.x[:ROWS], data.test.y[:ROWS]
    off, wrong = spoiled(problem, y)
    found = dc.outliers(pair, off)
    mended = torch.where(found, torch.nan, off)
    row: dict[str, object] = {
        "problem": problem.name,
        "kind": kind,
        "sensors": y[0].numel(),
        "wrong_a_row": int(wrong[0].sum()),
        "found": float((found & wrong).sum() / wrong.sum()),
        "falsely_found_a_row": float((found & ~wrong).sum() / len(y)),
        "suspected_in_clean_rows": float(dc.outliers(pair, y).sum() / len(y)),
    }
    for family in ("shifted", "extreme"):
        strange = getattr(data, family).y[:ROWS] if kind == "ships" else None
        suspected = None if strange is None else float(dc.outliers(pair, strange).sum() / ROWS)
        row[f"suspected_in_{family}_rows"] = suspected
    for label, rows in (("clean", y), ("spoiled", off), ("mended", mended)):
        row[f"rmse_{label}"] = rmse(dc.solve(pair, rows, forward=problem, history=False).x, x)
    return row


def main() -> None:
    rows: list[dict[str, object]] = []
    for case in cases():
        rows.append(measure(*case))
        publish("outliers", "Wrong sensors, found and replaced by NaN", rows)


if __name__ == "__main__":
    main()
