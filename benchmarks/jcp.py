"""Batched JCP, value and parameter gradient, against a loop over samples and probes."""

from __future__ import annotations

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import publish, seconds
from deceptron.geometry import draw_probes
from deceptron.maps import cnn_pair, mlp_pair


def looped(pair: dc.Deceptron, x: Tensor, xi: Tensor) -> Tensor:
    """One jvp through each map for each sample and probe, as the formula reads."""
    total = x.new_zeros(())
    for row in range(xi.shape[0]):
        for probe in range(xi.shape[1]):
            point, direction = x[row : row + 1], xi[row : row + 1, probe]
            y, pushed = torch.func.jvp(pair.f, (point,), (direction,))
            _, returned = torch.func.jvp(pair.g, (y,), (pushed,))
            total = total + (returned - direction).square().mean()
    return total / (xi.shape[0] * xi.shape[1])


def measure(name: str, pair: dc.Deceptron, rows: int, probes: int, target: float) -> dict:
    assert pair.x_shape is not None
    parameters = list(pair.parameters())
    x = torch.rand(rows, *pair.x_shape, generator=torch.Generator().manual_seed(1))

    def seed() -> torch.Generator:
        return torch.Generator().manual_seed(2)

    xi = draw_probes(x, probes=probes, generator=seed())

    def gradient(value: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(value, parameters, materialize_grads=True, allow_unused=True)

    def batched() -> tuple[Tensor, ...]:
        return gradient(dc.jcp(pair, x, probes=probes, generator=seed()))

    def loop() -> tuple[Tensor, ...]:
        return gradient(looped(pair, x, xi))

    for ours, theirs in zip(batched(), loop(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    # In turns, so that a neighbour on a shared machine slows both alike.
    rounds = [(seconds(loop, repeats=1, warmups=0), seconds(batched, repeats=3)) for _ in range(7)]
    slow, fast = sorted(rounds, key=lambda times: times[0] / times[1])[len(rounds) // 2]
    return {
        "pair": name,
        "rows": rows,
        "probes": probes,
        "loop_ms": 1e3 * slow,
        "batched_ms": 1e3 * fast,
        "ratio": slow / fast,
        "wanted_at_least": target,
    }


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    mlp = mlp_pair(64, generator=generator)
    grid = (8, 8, 8)
    cnn = cnn_pair(grid, grid, dimensions=3, channels=12, generator=generator)
    cnn_name = "3D CNN, 8x8x8, 12 channels, 2 blocks"
    rows = [measure("MLP-64", mlp, 16, 2, 10.0)]
    rows += [measure(cnn_name, cnn, rows, probes, 4.0) for rows in (6, 16) for probes in (1, 2)]
    publish("jcp", "JCP with parameter gradient: a loop over samples / one batch", rows)


if __name__ == "__main__":
    main()
