"""The evaluation past the paper, against numbers taken from records by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deceptron.report.query import Query
from deceptron.report.tables import to_markdown
from deceptron.report.tables.guarded import guarded_in_distribution, guarded_off_distribution
from deceptron.study.statistics import paired_difference
from tests.report.reading import frame, line

NETWORK, OURS, COLD = "one-shot", "guarded-true", "gn-cold"


def changed(records, **columns):
    """The records with columns of the instances of heat-3d set method by method."""
    instances = records.instances.copy()
    for column, values in columns.items():
        for (method, on), value in values.items():
            here = instances["problem"].eq("heat-3d") & instances["method"].eq(method)
            here &= instances["set"].eq(on) & instances["model"].eq("standard")
            if not np.isscalar(value):
                value = np.resize(value, int(here.sum()))
            instances.loc[here, column] = value
    return Query(replace(records, instances=instances))


def test_the_best_competitor_is_the_one_hardest_to_match(records):
    query = changed(
        records,
        rmse={
            (OURS, "test"): 0.05,
            (NETWORK, "test"): 0.06,
            ("wiener", "test"): 0.09,
            ("d-ipg", "test"): 0.07,
            (COLD, "test"): 0.04,
            ("lm-cold", "test"): 0.08,
            ("l-bfgs-cold", "test"): 0.2,
            ("guarded-prior", "test"): 0.036,
        },
    )
    found = line(guarded_in_distribution(query), problem="heat-3d")
    assert found["best"] == COLD
    assert found["ratio"] == pytest.approx(1.25)
    assert found["rmse_best"] == pytest.approx(0.04)
    assert found["no_worse"] == "no"
    assert found["success_rmse"] == 1
    assert found["ratio_prior"] == pytest.approx(0.9)


def test_competitors_are_compared_on_shared_trials_only(records):
    query = changed(records, rmse={(COLD, "test"): 0.01, (OURS, "test"): [0.01, 0.5]})
    instances = query.records.instances
    # gn-cold was run on the even instances alone, where the two are equal.
    few = ~(instances["method"].eq(COLD) & (instances["instance"] % 2 == 1))
    query = Query(replace(query.records, instances=instances[few]))
    found = line(guarded_off_distribution(query), problem="heat-3d", set="shifted", method=OURS)
    assert found["shared"] == 3
    found = line(guarded_in_distribution(query), problem="heat-3d")
    assert found["n"] == 6
    assert found["ratio"] >= 1
    assert found["best"] != COLD


def test_one_shot_must_be_beaten_where_it_leaves_more_than_noise(records):
    easy = {(NETWORK, "shifted"): 0.02 * 1.1}
    hard = {(NETWORK, "shifted"): 0.02 * 1.3}
    lower = {(OURS, "shifted"): [0.01, 0.011], (NETWORK, "shifted"): [0.03, 0.02]}
    for residuals, verdict in ((easy, "need not"), (hard, "no")):
        query = changed(records, true_residual=residuals, rmse=lower)
        found = line(guarded_off_distribution(query), problem="heat-3d", set="shifted", method=OURS)
        # Six pairs of one sign: p = 2 / 2^6, too few for p < 0.01.
        assert found["p"] == pytest.approx(2 / 64)
        assert found["beats_one_shot"] == verdict
        assert found["ratio_one_shot"] == pytest.approx(0.0105 / 0.025)


def test_p_pools_the_seeds(records):
    # The same rows under another seed: twelve pairs of one sign, p = 2 / 2^12.
    other = records.instances[records.instances["seed"] == 7].assign(seed=8)
    instances = pd.concat([records.instances.query("seed == 7"), other], ignore_index=True)
    cells = records.study["cells"]
    again = [{**cell, "seed": 8} for cell in cells if cell["seed"] == 7]
    study = {**records.study, "cells": [*(c for c in cells if c["seed"] == 7), *again]}
    query = changed(
        replace(records, instances=instances, study=study),
        true_residual={(NETWORK, "shifted"): 0.03},
        rmse={(OURS, "shifted"): 0.01, (NETWORK, "shifted"): 0.02},
    )
    found = line(guarded_off_distribution(query), problem="heat-3d", set="shifted", method=OURS)
    assert found["n"] == 12
    assert found["p"] == pytest.approx(2 / 2**12)
    assert found["beats_one_shot"] == "yes"


def test_evaluations_are_those_of_the_simulator(records):
    counts = {"f": 3, "jvp": 4, "vjp": 5, "g": 100}
    columns = {name: {(OURS, "shifted"): count} for name, count in counts.items()}
    for name in ("f", "jvp", "vjp"):
        columns[name][COLD, "shifted"] = 40
    found = line(
        guarded_off_distribution(changed(records, **columns)),
        problem="heat-3d",
        set="shifted",
        method=OURS,
    )
    assert found["evaluations"] == 12
    assert found["g"] == 100
    assert found["share_own_stop"] == pytest.approx(12 / 120)


def test_a_cold_start_is_stopped_where_it_is_good_enough(records):
    query = Query(records)
    own = records.instances.query(
        "problem == 'heat-3d' and set == 'shifted' and model == 'standard' and seed == 7"
    )
    ours, cold = (own[own["method"] == name].set_index("instance") for name in (OURS, COLD))
    first = []
    for instance, row in cold.iterrows():
        steps = records.steps.query(
            "problem == 'heat-3d' and set == 'shifted' and model == 'standard' and seed == 7 "
            f"and method == '{COLD}' and instance == {instance}"
        )
        first.append(steps[steps["rmse"] <= 1.05 * row["rmse"]]["evaluations"].min())
    spent = (ours["f"] + ours["jvp"] + ours["vjp"]).mean()
    found = line(guarded_off_distribution(query), problem="heat-3d", set="shifted", method=OURS)
    assert found["share_best_stop"] == pytest.approx(spent / np.mean(first), rel=1e-5)
    paired = paired_difference(
        ours["rmse"].to_numpy(), own[own["method"] == NETWORK]["rmse"].to_numpy()
    )
    assert found["p"] == pytest.approx(paired.p)


def test_the_last_lines_are_medians_over_problems(query):
    table = guarded_off_distribution(query)
    rows = frame(table)
    for method in (OURS, "guarded-prior"):
        last = line(table, problem="median", set="shifted", method=method)
        own = rows[(rows["method"] == method) & (rows["problem"] != "median")]
        for column in ("ratio_cold", "share_own_stop", "share_best_stop"):
            assert last[column] == pytest.approx(own[column].median(), rel=1e-5)


def test_a_study_without_these_methods_has_dashes(records):
    instances = records.instances[~records.instances["method"].isin([OURS, COLD])]
    query = Query(replace(records, instances=instances))
    for make in (guarded_in_distribution, guarded_off_distribution):
        reader = query.fresh()
        table = make(reader)
        assert any("guarded-true" in note for note in reader.notes())
        assert "nan" not in to_markdown(table)
