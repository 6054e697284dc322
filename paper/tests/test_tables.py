"""Each table against numbers taken from the synthetic records by other means."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deceptron_paper.report.captions import starts_and_objectives
from deceptron_paper.report.findings import findings
from deceptron_paper.report.query import Query
from deceptron_paper.report.tables import TABLES, make_tables
from deceptron_paper.report.tables.formats import to_csv, to_markdown
from deceptron_paper.report.tables.methods import equal_evaluations, methods
from deceptron_paper.statistics import paired_difference
from deceptron_paper.study.records import Records
from paper.tests.reading import frame, line


def cell(records: Records, **axes) -> pd.DataFrame:
    axes = {"set": "test", "model": "standard", "seed": 7, **axes}
    rows = records.instances
    for name, value in axes.items():
        rows = rows[rows[name] == value]
    return rows.sort_values("instance")


@pytest.mark.parametrize("name", [make.__name__ for make in TABLES])
def test_every_table_has_rows_without_long_numbers(name, tables):
    table = tables[name]
    assert table.lines
    assert table.has_content
    assert table.caption.endswith(".")
    shown = to_markdown(table)
    assert not re.search(r"\d\.\d{8,}", shown)
    assert "nan" not in shown.lower().replace("nano", "")
    header = next(csv.reader(io.StringIO(to_csv(table))))
    assert len(set(header)) == len(header)


def test_names_are_unique(tables):
    assert len({table.name for table in tables.values()}) == len(TABLES)


def test_methods(tables, records):
    found = line(tables["methods"], problem="heat-3d", model="standard", method="lm-tuned")
    own, reference = (
        cell(records, problem="heat-3d", method=name) for name in ("lm-tuned", "d-ipg")
    )
    assert found["rmse"] == pytest.approx(own["rmse"].mean(), rel=1e-5)
    assert found["success_rmse"] == (own["rmse"] <= 0.10).mean()
    oracle = records.instances.query(
        "method == 'gn-prior' and problem == 'heat-3d' and set == 'test'"
    )
    assert found["success_strict"] == pytest.approx(
        (own["rmse"] <= 1.25 * oracle["rmse"].mean()).mean(), rel=1e-5
    )
    paired = paired_difference(own["rmse"].to_numpy(), reference["rmse"].to_numpy())
    assert found["p"] == pytest.approx(paired.p, rel=1e-5)
    assert found["rmse_minus_d_ipg"] == pytest.approx(paired.difference.value, rel=1e-5)
    assert found["true_residual"] == pytest.approx((own["true_residual"] / 0.02).mean(), rel=1e-5)
    assert found["n"] == 6


def test_one_shot_and_wiener_stand_in_every_table_of_methods(tables):
    for name in ("methods", "shift", "equal_evaluations", "operations"):
        assert {"one-shot", "wiener", "d-ipg"} <= set(frame(tables[name])["method"])
    header = frame(tables["summary"]).columns
    assert {"rmse_one_shot", "rmse_wiener"} <= set(header)


def test_methods_have_one_order(tables, query):
    order = {name: k for k, name in enumerate(query.methods)}
    for name in ("shift", "equal_evaluations", "operations"):
        rows = frame(tables[name])
        keys = [name for name in ("problem", "set") if name in rows]
        groups = rows.groupby(keys) if keys else [((), rows)]
        for _, group in groups:
            places = [order[name] for name in group["method"]]
            assert places == sorted(places)


def test_methods_beside_the_paper(tables, records):
    table = frame(tables["methods_beside_paper"])
    found = table[(table["problem"] == "allen-cahn-2d") & (table["method"] == "d-ipg (-JCP)")].iloc[
        0
    ]
    own = cell(records, problem="allen-cahn-2d", model="paper-plain", method="d-ipg")
    assert found["rmse_paper"] == pytest.approx(0.121996)
    assert found["rmse_ours"] == pytest.approx(own["rmse"].mean(), rel=1e-5)
    assert found["rmse_difference"] == pytest.approx(own["rmse"].mean() - 0.121996, rel=1e-4)
    assert found["iterations_difference"] == own["iterations"].median() - 5
    assert (table["problem"] == "heat-3d").sum() == 5


def test_summary_has_paper_ours_difference(tables, records):
    own = cell(records, problem="heat-1d", model="paper", method="d-ipg")["rmse"].mean()
    table = tables["summary"]
    assert line(table, problem="heat-1d", source="paper, Table 3")["rmse_jcp"] == 0.2704
    assert line(table, problem="heat-1d", source="difference")["rmse_jcp"] == pytest.approx(
        own - 0.2704, rel=1e-4
    )


def test_jcp_effect_is_with_minus_without(tables, records):
    pair = [
        cell(records, problem="allen-cahn-2d", model=model, method="d-ipg")["rmse"].to_numpy()
        for model in ("standard", "standard-plain")
    ]
    found = line(tables["jcp_effect"], problem="allen-cahn-2d", source="ours, standard")
    assert found["rmse_change"] == pytest.approx((pair[0] - pair[1]).mean(), rel=1e-5)
    steps = records.steps.query(
        "problem == 'allen-cahn-2d' and model == 'standard' and seed == 7 and set == 'test' "
        "and method == 'd-ipg'"
    )
    cosine = steps.groupby("instance")["cosine"].mean()
    assert found["cosine_jcp"] == pytest.approx(cosine.mean(), rel=1e-5)


def test_equal_steps_reads_the_trajectory(tables, records):
    found = line(tables["equal_steps"], problem="heat-3d", model="standard", steps="2")
    steps = records.steps.query(
        "problem == 'heat-3d' and model == 'standard' and seed == 7 and set == 'test' "
        "and method == 'd-ipg-free' and step <= 2"
    )
    last = steps.sort_values("step").groupby("instance")["rmse"].last()
    assert found["rmse_jcp"] == pytest.approx(last.mean(), rel=1e-5)
    assert found["success_jcp"] == (last <= 0.10).mean()


def test_equal_steps_ends_where_the_study_stops(tables, query):
    """The synthetic d-ipg-free is stopped after 12 steps: nobody knows what 20 would give."""
    assert set(frame(tables["equal_steps"])["steps"]) == {"1", "2", "5", "10", "tolerance"}
    (answer, _) = findings(query)[1].answers
    assert "after 10 steps, and" in answer


def test_equal_evaluations_stays_within_the_budget(tables, records):
    found = line(tables["equal_evaluations"], problem="heat-1d", method="gd")
    steps = records.steps.query(
        "problem == 'heat-1d' and model == 'standard' and seed == 7 and set == 'test' "
        "and method == 'gd' and evaluations <= 30"
    )
    last = steps.sort_values("step").groupby("instance")["rmse"].last()
    assert found["rmse_30"] == pytest.approx(last.mean(), rel=1e-5)


def test_an_error_that_is_no_number_does_not_hide_the_others_of_a_budget(records):
    own = (records.steps["problem"] == "heat-1d") & (records.steps["method"] == "gd")
    lost = own & (records.steps["instance"] == 2) & (records.steps["step"] > 0)
    broken = replace(records, steps=records.steps.assign(rmse=records.steps["rmse"].mask(lost)))
    found = line(equal_evaluations(Query(broken)), problem="heat-1d", method="gd")
    steps = records.steps[own].query(
        "model == 'standard' and seed == 7 and set == 'test' and evaluations <= 30"
    )
    last = steps.sort_values("step").groupby("instance")["rmse"].last()
    assert found["rmse_30"] == pytest.approx(last.drop(2).mean(), rel=1e-5)


def test_operations_are_counted(tables, records):
    found = line(tables["operations"], method="lm")
    own = records.instances.query(
        "method == 'lm' and model == 'standard' and seed == 7 and set == 'test'"
    )
    assert found["linear_steps"] == pytest.approx(
        own["linear_steps"].sum() / own["iterations"].sum(), rel=1e-5
    )
    assert found["steps"] == str(own["iterations"].sum())


def test_break_even(tables, records):
    found = line(tables["amortisation"], problem="heat-3d", model="standard", baseline="lm-true")
    cells = records.cells.query(
        "problem == 'heat-3d' and model == 'standard' and seed == 7 and set == 'test'"
    ).set_index("method")["latency_ms"]
    model = records.models.query("problem == 'heat-3d' and model == 'standard' and seed == 7")
    saved = (cells["lm-true"] - cells["d-ipg"]) / 1e3
    assert float(found["n_ours"]) == pytest.approx(model["train_seconds"].iloc[0] / saved, rel=1e-4)
    cheap = line(tables["amortisation"], problem="heat-3d", model="standard", baseline="wiener")
    assert cheap["n_ours"] == "never"


def test_seeds_have_mean_and_spread(tables, records):
    found = line(tables["seeds"], problem="heat-1d", source="ours, standard")
    means = [
        cell(records, problem="heat-1d", method="d-ipg", seed=s)["rmse"].mean() for s in (7, 8)
    ]
    assert found["rmse_jcp"] == pytest.approx(np.mean(means), rel=1e-5)
    assert found["rmse_jcp_sd"] == pytest.approx(np.std(means, ddof=1), rel=1e-4)
    paper = line(tables["seeds"], problem="allen-cahn-2d", source="paper, Table 6")
    assert (paper["success_plain"], paper["success_plain_sd"]) == (0.392, 0.255)


def test_hyperparameters_come_from_the_records(tables, records):
    table = tables["hyperparameters"]
    paper = line(table, problem="heat-3d", source="paper, Table 7")
    assert paper["epochs_forward"] > 0
    for preset, model in (("paper-reduced", "paper"), ("standard", "standard")):
        row = records.models.query(f"problem == 'heat-3d' and model == '{model}' and seed == 7")
        recipe = json.loads(row["recipe"].iloc[0])
        found = line(table, problem="heat-3d", source=f"preset {preset}")
        assert found["epochs_forward"] == recipe["forward"]["epochs"]
        assert found["weight_jcp"] == recipe["weights"]["jcp"]
        assert found["law"] == recipe["probe_law"]


def test_claims_compare_what_is_there(tables, records):
    own = cell(records, problem="allen-cahn-2d", model="paper-probes-4", method="d-ipg")
    found = line(tables["claims"], claim="D-IPG on allen-cahn-2d, 4 probes: success")
    assert found["ours"] == (own["rmse"] <= 0.10).mean()
    assert "navier-stokes-2d" in to_markdown(tables["claims"])


def test_a_missing_cell_is_a_dash_with_a_note(records):
    gone = ("heat-3d", "standard", "lm-tuned")
    keep = ~(
        (records.instances["problem"] == gone[0])
        & (records.instances["model"] == gone[1])
        & (records.instances["method"] == gone[2])
    )
    broken = replace(records, instances=records.instances[keep])
    query = Query(broken)
    table = methods(query)
    found = line(table, problem="heat-3d", model="standard", method="lm-tuned")
    assert np.isnan(found["rmse"])
    assert any("heat-3d, test, standard, seed 7: lm-tuned" in note for note in query.notes())


def test_errors_that_are_no_numbers_are_counted_and_said(records):
    chosen = (
        (records.instances["problem"] == "heat-3d")
        & (records.instances["model"] == "standard")
        & (records.instances["method"] == "lm-tuned")
        & (records.instances["set"] == "test")
        & (records.instances["seed"] == 7)
    )
    lost = chosen & records.instances["instance"].isin([1, 4])
    broken = replace(
        records, instances=records.instances.assign(rmse=records.instances["rmse"].mask(lost))
    )
    query = Query(broken)
    table = methods(query)
    found = line(table, problem="heat-3d", model="standard", method="lm-tuned")
    kept = records.instances[chosen & ~lost]["rmse"]
    assert found["rmse"] == pytest.approx(kept.mean(), rel=1e-5)
    assert found["success_rmse"] == pytest.approx((kept <= 0.10).sum() / 6, rel=1e-5)
    (note,) = (note for note in query.notes() if note.startswith("RMSE not a number"))
    assert note.endswith(": heat-3d, test, standard, 7, lm-tuned: 2 of 6.")
    whole = Query(records)
    methods(whole)
    assert not any("not a number" in note for note in whole.notes())


def test_captions_say_where_methods_start_and_what_is_not_charged(tables, query):
    named = ("one-shot", "lm", "guarded", "lm-true", "guarded-true", "gn-prior")
    assert starts_and_objectives(query, named) == (
        "Iterative methods start from x0 = 0, guarded and guarded-true from g(y), gn-prior from "
        "the wiener estimate; they minimise the surrogate's misfit, lm-true and guarded-true the "
        "simulator's, gn-prior the simulator's with the prior. The wiener start of gn-prior is "
        "not counted."
    )
    captions = {name: table.caption for name, table in tables.items()}
    for name in ("methods", "operations", "equal_evaluations", "shift"):
        assert "The wiener start of gn-prior is not counted." in captions[name]
    for name in ("methods", "shift"):
        assert "over its 6 to 12 instances" in captions[name]  # two models, one set
    for name in ("operations", "equal_evaluations"):
        assert "(of the simulator for lm-true, guarded-true" in captions[name]
        assert "g those of the reverse network, its jvps included" in captions[name]


def test_versions_that_differ_are_named(records):
    cells = records.cells.copy()
    cells.loc[cells.index[:3], "library"] = "0.0.9"
    (note,) = (n for n in Query(replace(records, cells=cells)).notes() if "version" in n)
    assert "0.0.9 (3 cells), " in note
    assert not any("version" in note for note in Query(records).notes())


def test_models_of_two_presets_are_no_comparison_of_jcp(records):
    models = records.models.copy()
    models.loc[models["model"] == "standard-plain", "preset"] = "smoke"
    query = Query(replace(records, models=models))
    table = next(make for make in TABLES if make.__name__ == "jcp_effect")(query)
    found = line(table, problem="heat-3d", source="ours, standard")
    assert np.isnan(found["rmse_plain"])
    assert np.isnan(found["rmse_change"])
    assert not np.isnan(line(table, problem="heat-3d", source="ours, paper-reduced")["rmse_change"])
    assert any("heat-3d, standard-plain, seed 7" in note for note in query.notes())


def test_a_model_of_another_preset_is_no_reproduction(records):
    models = records.models.assign(preset="smoke")
    first = findings(Query(replace(records, models=models)))[0]
    assert first.answers == ("No model of this study was trained by the published protocol.",)


def test_nothing_at_all_is_no_exception(records):
    names = ("models", "cells", "instances", "steps")
    empty = replace(records, **{name: getattr(records, name).iloc[:0] for name in names})
    query = Query(empty)
    for table in make_tables(query):
        to_markdown(table)
    assert all(finding.answers for finding in findings(query))


def test_findings_are_sentences(query):
    found = {finding.question: finding.answers for finding in findings(query)}
    assert len(found) == 4
    for answers in found.values():
        assert all(answer.endswith(".") for answer in answers)
        assert not any("nan" in answer for answer in answers)
