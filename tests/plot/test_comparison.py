"""``dc.compare``: the numbers are those of single solves, and what is left out says why."""

import numpy as np
import pandas as pd
import pytest
import torch

import deceptron as dc


@pytest.fixture(scope="module")
def heat():
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    generator = torch.Generator().manual_seed(0)
    x = problem.sample(3, generator=generator)
    y = problem.add_noise(problem.simulate(x), generator=generator)
    return problem, pair, x, y


def test_the_table_says_what_single_solves_say(heat):
    _, pair, x, y = heat
    compared = dc.compare(pair, y, truth=x, methods=["one-shot", "guarded", "lm"], max_iterations=4)
    frame = compared.frame()
    assert list(frame.index) == ["one-shot", "guarded", "lm, prior"]
    single = dc.solve(pair, y, max_iterations=4)
    error = (single.x - x).square().mean(1).sqrt().median()
    low, high = single.interval()
    assert frame.loc["guarded", "error"] == pytest.approx(float(error), rel=1e-5)
    inside = ((low <= x) & (x <= high)).double().mean()
    assert frame.loc["guarded", "coverage"] == pytest.approx(float(inside))
    assert frame.loc["guarded", "over_noise"] == pytest.approx(float(single.over_noise.median()))
    assert frame.loc["guarded", "evaluations"] == float(single.cost.evaluations.median())
    prior = pair.calibration.family
    regular = dc.solve(pair, y, method="lm", prior=prior, noise_std=0.01, max_iterations=4)
    torch.testing.assert_close(compared.solutions["lm, prior"].x, regular.x)
    text = repr(compared)
    assert "in 90% intervals" in text
    assert all(name in compared._repr_html_() for name in frame.index)


def test_without_truth_there_is_no_error(heat):
    _, pair, _, y = heat
    compared = dc.compare(pair, y, methods=["one-shot"])
    assert np.isnan(compared.frame().loc["one-shot", "error"])
    assert "RMSE" not in repr(compared)


def test_labels_with_settings_of_their_own(heat):
    problem, pair, _, y = heat
    plans = {"network": {"method": "one-shot"}, "physics": {"forward": problem}}
    compared = dc.compare(pair, y, methods=plans, history=True)
    assert list(compared.solutions) == ["network", "physics"]
    assert all(solution.history is not None for solution in compared.solutions.values())
    figure = compared.plot(rows=[2])
    for line, solution in zip(figure.axes[0].lines, compared.solutions.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), solution.x[2].numpy(), rtol=1e-6)


def test_no_method_is_lost_and_one_may_stand_alone(heat):
    _, pair, _, y = heat
    twice = ["lm", dc.methods.levenberg_marquardt(damping=1e-2)]
    with pytest.raises(dc.ConfigError, match="'lm, prior' comes twice: give each a label"):
        dc.compare(pair, y, methods=twice)
    for alone in ("one-shot", dc.methods.one_shot(), {"one-shot": "one-shot"}):
        assert list(dc.compare(pair, y, methods=alone).solutions) == ["one-shot"]


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray, list, lambda x: x[0]])
def test_truth_is_any_array_as_observations_are(heat, kind):
    _, pair, x, y = heat
    truth = kind(x[:1].numpy())
    compared = dc.compare(pair, y[:1], truth=truth, methods="one-shot")
    torch.testing.assert_close(compared.truth, x[:1])
    assert compared.solutions["one-shot"].plot(truth=truth).axes


def test_a_problem_without_a_pair_says_what_needs_one(heat):
    problem, _, x, y = heat
    compared = dc.compare(problem, y[:1], truth=x[:1], max_iterations=2)
    assert list(compared.solutions) == ["lm, prior"]
    assert "one-shot is left out: it needs a pair" in repr(compared)
    assert "guarded is left out" in compared._repr_html_()
    with pytest.raises(dc.ConfigError, match="one method or more"):
        dc.compare(problem, y, methods=["guarded"])


def test_mistakes_are_named(heat):
    _, pair, x, y = heat
    with pytest.raises(dc.ConfigError, match="pair or a problem; got int"):
        dc.compare(3, y)
    with pytest.raises(dc.ConfigError, match=r"what dc\.solve takes; got metods"):
        dc.compare(pair, y, metods=["lm"])
    with pytest.raises(dc.ShapeError, match="truth must have the shape"):
        dc.compare(pair, y, truth=x[:1], methods=["one-shot"])
    with pytest.raises(dc.ConfigError, match="at most 32 rows to draw; got 40"):
        dc.compare(pair, y, methods=["one-shot"]).plot(rows=[0] * 40)


def test_fields_have_a_column_a_method():
    shape = (1, 6, 6)
    pair = dc.Deceptron(torch.nn.Identity(), torch.nn.Identity(), x_shape=shape, y_shape=shape)
    y = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    figure = dc.compare(pair, y, truth=y, methods=["one-shot", "gd"]).plot(rows=1)
    titles = [axis.get_title() for axis in figure.axes if axis.images]
    assert titles == ["truth", "one-shot", "gd"]
