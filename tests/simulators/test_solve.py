"""Solving on a simulator from elsewhere: the answers of the torch version, and an honest bill."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deceptron as dc
from deceptron.simulators import wrap
from tests.simulators import physics
from tests.simulators.physics import in_torch, rows


class RoughPair:
    """The physics with an error, and its linear inverse about the middle of the box."""

    def f(self, x: Tensor) -> Tensor:
        return in_torch(x) + 0.02 * torch.sin(3 * x.sum(1, keepdim=True))

    def g(self, y: Tensor) -> Tensor:
        middle = torch.full((1, 3), 0.5, dtype=torch.float64)
        jacobian = torch.as_tensor(physics.jvp(np.full((3, 3), 0.5), np.eye(3))).T
        inverse = torch.linalg.pinv(jacobian)
        return (middle + (y.double() - in_torch(middle)) @ inverse.T).to(y)


@pytest.mark.parametrize("method", ["guarded", "d-ipg", "gd", "gn", "lm", "l-bfgs"])
@pytest.mark.parametrize("derivatives", ["vjp", "both"])
def test_an_adjoint_gives_the_answers_of_the_torch_version(method: str, derivatives: str) -> None:
    arguments: dict[str, Any] = {"vjp": physics.vjp}
    if derivatives == "both":
        arguments["jvp"] = physics.jvp
    simulator = wrap(physics.value, **arguments)
    y = in_torch(0.2 + 0.6 * rows(6))
    settings: dict[str, Any] = {
        "method": method,
        "bounds": (0.0, 1.0),
        "max_iterations": 8,
        "tolerance": 1e-6,
    }
    expected = dc.solve(RoughPair(), y, forward=in_torch, **settings)
    found = dc.solve(RoughPair(), y, forward=simulator, **settings)
    torch.testing.assert_close(found.x, expected.x, atol=1e-5, rtol=0)
    assert found.status.tolist() == expected.status.tolist()
    # Billed rows may be fewer in truth: all start at one point, which is simulated once.
    assert simulator.calls.vjps > 0
    assert 0.8 * int(found.cost.f.sum()) < simulator.calls.values
    assert simulator.calls.failed == 0


def test_a_problem_of_values_alone_is_solved_without_derivatives() -> None:
    simulator = wrap(physics.fails_above, batched=False)
    problem = dc.problems.define(
        "values-only",
        simulate=simulator,
        sample=lambda count, generator: 0.8 * torch.rand(count, 3, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=0.01,
    )
    x = 0.1 + 0.6 * rows(5)
    y = in_torch(x)
    solution = dc.solve(RoughPair(), y, forward=problem.simulate, bounds=(0.0, 1.0), tolerance=1e-3)
    start = (RoughPair().g(y).clamp(0, 1) - x).square().mean()
    assert float((solution.x - x).square().mean()) < 0.1 * float(start)
    assert simulator.calls.values == int(solution.cost.f.sum()) + 1  # one to learn the shapes
    assert (simulator.calls.vjps, simulator.calls.jvps) == (0, 0)


def test_rows_whose_simulator_fails_are_alone_in_it() -> None:
    simulator = wrap(
        lambda x: np.where(x[:, :1] > 0.999, np.nan, physics.value(x)), physics.vjp, physics.jvp
    )
    y = in_torch(0.2 + 0.6 * rows(4))
    alone = dc.solve(RoughPair(), y, forward=simulator, method="lm", bounds=(0.0, 1.0))
    start = RoughPair().g(y).clamp(0, 1)
    start[2, 0] = 1.0
    with pytest.warns(RuntimeWarning, match="1 of 4 rows failed"):
        found = dc.solve(
            RoughPair(), y, forward=simulator, method="lm", bounds=(0.0, 1.0), x0=start
        )
    assert found.status[2] == dc.Status.NONFINITE
    others = [0, 1, 3]
    torch.testing.assert_close(found.x[others], alone.x[others], atol=1e-3, rtol=0)
