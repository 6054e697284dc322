"""Can the default be trusted? Its errors and bars where one would doubt them.

Four tables, all with the default solve and the pairs that ship (seed 7): the three sets of the
seven problems on the true simulator, with and without the noise told; sensors removed at random;
noise of ten times what the pair knows, not told; and six problems on which nothing was tuned
(``tests/foreign/problems.py``), trained here with three seeds, in every mode.

``python -m benchmarks.trusted`` makes all of them, a name (``sets``, ``missing``, ``noise``,
``times``, ``foreign``) one; ``page`` writes ``docs/results/trusted.md`` from their records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import RESULTS, publish
from tests.foreign.problems import FOREIGN, best_of, errors

SEED = 7
ROWS = {"darcy-2d": 32, "navier-stokes-2d": 24, "allen-cahn-2d": 48}
MOST_ROWS = 96
SEEDS = (7, 8, 9)


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


def sets() -> None:
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        problem, pair, count = cases(name)
        data = problem.dataset(SEED)
        for which in ("test", "shifted", "extreme"):
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
        "On the true simulator. Coverage is that of 90% intervals; evaluations are those of the "
        "simulator, f, jvp and vjp counted alike, the median over rows.",
    ),
    "missing": (
        "Sensors removed at random",
        "Gauss-Newton has the problem's prior and starts at its mean; it solves the first 4 rows, "
        "and the column beside it is the default on the same.",
    ),
    "noise": ("Ten times the noise, not told", "The ratio is that to one-shot."),
    "times": (
        "Wall time beside cold Gauss-Newton",
        "Eight rows on the true simulator, one thread, in one run. Gauss-Newton has the problem's "
        "prior and starts at its mean.",
    ),
    "foreign": (
        "Problems on which nothing was tuned",
        "Trained with preset `standard`; the ratio is that to the better of one-shot and wiener.",
    ),
}


def page() -> None:
    lines = [
        "# Can the default be trusted?",
        "",
        "Mean RMSE, error bars and costs of `dc.solve` with its default method where one would "
        "doubt them, with the pairs that ship (seed 7). Written by `python -m benchmarks.trusted "
        "page` from the records that `python -m benchmarks.trusted` makes.",
    ]
    for name, (title, words) in TITLES.items():
        path = RESULTS / f"trusted_{name}.json"
        if not path.exists():
            continue
        rows = json.loads(path.read_text())["rows"]
        columns = [key for key in rows[0] if key != "seconds_a_row"]
        lines += ["", f"## {title}", "", words, "", "| " + " | ".join(columns) + " |"]
        lines[-1] = lines[-1].replace("_", " ")
        lines.append("|" + "---|" * len(columns))
        for row in rows:
            shown = (row[key] for key in columns)
            cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in shown)
            lines.append("| " + " | ".join(cells) + " |")
    (RESULTS.parent.parent / "docs" / "results" / "trusted.md").write_text("\n".join(lines) + "\n")


TABLES = {
    "sets": sets,
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
