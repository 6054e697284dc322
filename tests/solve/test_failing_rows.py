"""A simulator that has no value for some rows costs those rows, not the others."""

import sys

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.core import Reason, SimulatorError, Status
from tests.solve.pairs import invertible_pair


def rows(count=9):
    return torch.rand(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def raising(pair, error, where):
    """The pair's f, which raises if any row of a batch is at a place it cannot compute."""

    def forward(x):
        if bool(where(x).any()):
            raise error
        return pair.f(x)

    return forward


@pytest.mark.parametrize(
    "error",
    [torch.linalg.LinAlgError("singular"), ZeroDivisionError("0"), FloatingPointError("overflow")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("differentiable", [True, False])
def test_a_row_without_a_value_is_alone_in_that(error, differentiable):
    pair = invertible_pair(bias=0.02)
    y = pair.f(rows()).detach()
    lost = 4
    at = pair.g(y)[lost]
    clear = (pair.g(y) - at).norm(dim=1) > 1e-6
    forward = raising(pair, error, lambda x: (x - at).norm(dim=1) < 1e-9)
    settings = {"forward": forward, "differentiable": differentiable, "noise_std": 1e-3}
    found = dc.solve(pair, y, **settings)
    assert Status(int(found.status[lost])) == Status.NONFINITE
    assert Reason(int(found.reason[lost])) == Reason.NONFINITE_START
    others = dc.solve(pair, y[clear], forward=pair.f, noise_std=1e-3, differentiable=differentiable)
    torch.testing.assert_close(found.x[clear], others.x)
    assert int(clear.sum()) == len(y) - 1


def test_a_trial_without_a_value_is_a_trial_that_failed():
    """The start is fine; a full step is not, and a shorter one is taken."""
    pair = invertible_pair()
    y = pair.f(rows(3)).detach()
    start = torch.zeros_like(y)
    forward = raising(pair, torch.linalg.LinAlgError("singular"), lambda x: x.norm(dim=1) > 0.5)
    found = dc.solve(pair, y, method="gn", forward=forward, x0=start, max_iterations=3)
    assert bool((found.residual < dc.solve(pair, y, x0=start, max_iterations=0).residual).all())
    assert bool((found.x.norm(dim=1) <= 0.5).all())


def test_an_error_at_every_row_is_raised():
    pair = invertible_pair()
    y = pair.f(rows()).detach()
    forward = raising(pair, ZeroDivisionError("always"), lambda x: x[:, 0] == x[:, 0])
    with pytest.raises(SimulatorError, match="always"):
        dc.solve(pair, y, forward=forward, noise_std=1e-3)


def test_what_is_not_numerical_is_raised():
    pair = invertible_pair()
    y = pair.f(rows()).detach()
    forward = raising(pair, KeyError("viscosity"), lambda x: x[:, 0] == x[0, 0])
    with pytest.raises(SimulatorError, match="viscosity"):
        dc.solve(pair, y, forward=forward, noise_std=1e-3)


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_start_without_a_value_is_moved_towards_the_family(differentiable):
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    draw = torch.Generator().manual_seed(4)
    y = problem.add_noise(problem.simulate(problem.sample(6, generator=draw)), generator=draw)
    lost, start = 2, dc.solve(pair, y, method="one-shot").x

    def fragile(x):
        bad = (x - start[lost]).norm(dim=1) < 1e-6
        return torch.where(bad[:, None], torch.nan, problem.simulate(x))

    settings = {"differentiable": differentiable}
    found = dc.solve(pair, y, forward=fragile, **settings)
    plain = dc.solve(pair, y, forward=problem, **settings)
    assert bool(found.explained.all())
    assert Status(int(found.status[lost])) == Status.CONVERGED
    assert bool(found.std.isfinite().all())
    assert int(found.cost.forward[lost]) > int(plain.cost.forward[lost])
    assert int(found.iterations[lost]) > 0
    assert found.history.accepted.sum(0).tolist() == found.iterations.tolist()
    others = [row for row in range(6) if row != lost]
    torch.testing.assert_close(found.x[others], plain.x[others])
    assert found.cost.forward[others].tolist() == plain.cost.forward[others].tolist()


def test_a_row_for_which_nothing_can_be_simulated_stays_where_it_was():
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    draw = torch.Generator().manual_seed(4)
    y = problem.simulate(problem.sample(3, generator=draw))

    def broken(x):
        return torch.where(torch.ones_like(x, dtype=torch.bool), torch.nan, problem.simulate(x))

    found = dc.solve(pair, y, forward=broken)
    assert bool((found.reason == Reason.NONFINITE_START).all())
    torch.testing.assert_close(found.x, dc.solve(pair, y, method="one-shot").x)


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_row_alone_whose_start_raises_is_moved_as_among_others(differentiable):
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    draw = torch.Generator().manual_seed(4)
    y = problem.add_noise(problem.simulate(problem.sample(4, generator=draw)), generator=draw)
    lost, start = 2, dc.solve(pair, y, method="one-shot").x

    def fragile(x):
        if bool(((x - start[lost]).norm(dim=1) < 1e-3).any()):
            raise ZeroDivisionError("no value here")
        return problem.simulate(x)

    settings = {"forward": fragile, "differentiable": differentiable}
    alone, together = dc.solve(pair, y[lost], **settings), dc.solve(pair, y, **settings)[[lost]]
    assert bool(alone.explained.all())
    torch.testing.assert_close(alone.x, together.x, rtol=0, atol=1e-3)
    assert alone.reason.tolist() == together.reason.tolist()


def without_a_value_at(problem, bad):
    """A simulator that raises at one point."""

    def forward(x):
        if bool(((x - bad).norm(dim=1) < 1e-4).any()):
            raise ZeroDivisionError("no value here")
        return problem.simulate(x)

    return forward


def test_a_row_that_is_a_part_by_itself_fails_alone(monkeypatch):
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 3)
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    y = problem.dataset(seed=7).test.y[:7]
    forward = without_a_value_at(problem, dc.solve(pair, y[6], method="one-shot").x[0])
    found = dc.solve(pair, y, forward=forward, method="one-shot")
    assert found.reason.tolist().count(int(Reason.NONFINITE_START)) == 1
    with pytest.raises(SimulatorError, match="no value here"):
        dc.solve(pair, y[6], forward=forward, method="one-shot")


@pytest.mark.parametrize("lost", [0, 4])
def test_a_row_of_a_file_fails_alone(tmp_path, lost):
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    y = problem.dataset(seed=7).test.y[:5]
    forward = without_a_value_at(problem, dc.solve(pair, y[lost], method="one-shot").x[0])
    np.save(tmp_path / "y.npy", y.numpy())
    settings = {"forward": forward, "method": "one-shot", "chunk_rows": 2}
    dc.solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npz", **settings)
    reason = np.load(tmp_path / "x.npz")["reason"].tolist()
    assert [row for row in range(5) if reason[row] == Reason.NONFINITE_START] == [lost]


def test_a_callback_that_ends_the_run_ends_new_beginnings_too():
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    y = problem.dataset(seed=7).test.y[:2]
    lost, calls = dc.solve(pair, y[0], method="one-shot").x[0], []

    def fragile(x):
        calls.append(len(x))
        bad = (x - lost).norm(dim=1) < 1e-6
        return torch.where(bad[:, None], torch.nan, problem.simulate(x))

    dc.solve(pair, y, forward=fragile, callback=lambda number, snapshot: True)
    assert calls == [2]
