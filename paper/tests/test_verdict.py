"""What the page recommends, against rules applied by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deceptron_paper.report.query import Query
from deceptron_paper.report.verdict import choices, verdict, verdict_words
from paper.tests.reading import line


def with_errors(records, errors, seconds=None):
    """heat-3d's test set with one error for all instances of a method, and its seconds alone."""
    instances, cells = records.instances.copy(), records.cells.copy()
    for method in set(instances["method"]):
        own = instances["problem"].eq("heat-3d") & instances["set"].eq("test")
        own &= instances["method"].eq(method) & instances["model"].eq("standard")
        instances.loc[own, "rmse"] = errors.get(method, 9.0)
        here = cells["problem"].eq("heat-3d") & cells["method"].eq(method)
        cells.loc[here, "latency_ms"] = (seconds or {}).get(method, 500.0)
    return replace(records, instances=instances, cells=cells)


def choice_of(records):
    found = choices(Query(records))
    (chosen,) = (c for c in found if (c.problem, c.set) == ("heat-3d", "test"))
    return chosen


def test_the_fastest_of_those_that_are_as_good_is_chosen(records):
    errors = {"guarded": 0.100, "one-shot": 0.104, "wiener": 0.106}
    seconds = {"guarded": 50.0, "one-shot": 2.0, "wiener": 1.0}
    assert choice_of(with_errors(records, errors, seconds)).surrogate.method == "one-shot"
    errors["one-shot"] = 0.12
    assert choice_of(with_errors(records, errors, seconds)).surrogate.method == "guarded"


@pytest.mark.parametrize(("error", "chosen"), [(0.05, "guarded-true"), (0.11, None)])
def test_the_simulator_is_asked_for_only_where_it_is_clearly_better(records, error, chosen):
    found = choice_of(with_errors(records, {"one-shot": 0.1, "guarded-true": error}))
    assert found.surrogate.method == "one-shot"
    assert (found.simulator and found.simulator.method) == chosen


def test_the_table_marks_the_choice_and_shows_what_it_rests_on(records):
    changed = with_errors(records, {"one-shot": 0.1, "guarded-true": 0.05})
    table = verdict(Query(changed))
    first = line(table, problem="heat-3d", method="one-shot")
    assert first["use"] == "yes"
    assert first["rmse"] == pytest.approx(0.1)
    assert first["coverage"] == pytest.approx(0.9)  # 0.875 to 0.925 on six instances
    assert line(table, problem="heat-3d", method="guarded-true")["use"] == "with the simulator"
    assert line(table, problem="heat-3d", method="lm-tuned")["latency_ms"] == 500


def test_every_set_has_a_sentence_that_names_its_problems(query):
    words = verdict_words(query)
    places = [sentence.split(":")[0] for sentence in words]
    assert places == ["In distribution (test)", "Off distribution (shifted)"]
    for sentence in words:
        assert sentence.endswith(".")
        assert "use " in sentence


def test_what_is_more_than_noise_is_said(records):
    residual = records.instances["true_residual"].where(
        records.instances["problem"] != "heat-3d", 0.1
    )
    query = Query(replace(records, instances=records.instances.assign(true_residual=residual)))
    words = verdict_words(query)
    assert "Residuals are above the noise" in words[0]
    assert "heat-3d (5.00)" in words[0]
