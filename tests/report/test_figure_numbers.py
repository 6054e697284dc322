"""What the figures compute on the way, by hand; and the one look of each method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure as Canvas
from PIL import Image

from deceptron.plot.files import write_figure
from deceptron.plot.reconstructions import Example, plot_reconstructions
from deceptron.report.figures.family import DIPG, PLAIN, Family, Series
from deceptron.report.figures.fields import reconstructions
from deceptron.report.figures.matrices import ratio_to_one_shot
from deceptron.report.figures.sheet import duration, log_scale, plain
from deceptron.report.query import Query
from deceptron.study.entries import VERMILION
from deceptron.study.names import STEP_SIZE_METHODS
from deceptron.study.records import CELLS, INSTANCES, MODELS, STEPS, Records

GD, ONE_SHOT, WIENER = (Series(name, name, "black") for name in ("gd", "one-shot", "wiener"))
AXES = ["set", "model", "seed", "method"]


def table(columns, rows):
    return pd.DataFrame(rows, columns=list(columns))


def made(instances, steps=()):
    """Records of heat-3d from short rows; what a row does not say is NaN."""
    axes = {"problem": "heat-3d", "set": "test", "model": "standard", "seed": 7}
    return Records(
        Path(),
        {"cells": [{**axes, "method": row["method"]} for row in instances]},
        {},
        table(MODELS, []),
        table(CELLS, []),
        table(INSTANCES, [{**axes, **row} for row in instances]),
        table(STEPS, [{**axes, **row} for row in steps]),
        (),
    )


def path(method, instance, residuals, seconds=1.0):
    return [
        {
            "method": method,
            "instance": instance,
            "step": t,
            "residual": r,
            "seconds": seconds * t,
            "evaluations": 2.0 + 3 * t,
        }
        for t, r in enumerate(residuals)
    ]


@pytest.fixture
def family():
    """d-ipg solves at step 2 or not at all; one-shot has a residual of 0.2 or 0.5 of d-ipg's first.

    gd was only run on the first instance.
    """
    instances = [
        {"method": "d-ipg", "instance": 0, "iterations": 3, "residual": 1.0, "residual_start": 10},
        {"method": "d-ipg", "instance": 1, "iterations": 1, "residual": 8.0, "residual_start": 10},
        {"method": "one-shot", "instance": 0, "iterations": 0, "residual": 2.0},
        {"method": "one-shot", "instance": 1, "iterations": 0, "residual": 5.0},
        {"method": "gd", "instance": 0, "iterations": 1, "residual": 3.0},
    ]
    for row in instances:
        row |= {"relative_residual": 1.0, "seconds": 0.5, "evaluations": 2, "rmse": 0.1}
    steps = [
        *path("d-ipg", 0, [10, 5, 3, 1]),
        *path("d-ipg", 1, [10, 8]),
        *path("one-shot", 0, [2]),
        *path("one-shot", 1, [5]),
        *path("gd", 0, [10, 3]),
    ]
    return Family(Query(made(instances, steps)), "standard")


def test_paths_pool_seeds_and_end_in_nan(family):
    paths = family.trials("heat-3d", DIPG).paths("residual")
    np.testing.assert_equal(paths.to_numpy(), [[10, 5, 3, 1], [10, 8, np.nan, np.nan]])
    assert paths.index.tolist() == [(7, 0), (7, 1)]
    assert family.trials("heat-3d", PLAIN).paths("residual").empty


def test_ratio_is_of_means_over_shared_instances():
    errors = {"one-shot": [1.0, 3.0, 100.0], "gd": [2.0, 4.0]}
    rows = [
        {"method": method, "instance": k, "rmse": error}
        for method, values in errors.items()
        for k, error in enumerate(values)
    ]
    found = ratio_to_one_shot(Family(Query(made(rows)), "standard"), "heat-3d", GD, "test")
    assert found.value == pytest.approx(6 / 4)
    # Of the four resamples of two instances the ratios are 2, 1.5 (twice) and 4/3.
    assert (found.low, found.high) == pytest.approx((4 / 3, 2))
    assert ratio_to_one_shot(Family(Query(made(rows)), "standard"), "heat-2d", GD, "test") is None


def test_every_method_has_one_look_in_the_order_of_the_study(query):
    family = Family(query, "standard")
    named = [method for method in query.methods if method not in STEP_SIZE_METHODS]
    assert [series.method for series in family.series if series.jcp] == named
    assert [series.label for series in family.series if not series.jcp] == ["d-ipg without JCP"]
    looks = {(series.color, series.dashes, series.width) for series in family.series}
    marks = {(series.color, series.marker, series.filled) for series in family.series}
    assert len(looks) == len(marks) == len(family.series)
    assert family.pick("d-ipg") == (DIPG,)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (12.3, "12 s"),
        (1.26, "1.3 s"),
        (0.9999, "1.0 s"),
        (0.126, "126 ms"),
        (0.00349, "3.5 ms"),
        (2e-5, "20 µs"),
        (float("nan"), "–"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(1000, "1000"), (0.003, "0.003"), (1e-4, "$10^{-4}$"), (3e5, r"$3\times10^{5}$")],
)
def test_ticks_are_plain_numbers(value, words):
    assert plain(value) == words


@pytest.mark.parametrize("high", [1.01, 2.0, 30.0, 1e3, 1e9])
def test_a_logarithmic_axis_has_a_few_ticks(high):
    axes = Canvas().subplots()
    axes.set_xlim(1.0, high)
    log_scale(axes, "x")
    low, top = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= top]
    assert 1 <= len(ticks) <= 7
    assert low <= 1.0
    assert top >= high


def test_a_written_picture_keeps_its_rare_colours(tmp_path):
    figure = Canvas(figsize=(3, 3))
    axes = figure.subplots()
    axes.imshow(np.linspace(0, 1, 10_000).reshape(100, 100), cmap="viridis", alpha=0.9)
    axes.plot(50, 50, "s", color=VERMILION, markersize=4)
    pixels = np.asarray(Image.open(write_figure(figure, tmp_path / "a.png")).convert("RGB"))
    wanted = np.array([int(VERMILION[k : k + 2], 16) for k in (1, 3, 5)])
    assert np.abs(pixels.astype(int) - wanted).max(axis=2).min() < 20


def test_reconstructions_are_of_one_instance(records):
    """A method that lacks the first seed has no answer to the instance that the others solve."""
    lost = records.instances["method"].eq("d-ipg") & records.instances["seed"].eq(7)
    query = Query(replace(records, instances=records.instances[~lost]))
    family = Family(query, "standard")
    assert family.trials("heat-3d", DIPG).seeds == [8]
    shown = {axis.get_title().partition("\n")[0] for axis in reconstructions(family).figure.axes}
    assert {"one-shot", "lm"} <= shown
    assert "d-ipg" not in shown


def test_compact_reconstructions_say_what_has_no_record():
    x = torch.rand(1, 4, 4)
    line = torch.rand(5)
    figure = plot_reconstructions(
        [
            Example("plane", x, x, {"d-ipg": (x, 0.25)}),
            Example("line", line, line, {"d-ipg": (line, 0.5), "gn": (line, 1.0)}),
        ],
        ["d-ipg", "gn"],
        width=4.0,
        font=6.0,
    )
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[2:4] == ["d-ipg\n0.25", "gn\nno record"]
    assert titles[6:8] == ["d-ipg\n0.5", "gn\n1"]
