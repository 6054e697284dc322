"""Can the default be trusted? Its errors and error bars in the cases one would doubt.

Five tables of the default solve: with the pairs that ship (seed 7) the three sets of the seven
problems on the true simulator, with and without ``noise_std``; sensors removed at random; ten
times the noise of training without ``noise_std``; wall time beside Gauss-Newton. And the problems
of ``tests/foreign/problems.py``, on which nothing was tuned, trained here with three seeds.

``python -m benchmarks.trusted`` makes all of them, a name (``sets``, ``missing``, ``noise``,
``times``, ``foreign``) one; ``page`` writes ``docs/results/trusted.md`` from their records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import RESULTS, publish
from tests.foreign.problems import FOREIGN, best_of, errors

SEED = 7
ROWS = {"darcy-2d": 32, "navier-stokes-2d": 24, "allen-cahn-2d": 48}
MOST_ROWS = 96
RIVAL_ROWS = 24
SEEDS = (7, 8, 9)
SETS = ("test", "shifted", "extreme")


def rmse(x: Tensor, truth: Tensor) -> float:
    return float((x - truth).flatten(1).square().mean(1).sqrt().mean())


def measured(solution: dc.Solution, truth: Tensor) -> dict[str, object]:
    low, high = solution.interval(0.9)
    error = rmse(solution.x, truth)
    return {
        "default": error,
        "coverage": float(((truth >= low) & (truth <= high)).double().mean()),
        "std_over_rmse": float(solution.std.mean()) / error,
        "median_evaluations": float(solution.cost.forward.double().median()),
        "over_noise": float(solution.over_noise.mean()),
        "explained": float(solution.explained.double().mean()),
        "seconds_a_row": solution.seconds / len(solution),
    }


def cases(name: str) -> tuple[dc.problems.Problem, dc.Deceptron, int]:
    problem = dc.problems.get(name, test_count=300)
    return problem, dc.load(name), ROWS.get(name, MOST_ROWS)


def cold_gauss_newton(
    problem: dc.problems.Problem, pair: dc.Deceptron, y: Tensor, noise_std: object
) -> dc.Solution:
    """With the problem's own prior, from its mean: what one would do without a pair."""
    return dc.solve(
        pair,
        y,
        method=dc.methods.gauss_newton(linear="cg", cg_steps=100, cg_tolerance=0.01),
        forward=problem.unchecked(),
        noise_std=noise_std,
        prior=problem.prior,
        gradient_tolerance=0.003,
        max_iterations=10,
    )


def times() -> None:
    """One thread, ratios within one run: the rows are few, so the default is not at its best."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, _ = cases(name)
        data = problem.dataset(SEED)
        for which in ("test", "shifted"):
            chosen = getattr(data, which)
            x, y = chosen.x[:8], chosen.y[:8]
            factor = problem.noise_factor("prior" if which == "test" else which)
            noise_std = torch.as_tensor(problem.noise_std) * factor
            dc.solve(pair, y, forward=problem, noise_std=noise_std)  # the first of its kind is slow
            solution = dc.solve(pair, y, forward=problem, noise_std=noise_std)
            newton = cold_gauss_newton(problem, pair, y, noise_std)
            row = {"problem": name, "set": which, "default": rmse(solution.x, x)}
            row["gauss_newton"] = rmse(newton.x, x)
            for label, found in (("default", solution), ("gauss_newton", newton)):
                row[f"evaluations_{label}"] = float(found.cost.forward.double().median())
            rows.append({**row, "times_faster": newton.seconds / solution.seconds})
    publish("trusted_times", "Wall time beside cold Gauss-Newton", rows)


def rivals() -> None:
    """The same rows and statistics for both, noise told to both."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, _ = cases(name)
        shifted = problem.dataset(SEED).shifted
        x, y = shifted.x[:RIVAL_ROWS], shifted.y[:RIVAL_ROWS]
        told = torch.as_tensor(problem.noise_std) * problem.noise_factor("shifted")
        alone = dc.solve(pair, y, method="one-shot", noise_std=told)
        newton = cold_gauss_newton(problem, pair, y, told)
        ours = dc.solve(pair, y, forward=problem, noise_std=told)
        low, high = ours.interval(0.9)
        rows.append(
            {
                "problem": name,
                "one_shot": rmse(alone.x, x),
                "gauss_newton": rmse(newton.x, x),
                "default": rmse(ours.x, x),
                "coverage": float(((x >= low) & (x <= high)).double().mean()),
                "evaluations_gauss_newton": float(newton.cost.forward.double().median()),
                "evaluations_default": float(ours.cost.forward.double().median()),
                "times_faster": newton.seconds / ours.seconds,
            }
        )
        print(rows[-1], flush=True)
    publish("trusted_rivals", "Beside Gauss-Newton without networks", rows)


def sets() -> None:
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, count = cases(name)
        data = problem.dataset(SEED)
        for which in SETS:
            chosen = getattr(data, which)
            x, y = chosen.x[:count], chosen.y[:count]
            factor = problem.noise_factor("prior" if which == "test" else which)
            told = torch.as_tensor(problem.noise_std) * factor
            one_shot = dc.solve(pair, y, method="one-shot", noise_std=told)
            for noise_std in (told, None) if factor == 1 else (told,):
                solution = dc.solve(pair, y, forward=problem, noise_std=noise_std)
                rows.append(
                    {
                        "problem": name,
                        "set": which,
                        "rows": count,
                        "noise": "not told" if noise_std is None else "told",
                        "one_shot": rmse(one_shot.x, x),
                        **measured(solution, x),
                    }
                )
    publish("trusted_sets", "The default on the true simulator", rows)


def missing() -> None:
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, count = cases(name)
        count = min(count, 32)
        test = problem.dataset(SEED).test
        x = test.x[:count]
        for left in (0.5, 0.25, 0.1) if name == "navier-stokes-2d" else (0.5, 0.1):
            gone = torch.rand(test.y[:count].shape, generator=torch.Generator().manual_seed(3))
            y = torch.where(gone > left, torch.nan, test.y[:count])
            noise_std = problem.noise_std
            solution = dc.solve(pair, y, forward=problem, noise_std=noise_std)
            row = {"problem": name, "left": left, "rows": count, **measured(solution, x)}
            row["one_shot"] = rmse(dc.solve(pair, y, method="one-shot", noise_std=noise_std).x, x)
            few = min(count, 4)
            newton = cold_gauss_newton(problem, pair, y[:few], noise_std)
            row["gauss_newton_with_prior"] = rmse(newton.x, x[:few])
            row["default_on_the_same"] = rmse(solution.x[:few], x[:few])
            rows.append(row)
    publish("trusted_missing", "Sensors removed at random", rows)


def noise() -> None:
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, count = cases(name)
        x = problem.dataset(SEED).test.x[: min(count, 32)]
        clean = problem.simulate(x)
        white = torch.randn(clean.shape, generator=torch.Generator().manual_seed(4))
        y = clean + 10 * torch.as_tensor(problem.noise_std) * white
        one_shot = dc.solve(pair, y, method="one-shot")
        solution = dc.solve(pair, y, forward=problem)
        error = rmse(one_shot.x, x)
        row = {"problem": name, "one_shot": error, **measured(solution, x)}
        rows.append({**row, "ratio": rmse(solution.x, x) / error})
    publish("trusted_noise", "Ten times the noise, not told", rows)


def foreign() -> None:
    rows: list[dict[str, object]] = []
    for name, make in FOREIGN.items():
        for seed in SEEDS:
            problem = make()
            pair = dc.train(problem, "standard", seed=seed, progress=False)
            found, solutions = errors(pair, problem, problem.dataset(seed))
            truth = problem.dataset(seed).test.x
            for mode, solution in solutions.items():
                row = {"problem": name, "seed": seed, "mode": mode}
                row |= {key: found[key] for key in ("one-shot", "wiener")}
                values = measured(solution, truth)
                rows.append({**row, **values, "ratio": found[mode] / best_of(found)})
    publish("trusted_foreign", "Problems on which nothing was tuned", rows)


TITLES = {
    "sets": (
        "The three sets of the seven problems",
        "On the true simulator. `told`: the noise level of the set was given as `noise_std`. "
        "`coverage`: share of the truth inside 90% intervals. `std over rmse`: mean standard "
        "deviation over RMSE. `median evaluations`: of the simulator, f, jvp and vjp counted "
        "alike. `over noise`: mean residual in units of the noise. `explained`: share of rows.",
    ),
    "rivals": (
        "Beside Gauss-Newton on the shifted sets",
        f"The first {RIVAL_ROWS} rows of each shifted set, the same for all; errors are mean RMSE, "
        "evaluations medians. Gauss-Newton has the simulator's derivatives (matrix-free), the "
        "noise level and, as a prior, the mean and covariance of the training fields, from which "
        "it starts; the default is told the same noise. One thread; training is not counted.",
    ),
    "missing": (
        "Sensors removed at random",
        "`left`: the share of the sensors that is left. Gauss-Newton has the problem's prior and "
        "starts at its mean. It solves the first 4 rows only; the last column is the error of the "
        "default on these 4 rows.",
    ),
    "noise": (
        "Ten times the noise, not told",
        "Data with ten times the noise of training, and no `noise_std` given. No row can be "
        "explained to the assumed noise. `ratio`: the error over that of one-shot.",
    ),
    "times": (
        "Wall time beside cold Gauss-Newton",
        "Eight rows on the true simulator, one thread, in one run. Gauss-Newton has the problem's "
        "prior and starts at its mean (cold). The first two columns of numbers are RMSE.",
    ),
    "foreign": (
        "Problems on which nothing was tuned",
        "The problems of `tests/foreign/problems.py`, trained with preset `standard` and solved "
        "on the surrogate, on the simulator by values only, and with its derivatives. `ratio`: "
        "the error over that of the better of one-shot and wiener.",
    ),
}


def records(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"trusted_{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def span(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{found[0]:.2f} to {found[-1]:.2f}"


def findings() -> list[str]:
    """A line for each table that there is."""
    lines = []
    for which in SETS if records("sets") else ():
        here = [row for row in records("sets") if row["set"] == which]
        errors = span(row["default"] / row["one_shot"] for row in here)
        held = span(row["coverage"] for row in here)
        lines.append(
            f"- On the {which} sets the error is {errors} times that of the network alone, and "
            f"90% intervals hold {held} of the truth."
        )
    if rows := records("missing"):
        held = span(row["coverage"] for row in rows)
        lines.append(f"- With half to nine tenths of the sensors missing, intervals hold {held}.")
    if rows := records("noise"):
        ratios, held = (span(row[key] for row in rows) for key in ("ratio", "coverage"))
        lines.append(
            f"- With ten times the noise, not stated, the error is {ratios} times that of the "
            f"network alone, and intervals hold {held}."
        )
    if rows := records("times"):
        least, most = (pick(row["times_faster"] for row in rows) for pick in (min, max))
        lines.append(
            f"- It is {least:.0f} to {most:.0f} times faster than Gauss-Newton with the prior."
        )
    if rows := records("foreign"):
        ratios, held = (span(row[key] for row in rows) for key in ("ratio", "coverage"))
        lines.append(
            f"- On problems on which nothing was tuned the error is {ratios} times that of the "
            f"better of one-shot and wiener, and intervals hold {held}."
        )
    return lines


def page() -> None:
    lines = [
        "# Can the default be trusted?",
        "",
        "Mean RMSE, error bars and costs of `dc.solve` with its default method in the cases one "
        "would doubt: data unlike the training data, missing sensors, unknown noise, new "
        "problems. Pairs are those that ship (seed 7) unless stated. Written by `python -m "
        "benchmarks.trusted page` from the records of `python -m benchmarks.trusted`.",
        "",
        "**Findings**",
        "",
        *findings(),
    ]
    for name, (title, words) in TITLES.items():
        rows = records(name)
        if not rows:
            continue
        columns = [key for key in rows[0] if key != "seconds_a_row"]
        lines += ["", f"## {title}", "", words, "", "| " + " | ".join(columns) + " |"]
        lines[-1] = lines[-1].replace("_", " ")
        lines.append("|" + "---|" * len(columns))
        for row in rows:
            shown = (row[key] for key in columns)
            cells = (f"{v:.0f}" if isinstance(v, float) and v >= 1000 else v for v in shown)
            cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in cells)
            lines.append("| " + " | ".join(cells) + " |")
    (RESULTS.parent.parent / "docs" / "results" / "trusted.md").write_text("\n".join(lines) + "\n")


TABLES = {
    "sets": sets,
    "rivals": rivals,
    "missing": missing,
    "noise": noise,
    "times": times,
    "foreign": foreign,
    "page": page,
}


def main(names: Sequence[str] = tuple(TABLES)) -> None:
    for name in names:
        TABLES[name]()


if __name__ == "__main__":
    main(sys.argv[1:] or tuple(TABLES))
