"""The batched loop against one row at a time, and against the bare cost of its networks."""

from __future__ import annotations

import torch

import deceptron as dc
from benchmarks.common import publish, seconds

ROWS = 1024
ALONE = 64


def mlp_pair() -> dc.Deceptron:
    """The paper's heat-1d architecture, fitted well enough that D-IPG takes full steps."""
    torch.manual_seed(0)
    pair = dc.maps.mlp_pair(64)
    with torch.no_grad():
        pair.f.layers[0].weight.copy_(torch.eye(64) + 0.05 * torch.randn(64, 64))
    optimiser = torch.optim.Adam(pair.g.parameters(), 1e-3)
    for _ in range(1000):
        x = torch.rand(256, 64)
        loss = (pair.g(pair.f(x).detach()) - x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return dc.Deceptron(pair.f, pair.g, bounds=(0.0, 1.0)).eval()


def bare(pair: dc.Deceptron, y: torch.Tensor, passes: int) -> None:
    """The same network evaluations and nothing else: f with its graph, g, and one vjp a pass."""
    target = pair.scaler.normalise(y)
    x = torch.zeros(len(y), *pair.x_shape)
    for _ in range(passes):
        leaf = x.detach().requires_grad_()
        torch.autograd.grad(pair.f(leaf), leaf, target)
        with torch.no_grad():
            pair.g(target)
    pair.f(x.requires_grad_())  # the start is evaluated too


def compare(
    label: str, pair: dc.Deceptron, y: torch.Tensor, *, iterations: int, repeats: int
) -> dict[str, object]:
    def solve(rows: torch.Tensor, history: bool = True) -> dc.Solution:
        return dc.solve(pair, rows, method="d-ipg", max_iterations=iterations, history=history)

    # Rows that backtrack make more trials than others; the bare cost is that of their mean.
    passes = round(float(solve(y).cost.f.double().mean())) - 1
    whole, networks, plain = [], [], []
    for _ in range(3):  # alternate, so that a busy moment of the machine hits all alike
        whole.append(seconds(lambda: solve(y), repeats=repeats, warmups=0))
        networks.append(seconds(lambda: bare(pair, y, passes), repeats=repeats, warmups=0))
        plain.append(seconds(lambda: solve(y, history=False), repeats=repeats, warmups=0))
    one_by_one = seconds(lambda: [solve(row) for row in y[:ALONE].split(1)], repeats=1, warmups=0)
    return {
        "pair": label,
        "passes": passes,
        "one at a time / batch": one_by_one * ROWS / ALONE / min(whole),
        "solve / networks": min(whole) / min(networks),
        "without history": min(plain) / min(networks),
    }


def main() -> None:
    pair = mlp_pair()
    y = pair.f(torch.rand(ROWS, 64)).detach()
    rows = [compare("MLP-64 (paper's heat-1d)", pair, y, iterations=8, repeats=15)]
    problem = dc.problems.get("heat-3d")
    x = problem.sample(ROWS, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = problem.simulate(x)
    rows.append(compare("heat-3d, as shipped", dc.load("heat-3d"), y, iterations=3, repeats=1))
    title = f"D-IPG, {ROWS} rows; targets: >= 50 (MLP) and <= 1.5"
    publish("solve", title, rows)


if __name__ == "__main__":
    main()
