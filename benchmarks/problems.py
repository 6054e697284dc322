"""How fast the simulators are, how ill-posed, and whether Navier-Stokes is truly nonlinear.

``python -m benchmarks problems`` prints every number that docs/research/problems.md quotes.
"""

from __future__ import annotations

import time

import torch
from torch import Generator, Tensor

from benchmarks.common import publish, seconds
from deceptron import problems
from deceptron.core.differentiate import jvp
from deceptron.problems import Problem

BATCHES = (1, 16, 64, 256)
GRIDS = (32, 64, 128)


def main() -> None:
    publish("problems_throughput", "simulated instances per second (float32)", throughput())
    publish("problems_datasets", "seconds to make the default datasets, all splits", datasets())
    publish("problems_grids", "cost of one instance in ms, by grid (batch 16)", grids())
    publish("problems_conditioning", "how ill-posed: prior-whitened J over noise", conditioning())
    publish("problems_nonlinearity", "navier-stokes-2d: linear against nonlinear", nonlinearity())


def latents(problem: Problem, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return problem.sample(count, generator=Generator().manual_seed(1), dtype=dtype)


def forward_and_vjp(problem: Problem, x: Tensor, repeats: int = 3) -> tuple[float, float]:
    """Seconds of one batch: the plain simulation, and simulation with pullback."""

    def plain() -> None:
        with torch.no_grad():
            problem.simulate(x)

    def pullback() -> None:
        leaf = x.clone().requires_grad_()
        y = problem.simulate(leaf)
        torch.autograd.grad(y, leaf, torch.ones_like(y))

    return seconds(plain, repeats=repeats), seconds(pullback, repeats=repeats)


def throughput() -> list[dict[str, object]]:
    rows = []
    for name in problems.names():
        problem = problems.get(name)
        row: dict[str, object] = {"problem": name}
        for batch in BATCHES:
            forward, pullback = forward_and_vjp(problem, latents(problem, batch))
            row[f"forward_{batch}"] = round(batch / forward)
            row[f"vjp_{batch}"] = round(batch / pullback)
        rows.append(row)
    return rows


def datasets() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    instances, total = 0, 0.0
    for name in problems.names():
        start = time.perf_counter()
        data = problems.get(name).dataset(seed=7)
        count = sum(
            len(split) for split in (data.train, data.val, data.test, data.shifted, data.extreme)
        )
        elapsed = time.perf_counter() - start
        instances, total = instances + count, total + elapsed
        rows.append({"problem": name, "instances": count, "seconds": elapsed})
    return [*rows, {"problem": "all", "instances": instances, "seconds": total}]


def grids() -> list[dict[str, object]]:
    rows = []
    for name in problems.names():
        if name == "heat-3d":
            continue  # 128^3 is another scale: its own row below
        row: dict[str, object] = {"problem": name}
        for grid in GRIDS:
            problem = problems.get(name, grid=grid)
            forward, pullback = forward_and_vjp(problem, latents(problem, 16))
            row[f"forward_{grid}"] = 1e3 * forward / 16
            row[f"vjp_{grid}"] = 1e3 * pullback / 16
        rows.append(row)
    row = {"problem": "heat-3d (8, 16, 32)"}
    for grid, column in zip((8, 16, 32), GRIDS, strict=True):
        problem = problems.get("heat-3d", grid=grid)
        forward, pullback = forward_and_vjp(problem, latents(problem, 16))
        row[f"forward_{column}"] = 1e3 * forward / 16
        row[f"vjp_{column}"] = 1e3 * pullback / 16
    return [*rows, row]


def conditioning(samples: int = 3, block: int = 128) -> list[dict[str, object]]:
    """Singular values s_i of J C^(1/2) / noise_std; a direction counts if s_i > 1."""
    rows = []
    for name in problems.names():
        problem = problems.get(name)
        x = latents(problem, samples, torch.float64)
        n = x[0].numel()
        identity = torch.eye(n, dtype=torch.float64).reshape(n, *problem.x_shape)
        root = problem.prior.sqrt(identity).flatten(1)
        plain, above, spectra = [], [], []
        for row in x:
            transposed = jacobian(problem, row, identity, block)
            bare = torch.linalg.svdvals(transposed)
            # C^(1/2) is symmetric: C^(1/2) J' has the singular values of J C^(1/2).
            values = torch.linalg.svdvals(root @ transposed / problem.noise_std)
            spectra.append(values)
            plain.append((float(bare[0]), float(bare[-1])))
            above.append(int((values > 1).sum()))
        mean = torch.stack(spectra).log().mean(0).exp()
        rows.append(
            {
                "problem": name,
                "n": n,
                "largest_of_J": max(top for top, _ in plain),
                "smallest_of_J": min(low for _, low in plain),
                **{f"s_{k}": float(mean[k - 1]) for k in (1, 5, 20, 50) if k <= n},
                "above_noise": "/".join(map(str, above)),
            }
        )
    return rows


def jacobian(problem: Problem, row: Tensor, tangents: Tensor, block: int) -> Tensor:
    """Rows are the images of the tangents."""
    images = [
        jvp(problem.simulate, row.expand(len(part), *row.shape).contiguous(), part)[1].flatten(1)
        for part in tangents.split(block)
    ]
    return torch.cat(images)


def nonlinearity(instances: int = 16) -> list[dict[str, object]]:
    """Error of the best linear estimator over that of regularised Gauss-Newton, true model."""
    problem = problems.get("navier-stokes-2d")
    data = problem.dataset(seed=7)
    x, y = data.test.x[:instances], data.test.y[:instances]
    errors = {
        "linear, best of 9 ridges": rmse(linear_estimate(problem, data, y), x),
        "Gauss-Newton from 0": rmse(gauss_newton(problem, y, torch.zeros_like(x)), x),
    }
    linear = errors["linear, best of 9 ridges"].mean()
    return [
        {
            "estimator": name,
            "instances": instances,
            "mean_rmse": float(error.mean()),
            "median_rmse": float(error.median()),
            "linear_over_this": float(linear / error.mean()),
        }
        for name, error in errors.items()
    ]


def rmse(estimate: Tensor, truth: Tensor) -> Tensor:
    return (estimate - truth).square().flatten(1).mean(1).sqrt()


def linear_estimate(problem: Problem, data: problems.Dataset, y: Tensor) -> Tensor:
    """Ridge from all noisy training pairs; the weight is the one that serves validation best."""
    noisy = [
        problem.add_noise(split.y, generator=Generator().manual_seed(11 + k))
        for k, split in enumerate((data.train, data.val))
    ]
    (train_y, val_y), (train_x, val_x) = (
        [rows.flatten(1).double() for rows in pair] for pair in (noisy, (data.train.x, data.val.x))
    )
    mean_x, mean_y = train_x.mean(0), train_y.mean(0)
    inputs = train_y - mean_y
    values, vectors = torch.linalg.eigh(inputs.T @ inputs)
    moments = vectors.T @ (inputs.T @ (train_x - mean_x))
    maps = [
        vectors @ (moments / (values + weight * values.mean())[:, None])
        for weight in 10.0 ** torch.arange(-6.0, 3.0)
    ]
    best = min(maps, key=lambda m: float(((val_y - mean_y) @ m + mean_x - val_x).square().mean()))
    estimate = (y.flatten(1).double() - mean_y) @ best + mean_x
    return estimate.reshape(-1, *problem.x_shape).to(y)


def gauss_newton(
    problem: Problem, y: Tensor, start: Tensor, *, steps: int = 10, inner: int = 15
) -> Tensor:
    """Minimise |F(x) - y|^2 / noise^2 + |x - m|^2_C by damped Gauss-Newton, whitened CG inside."""
    prior, noise = problem.prior, problem.noise_std
    low, high = problem.bounds

    def objective(x: Tensor) -> Tensor:
        with torch.no_grad():
            misfit = (problem.simulate(x) - y).square().flatten(1).sum(1) / noise**2
        return misfit + prior.whiten(x - prior.mean.to(x)).square().flatten(1).sum(1)

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).flatten(1).sum(1).reshape(-1, *(1,) * (a.ndim - 1))

    x = start
    for _ in range(steps):
        leaf = x.detach().requires_grad_()
        simulated = problem.simulate(leaf)

        def pullback(v: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(simulated, leaf, v / noise**2, retain_graph=True)  # noqa: B023
            return prior.sqrt(gradient)

        def normal(v: Tensor) -> Tensor:
            return pullback(jvp(problem.simulate, x, prior.sqrt(v))[1]) + v  # noqa: B023

        r = -pullback(simulated.detach() - y) - prior.whiten(x - prior.mean.to(x))
        z, p, rr = torch.zeros_like(x), r, dot(r, r)
        for _ in range(inner):
            q = normal(p)
            step = rr / dot(p, q)
            z, r = z + step * p, r - step * q
            previous, rr = rr, dot(r, r)
            p = r + rr / previous * p
        direction, current = prior.sqrt(z), objective(x)
        length = torch.ones_like(rr)
        for _ in range(6):
            trial = (x + length * direction).clamp(low, high)
            worse = objective(trial) > current
            length = torch.where(worse.reshape(length.shape), 0.5 * length, length)
        x = torch.where(worse.reshape(length.shape), x, trial)
    return x
