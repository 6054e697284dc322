"""The result as people read it: repr, frame, and the error that raise_if_failed makes."""

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from tests.solve.pairs import invertible_pair


def mixed() -> dc.Solution:
    pair = invertible_pair()
    generator = torch.Generator().manual_seed(0)
    y = pair.f(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    y[2] = torch.inf
    y[4] = torch.nan
    return dc.solve(pair, y, tolerance=0.05)


def test_repr_is_short_and_counts_the_outcomes():
    text = repr(mixed())
    assert "4 converged, 2 nonfinite" in text
    assert "noise not known" in text
    assert len(text) < 200


def test_frame_has_a_line_per_instance():
    solution = mixed()
    frame = solution.frame()
    assert len(frame) == 6
    failed = [row in (2, 4) for row in range(6)]
    assert frame["status"].tolist() == ["NONFINITE" if bad else "CONVERGED" for bad in failed]
    assert frame.loc[2, "reason"] == "NONFINITE_OBSERVATION"
    assert frame.loc[4, "reason"] == "NO_DATA"
    assert frame["over_noise"].isna().all()
    assert not frame["explained"].any()
    assert "trust" not in frame  # the pair has no calibration
    assert frame["f"].tolist() == solution.cost.f.tolist()
    assert (frame["iterations"] == solution.iterations.numpy()).all()


def test_raise_if_failed_names_rows_and_advice():
    with pytest.raises(
        dc.SolveFailed, match=r"2 of 6 rows.*\n.*NONFINITE \(2; rows 2, 4\): .*Check"
    ):
        mixed().raise_if_failed()
    pair = invertible_pair()
    good = dc.solve(pair, torch.zeros(2, 6, dtype=torch.float64), tolerance=0.05)
    assert good.raise_if_failed() is good


def test_every_status_has_advice_and_every_reason_a_status():
    for status in dc.Status:
        assert status.advice.endswith(".")
    assert {reason.status for reason in Reason} == set(dc.Status)
    assert len({reason.words for reason in Reason}) == len(Reason)


def test_rows_without_a_prediction_are_not_explained_and_say_nothing_of_the_noise():
    pair = invertible_pair()
    y = torch.zeros(4, 6, dtype=torch.float64)
    y[3] = torch.nan
    solution = dc.solve(pair, y, noise_std=0.01)
    assert "75% explained to the noise" in repr(solution)
    assert "noise not known" not in repr(solution[3:])
    assert "no row has a prediction" in repr(solution[3:])


def test_repr_says_what_share_is_explained_to_the_noise():
    """By the measurement noise alone: every row stops, three are explained."""
    pair = invertible_pair()
    y = torch.zeros(4, 6, dtype=torch.float64)
    solution = dc.solve(pair, y, method="gd", x0=y + 0.001, noise_std=0.1, max_iterations=0)
    assert "100% explained to the noise" in repr(solution)
    x0 = y.clone()
    x0[3] = 1.0
    solution = dc.solve(pair, y, method="gd", x0=x0, noise_std=0.1, max_iterations=0)
    assert solution.explained.tolist() == [True] * 3 + [False]
    assert "75% explained to the noise, median residual 0 times the noise" in repr(solution)
    expected = (pair.f(x0) / 0.1).square().mean(1).sqrt()
    torch.testing.assert_close(solution.over_noise, expected)
    assert len(solution) == 4


def test_evaluations_counts_all_kinds_alike():
    cost = mixed().cost
    assert (cost.evaluations == cost.f + cost.g + cost.jvp + cost.vjp).all()


def test_a_jvp_of_g_is_charged_to_g_and_not_to_the_simulator():
    pair = invertible_pair()
    y = torch.full((3, 6), 0.4, dtype=torch.float64)
    cost = dc.solve(pair, y, method="d-ipg-tangent", tolerance=1e-8).cost
    assert cost.jvp.tolist() == [0] * 3
    assert cost.g.tolist() == cost.vjp.tolist()  # one of each at every point but the last
    assert cost.forward.tolist() == (cost.f + cost.vjp).tolist()
