"""The batched loop against one row at a time, and against the bare cost of its networks."""

from __future__ import annotations

import torch
from torch import nn

import deceptron as dc
from benchmarks.common import publish, seconds
from deceptron.solve.methods import d_ipg

ROWS = 1024


class MLPPair(nn.Module):
    """The paper's heat-1d architecture, fitted well enough that D-IPG takes full steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.forward_map = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.1))
        self.reverse_map = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.1), nn.Linear(128, 64))
        with torch.no_grad():
            self.forward_map[0].weight.copy_(torch.eye(64) + 0.05 * torch.randn(64, 64))
        optimiser = torch.optim.Adam(self.reverse_map.parameters(), 1e-3)
        for _ in range(1000):
            x = torch.rand(256, 64)
            loss = (self.g(self.f(x).detach()) - x).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def f(self, x):
        return self.forward_map(x)

    def g(self, y):
        return self.reverse_map(y)


def bare(pair: MLPPair, y: torch.Tensor, iterations: int) -> None:
    """What the networks alone cost: f with its graph, one g and one vjp an iteration."""
    x, r = torch.zeros_like(y), y / y.shape[1]
    for _ in range(iterations):
        with torch.no_grad():
            pair.g(y)
        leaf = x.detach().requires_grad_()
        torch.autograd.grad(pair.f(leaf), leaf, r)


def main() -> None:
    pair = MLPPair()
    y = pair.f(torch.rand(ROWS, 64)).detach()
    iterations = 8
    settings = {"method": d_ipg(), "bounds": (0.0, 1.0), "max_iterations": iterations}

    def together() -> dc.Solution:
        return dc.solve(pair, y, **settings)

    def alone() -> None:
        for row in y[:64].split(1):
            dc.solve(pair, row, **settings)

    solution = together()
    passes = int(solution.cost.f.max()) - 1
    batch = seconds(together, repeats=15, warmups=3)
    without_history = seconds(lambda: dc.solve(pair, y, history=False, **settings), repeats=15)
    single = seconds(alone, repeats=3) * ROWS / 64
    networks = seconds(lambda: bare(pair, y, passes), repeats=15, warmups=3)
    rows: list[dict[str, object]] = [
        {
            "what": f"{ROWS} rows: one at a time / one batch",
            "ratio": single / batch,
            "target": ">= 50",
        },
        {"what": "solve / its network evaluations", "ratio": batch / networks, "target": "<= 1.5"},
        {
            "what": "the same without history",
            "ratio": without_history / networks,
            "target": "<= 1.5",
        },
    ]
    publish("solve", f"D-IPG, MLP-64 pair, {iterations} iterations, {passes} passes", rows)


if __name__ == "__main__":
    main()
