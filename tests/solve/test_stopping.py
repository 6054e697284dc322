"""Each stopping rule, its reason, its units, and what the history and callback show of it."""

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.laws.calibration import Calibration
from tests.solve.linear_case import Case
from tests.solve.pairs import TestPair, invertible_pair


def observations(rows: int = 8, seed: int = 0):
    pair = invertible_pair()
    generator = torch.Generator().manual_seed(seed)
    return pair, pair.f(torch.randn(rows, 6, dtype=torch.float64, generator=generator))


@pytest.mark.parametrize("method", ["d-ipg", "gd", "gn", "lm", "l-bfgs"])
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"tolerance": 0.05}, Reason.TOLERANCE),
        ({"relative_tolerance": 0.30}, Reason.RELATIVE_TOLERANCE),
        ({"noise_std": 0.05}, Reason.DISCREPANCY),
        ({"gradient_tolerance": 1e-2}, Reason.GRADIENT),
    ],
)
def test_every_rule_fires_and_is_named(method, rule, reason):
    pair, y = observations()
    solution = dc.solve(pair, y, method=method, **rule)
    assert solution.reason.tolist() == [reason] * len(y)
    assert bool(solution.converged.all())
    if "tolerance" in rule:
        assert bool((solution.residual <= 0.05).all())
    if "relative_tolerance" in rule:
        assert bool((solution.relative_residual <= 0.30).all())
    if "noise_std" in rule:
        # The 99% quantile of pure noise: 1 + 2.326 / sqrt(2 m).
        assert bool((solution.residual <= (1 + 2.326 / (2 * y[0].numel()) ** 0.5) * 0.05).all())
    actual = (pair.f(solution.x) - y).square().mean(1).sqrt()
    torch.testing.assert_close(solution.residual, actual, atol=1e-12, rtol=0)


def test_a_rule_is_not_met_a_step_before_it_fires():
    pair, y = observations()
    solution = dc.solve(pair, y, method="d-ipg", tolerance=0.05)
    history = solution.history
    for row in range(len(y)):
        last = int(solution.iterations[row]) - 1
        assert float(history.residual[last, row]) <= 0.05
        assert last == 0 or float(history.residual[last - 1, row]) > 0.05


def test_no_iterations_is_a_step_limit_for_all_but_direct_methods():
    pair, y = observations()
    assert set(dc.solve(pair, y, method="d-ipg", max_iterations=0).reason.tolist()) == {
        Reason.STEP_LIMIT
    }
    direct = dc.solve(pair, y, method="one-shot")
    assert set(direct.reason.tolist()) == {Reason.DIRECT}
    missed = dc.solve(invertible_pair(bias=0.1), y, method="one-shot", tolerance=1e-3)
    assert set(missed.reason.tolist()) == {Reason.STEP_LIMIT}


def test_the_step_limit_is_a_status_of_its_own():
    pair, y = observations()
    solution = dc.solve(pair, y, method="d-ipg", tolerance=1e-9, max_iterations=3)
    assert solution.status.tolist() == [dc.Status.STEP_LIMIT] * len(y)
    assert solution.iterations.tolist() == [3] * len(y)


def test_observations_are_in_physical_units_and_residuals_in_normalised_ones():
    pair, y = observations()
    scaler = dc.Scaler(
        torch.linspace(-1, 1, 6, dtype=torch.float64), torch.linspace(1, 9, 6, dtype=torch.float64)
    )
    plain = dc.solve(pair, y, method="d-ipg", max_iterations=4)
    scaled_pair = TestPair(pair.forward_map, pair.reverse_map)
    scaled_pair.scaler = scaler
    scaled = dc.solve(scaled_pair, scaler.denormalise(y), method="d-ipg", max_iterations=4)
    torch.testing.assert_close(scaled.x, plain.x, atol=1e-12, rtol=0)
    torch.testing.assert_close(scaled.residual, plain.residual, atol=1e-12, rtol=0)
    # forward= speaks physical units, like a simulator does.
    through = dc.solve(
        scaled_pair,
        scaler.denormalise(y),
        method="d-ipg",
        forward=lambda x: scaler.denormalise(pair.f(x)),
        max_iterations=4,
    )
    torch.testing.assert_close(through.x, plain.x, atol=1e-12, rtol=0)


def test_the_noise_level_is_converted_to_normalised_units():
    pair, y = observations()
    scaled_pair = TestPair(pair.forward_map, pair.reverse_map)
    scaled_pair.scaler = dc.Scaler(0.0, torch.full((6,), 10.0, dtype=torch.float64))
    solution = dc.solve(scaled_pair, 10 * y, method="d-ipg", noise_std=0.5, tau=1.0)
    assert solution.reason.tolist() == [Reason.DISCREPANCY] * len(y)
    assert bool((solution.residual <= 0.05).all())
    assert float(solution.residual.max()) > 0.005  # and no further than it had to


def test_the_noise_level_includes_the_error_of_the_surrogate():
    pair, y = observations()
    known = TestPair(pair.forward_map, pair.reverse_map)
    known.calibration = Calibration(surrogate_error=0.12)
    loose = dc.solve(known, y, method="d-ipg", noise_std=0.05, tau=1.0)
    assert float(loose.residual.max()) <= 0.13  # hypot(0.05, 0.12)
    assert float(loose.residual.max()) > 0.05
    exact = dc.solve(known, y, method="d-ipg", noise_std=0.05, tau=1.0, forward=pair.f)
    assert float(exact.residual.max()) <= 0.05


@pytest.mark.parametrize(
    ("error", "reason"), [(0.0, Reason.DISCREPANCY), (1.0, Reason.SURROGATE_LIMIT)]
)
def test_a_row_that_is_as_close_as_was_asked_does_not_blame_the_surrogate(error, reason):
    """Twice the noise is left where three times were allowed; of one that errs, four times."""
    left = 2.0 if error == 0 else 4.0
    pair = TestPair(torch.nn.Identity(), torch.nn.Identity())
    pair.calibration = Calibration(surrogate_error=error)
    pair.bounds = (0.0, 10.0)
    y = torch.full((2, 8), -left, dtype=torch.float64)
    solution = dc.solve(pair, y, method="one-shot", noise_std=1.0, tau=3.0)
    torch.testing.assert_close(solution.over_noise, torch.full((2,), left, dtype=torch.float64))
    assert [Reason(k) for k in solution.reason.tolist()] == [reason] * 2
    assert bool(solution.converged.all()) == (error == 0)
    assert not bool(solution.explained.any())


def test_forward_replaces_the_surrogate_in_the_objective():
    pair, y = observations()
    solution = dc.solve(pair, y, forward=lambda x: pair.f(x) + 0.25, method="gn", tolerance=1e-9)
    torch.testing.assert_close(pair.f(solution.x) + 0.25, y, atol=1e-8, rtol=0)


def test_the_callback_sees_every_pass_and_can_stop_the_run():
    pair, y = observations()
    passes = []

    def watch(number, state):
        passes.append((number, state.iterations.tolist(), state.rows.tolist()))
        return number == 2

    solution = dc.solve(pair, y, method="d-ipg", tolerance=1e-9, callback=watch)
    assert [number for number, _, _ in passes] == [0, 1, 2]
    assert passes[2][1] == [2] * len(y)
    assert passes[0][2] == list(range(len(y)))
    assert solution.status.tolist() == [dc.Status.INTERRUPTED] * len(y)
    assert solution.reason.tolist() == [Reason.CALLBACK] * len(y)


def test_the_callback_sees_rows_leave():
    pair, y = observations()
    left = {}

    def watch(number, state):
        for row, reason in zip(state.rows.tolist(), state.reason.tolist(), strict=True):
            assert row not in left, "a row that is done must not come back"
            if reason >= 0:
                left[row] = reason

    solution = dc.solve(pair, y, method="d-ipg", tolerance=0.05, callback=watch)
    assert left == dict(enumerate(solution.reason.tolist()))


def test_the_callback_of_a_direct_method_is_told_once():
    pair, y = observations()
    told = []
    solution = dc.solve(pair, y, method="one-shot", callback=lambda *seen: told.append(seen))
    ((number, snapshot),) = told
    assert number == 0
    assert snapshot.rows.tolist() == list(range(len(y)))
    assert snapshot.reason.tolist() == [Reason.DIRECT] * len(y)
    assert snapshot.evaluations.tolist() == solution.cost.evaluations.tolist() == [2] * len(y)
    assert torch.equal(snapshot.x, solution.x)
    assert solution.history.residual.shape == (0, len(y))


def test_there_is_no_angle_to_a_gradient_that_nobody_asked_for():
    case = Case(6, 9)
    history = dc.solve(case.pair, case.observe(4)[1]).history
    assert bool(history.accepted.any())
    assert bool(history.cosine.isnan().all())
    assert bool((history.step_norm[history.accepted] > 0).all())


def test_history_tells_what_happened():
    pair, y = observations()
    solution = dc.solve(pair, y, method="d-ipg", max_iterations=5)
    history = solution.history
    assert history.residual.shape == (5, len(y))
    assert history.rule_names(0) == ["published"] * 5
    assert bool(history.accepted.all())
    assert bool((history.cosine > 0).all() & (history.cosine <= 1 + 1e-12).all())
    torch.testing.assert_close(history.residual[-1], solution.residual)
    frame = history.frame()
    assert len(frame) == 5 * len(y)
    assert set(frame["rule"]) == {"published"}


def test_a_stalled_row_shows_its_rejected_trials():
    pair = invertible_pair()
    y = pair.f(torch.randn(2, 6, dtype=torch.float64))
    wrong = TestPair(pair.forward_map, torch.nn.Identity())
    wrong.g = lambda rows: -50 * rows
    solution = dc.solve(wrong, y, method="d-ipg")
    assert solution.reason.tolist() == [Reason.NO_ACCEPTED_TRIAL] * 2
    assert solution.history.accepted.tolist() == [[False, False]]
    assert solution.history.trials.tolist() == [[9, 9]]  # a full step and eight backtracks
    assert solution.history.step_size.tolist() == [[2.0**-8, 2.0**-8]]


def test_history_can_be_switched_off():
    pair, y = observations()
    assert dc.solve(pair, y, method="d-ipg", max_iterations=2, history=False).history is None
