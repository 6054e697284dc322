"""Do the error bars of the shipped pairs hold what they promise, and how wide are they?

Coverage of 90% intervals over the components of 300 instances a set, about the one-shot answer,
with the draws that solutions use and the noise of the set told to the pair (``told``) or not. The
factor was fitted on validation data alone. ``python -m benchmarks.posterior NAME ...`` does
only these problems and keeps the other rows of the record.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import RESULTS, publish
from deceptron.geometry import Posterior, gain_distance, optimal_gain
from deceptron.geometry.posterior import LEVEL, SAMPLES, quantile
from deceptron.train import calibrate

INSTANCES = 300
# Label, family, and whether the pair is told of the noise that the family's set has.
SETS = (
    ("test", "prior", True),
    ("shifted", "shifted", True),
    ("extreme", "extreme", False),
    ("extreme", "extreme", True),
)


def shipped(name: str) -> tuple[dc.Deceptron, dc.problems.Problem]:
    """A pair of the zoo, calibrated here if its file is older than calibration."""
    problem = dc.problems.get(name, test_count=INSTANCES)
    pair = dc.load(name).eval().requires_grad_(False)
    if not pair.calibration:
        calibrate(pair, problem, problem.dataset(pair.provenance["seed"]))
    return pair, problem


def rows_of(name: str) -> list[dict[str, object]]:
    pair, problem = shipped(name)
    data = problem.dataset(pair.provenance["seed"])
    prior_std = problem.prior.variance.sqrt()
    found = []
    for label, family, told in SETS:
        split = getattr(data, label)
        noise = problem.noise_std * (problem.noise_factor(family) if told else 1.0)
        bars = Posterior.one_shot(
            pair.at_noise(noise), split.y, prior=problem.prior, noise_std=noise
        )
        assert bars.misfit is not None
        std = bars.std()
        error = (split.x - bars.x).abs()
        half = quantile(LEVEL, SAMPLES) * std
        inside = error <= half
        widened = bars.misfit.clamp_min(1).reshape(-1, *(1,) * (std.ndim - 1))
        by_row = inside.flatten(1).double().mean(1)
        found.append(
            {
                "problem": name,
                "set": label,
                "told": told,
                "coverage": mean(inside),
                "rows_10%": float(by_row.quantile(0.1)),
                "rows_90%": float(by_row.quantile(0.9)),
                "not_widened": mean(error <= half / widened),
                "std/prior": mean(std / prior_std.to(std)),
                "rmse/prior": mean(error.flatten(1).square().mean(1).sqrt())
                / float(prior_std.square().mean().sqrt()),
                # Below 1, bars of one width for all would have to be wider for the same coverage.
                "width/constant": mean(half) / float(error.flatten().kthvalue(rank(inside)).values),
                "misfit": float(bars.misfit.median()),
                "factor": bars.factor,
            }
        )
    return found


def rank(inside: Tensor) -> int:
    """Of the error that bars of constant width with this coverage would reach."""
    return max(1, int(inside.sum()))


def mean(values: Tensor) -> float:
    return float(values.double().mean())


def dense_comparison(name: str = "heat-1d") -> list[dict[str, object]]:
    """The learned gain beside the best one at the same points: spread and raw coverage."""
    pair, problem = shipped(name)
    data = problem.dataset(pair.provenance["seed"])
    setting = {"prior": problem.prior, "noise_std": problem.noise_std}
    learned = replace(Posterior.one_shot(pair, data.test.y, **setting), misfit=None)
    std, raw = (
        bars.std(64, generator=Generator().manual_seed(0))
        for bars in (learned, replace(learned, prior_share=1.0))
    )
    gain = optimal_gain(pair, learned.x, **setting)
    n = learned.x[0].numel()
    root = problem.prior.sqrt(torch.eye(n, dtype=torch.float64).reshape(n, *problem.x_shape))
    covariance = root.reshape(n, n) @ root.reshape(n, n)
    variances = []
    for row, best in zip(learned.x.split(1), gain, strict=True):
        jacobian = torch.func.jacrev(lambda x: pair.f(x[None])[0])(row[0]).reshape(-1, n).double()
        posterior = covariance - best @ jacobian @ covariance
        variances.append(posterior.diagonal())
    optimal = torch.stack(variances).sqrt().to(std).reshape(std.shape)
    error = (data.test.x - learned.x).abs()
    few = slice(0, 64)
    distance = gain_distance(
        pair, learned.x[few], generator=Generator().manual_seed(0), **setting
    ).mean()
    prior_std = problem.prior.variance.sqrt().to(std)
    return [
        {
            "problem": name,
            "gain": label,
            "std/prior": mean(spread / prior_std),
            "coverage": mean(error <= quantile(LEVEL, draws) * spread),
            "distance_to_best": shown,
        }
        for label, spread, draws, shown in (
            ("learned, not calibrated", raw / learned.factor, 64, float(distance)),
            ("learned, calibrated", std, 64, float(distance)),
            ("best (dense), not calibrated", optimal, 10**6, 0.0),
        )
    ]


def main(names: tuple[str, ...] = ()) -> None:
    order = dc.problems.names()
    title = f"90% intervals about g(y), {INSTANCES} instances; in distribution 0.87 to 0.93"
    for name in names or order:
        found = rows_of(name)
        record = RESULTS / "posterior.json"
        kept = json.loads(record.read_text())["rows"] if record.is_file() else []
        rows = [row for row in kept if row["problem"] != name] + found
        publish("posterior", title, sorted(rows, key=lambda row: order.index(row["problem"])))
    if "heat-1d" in (names or order):
        publish("posterior_dense", "The learned gain beside the best one", dense_comparison())


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
