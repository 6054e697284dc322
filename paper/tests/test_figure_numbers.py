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
from deceptron_paper.report.figures.allen_cahn import mechanism
from deceptron_paper.report.figures.family import DIPG, PLAIN, Family, Series
from deceptron_paper.report.figures.fields import reconstructions
from deceptron_paper.report.figures.matrices import ratio_to_one_shot
from deceptron_paper.report.figures.profiles import pooled
from deceptron_paper.report.figures.reproducibility import reproducibility
from deceptron_paper.report.figures.sheet import duration, log_scale, plain
from deceptron_paper.report.query import Query
from deceptron_paper.report.tables.rjcp import rjcp_predicts
from deceptron_paper.study.entries import VERMILION
from deceptron_paper.study.names import STEP_SIZE_METHODS
from deceptron_paper.study.records import Records, read
from deceptron_paper.study.tables import CELLS, INSTANCES, MODELS, STEPS
from paper.tests.reading import frame
from paper.tests.synthetic import Sizes, write_study

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


def test_costs_are_held_to_the_residual_at_zero(family):
    start = family.trials("heat-3d", DIPG).rows["residual_start"]
    own = family.trials("heat-3d", DIPG).costs(start)
    assert own["step"].tolist() == [2, np.inf]
    assert own["seconds"].tolist() == [2, np.inf]
    direct = family.trials("heat-3d", ONE_SHOT).costs(start)
    assert direct["step"].tolist() == [1, np.inf]
    assert direct["seconds"].tolist() == [0.5, np.inf]
    assert family.trials("heat-3d", WIENER).costs(start).empty


def test_profiles_pool_only_instances_that_all_were_run_on(family):
    pool = pooled(family, ["heat-3d"])
    assert [series.label for series in pool.series] == ["one-shot", "d-ipg", "gd"]
    assert pool.steps.index.tolist() == [("heat-3d", 7, 0)]
    assert pool.steps.iloc[0].to_dict() == {"one-shot": 1, "d-ipg": 2, "gd": 1}
    assert pool.seconds.iloc[0].to_dict() == {"one-shot": 0.5, "d-ipg": 2, "gd": 1}
    assert pool.counts == {"heat-3d": 1}


def test_a_method_that_lacks_a_problem_is_left_out_and_named(family):
    records = family.query.records
    other = records.instances.query("method != 'gd'").assign(problem="heat-2d")
    everything = pd.concat([records.instances, other], ignore_index=True)
    cells = [*records.study["cells"], *other[["problem", *AXES]].to_dict("records")]
    study = {"cells": [{**cell, "seed": 7} for cell in cells]}
    both = Family(Query(replace(records, instances=everything, study=study)), "standard")
    pool = pooled(both, ["heat-3d", "heat-2d"])
    assert "gd" not in {series.label for series in pool.series}
    assert pool.dropped == ("gd",)


def test_figure_and_table_rank_the_same_rjcp(query):
    table = frame(rjcp_predicts(query)).query("outcome == 'variation of final RMSE'")
    rho = table.set_index("between")["rho"]["problems x JCP, paper"]
    axis = reproducibility(Family(query, "paper")).figure.axes[0]
    assert rf"$\rho = {rho:.2f}$" in axis.get_title()
    cell = query.trials("heat-1d", "paper", "d-ipg").rows
    drawn = [tuple(map(float, (*line.get_xdata(), *line.get_ydata()))) for line in axis.lines]
    variation = cell["rmse"].std() / cell["rmse"].mean()
    assert pytest.approx((cell["rjcp"].mean(), variation)) in drawn


def test_bundle_width_is_the_spread_of_log_residuals(tmp_path):
    problems = ("heat-1d", "navier-stokes-2d")
    write_study(tmp_path, Sizes(problems=problems, sets=("test",), seeds=(7,)))
    family = Family(Query(read(tmp_path)), "paper")
    drawing = reproducibility(family)
    axis = drawing.figure.axes[1]
    for line, series in zip(axis.lines, (DIPG, PLAIN), strict=True):
        paths = family.trials("navier-stokes-2d", series).paths("residual")
        logs = np.log(paths[2] / paths[1])
        assert logs.notna().mean() >= 0.85
        assert line.get_ydata()[:2] == pytest.approx([0, logs.std()])
    last = [line.get_ydata()[-1] for line in axis.lines]
    assert drawing.facts["at"] == axis.lines[0].get_xdata()[-1] <= 6
    assert drawing.facts["wider"] == pytest.approx(last[1] / last[0])


def test_separation_is_of_trials_without_jcp_that_miss_and_reach_the_basin(query):
    drawing = mechanism(Family(query, "paper"))
    titled = {axis.get_title()[:3]: axis for axis in drawing.figure.axes}
    paths = query.trials("allen-cahn-2d", "paper-plain", "d-ipg").paths("rmse").ffill(axis=1)
    reach = paths.min(axis=1) < 0.095
    assert (drawing.facts["reach"], drawing.facts["miss"]) == (reach.sum(), (~reach).sum())
    groups = [paths.loc[kept, 2] for kept in (~reach, reach)]
    weighted = sum((len(group) - 1) * group.var() for group in groups) / (len(paths) - 2)
    expected = (groups[0].mean() - groups[1].mean()) / np.sqrt(weighted)
    assert titled["(a)"].lines[1].get_ydata()[2] == pytest.approx(expected)
    with_jcp = query.trials("allen-cahn-2d", "paper", "d-ipg").paths("rmse").ffill(axis=1)
    ratio = drawing.figure.axes[-1].lines[1].get_ydata()
    assert ratio[2] == pytest.approx(paths.loc[reach, 2].mean() / with_jcp[2].mean())


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
    assert len(set(family.problem_looks().values())) == len(query.problems)
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
