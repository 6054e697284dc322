"""A user's own problem and method, declared by one entry each, from records to the page."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

import deceptron as dc
from deceptron.solve import methods
from deceptron_paper.report import report_study
from deceptron_paper.study import (
    Block,
    MethodEntry,
    ProblemEntry,
    Study,
    declare_method,
    declare_problem,
    entries,
    read,
    run_study,
)
from deceptron_paper.study import methods as library
from deceptron_paper.study.cell import ModelKey
from deceptron_paper.study.models import Provider

PROBLEM, METHOD = "spring", "gn-short"


def simulate(x):
    """A pulse seen through two springs: smooth, mildly nonlinear."""
    seen = torch.cumsum(x, dim=1) / x.shape[1]
    return seen + 0.1 * seen**2


def sample(count, generator):
    return 0.2 + 0.6 * torch.rand(count, 8, generator=generator)


def gauss_newton_in_three_steps():
    return methods.gauss_newton(linear="cg", cg_steps=3, cg_tolerance=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The study, run by processes that have defined and declared nothing themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "ENTRIES", dict(library.ENTRIES))
        patch.setattr(entries, "ENTRIES", dict(entries.ENTRIES))
        dc.problems.define(
            PROBLEM,
            simulate=simulate,
            sample=sample,
            shifted=sample,
            bounds=(0.0, 1.0),
            noise_std=0.01,
            train_count=128,
            val_count=32,
        )
        declare_problem(
            PROBLEM, ProblemEntry(rmse_limit=0.05, words="two springs", color="#336699")
        )
        declare_method(
            METHOD,
            MethodEntry(
                gauss_newton_in_three_steps, "noise", "Gauss-Newton, three CG steps", limit=5
            ),
        )
        block = Block(
            problems=(PROBLEM,),
            sets=("test", "shifted"),
            methods=("one-shot", METHOD),
            instances=5,
            error_bars=2,
        )
        out = tmp_path_factory.mktemp("own") / "study"
        study = Study(name="own", blocks=(block,), missing_models="smoke")
        summary = run_study(study, out, executor="local", workers=1)
        assert (summary.done, summary.absent) == (6, {})
    return out


def test_the_records_know_what_was_declared(folder):
    records = read(folder)
    assert records.missing == ()
    assert list(records.problems) == [PROBLEM]
    assert records.problems[PROBLEM].rmse_limit == 0.05
    assert records.problems[PROBLEM].color == "#336699"
    assert list(records.methods) == ["one-shot", METHOD]
    assert records.methods[METHOD].words == "Gauss-Newton, three CG steps"
    assert not records.methods[METHOD].uses_reverse
    assert records.methods["one-shot"].direct
    rows = records.instances.query(f"method == '{METHOD}'")
    assert len(rows) == 10
    assert rows["iterations"].max() <= 5
    covered = rows["coverage"].to_numpy().reshape(2, 5)
    assert ((covered[:, :2] >= 0) & (covered[:, :2] <= 1)).all()
    assert rows["coverage"].isna().sum() == 6


def test_a_problem_that_nobody_declared_has_defaults(monkeypatch):
    monkeypatch.setattr(entries, "ENTRIES", dict(entries.ENTRIES))
    dc.problems.define(
        "undeclared", simulate=simulate, sample=sample, bounds=(0.0, 1.0), noise_std=0.01
    )
    block = Block(problems=("undeclared",), methods=("one-shot",), instances=1)
    document = Study(name="x", blocks=(block,)).document()
    assert document["shown"]["problems"]["undeclared"]["rmse_limit"] == 0.10
    assert document["paper_tolerance"] == {"undeclared": 0.30}
    declare_problem("undeclared", ProblemEntry(tolerance=0.2))
    changed = Study(name="x", blocks=(block,)).document()
    assert changed["key"] != document["key"]
    declare_problem("undeclared", ProblemEntry(tolerance=0.2, words="said otherwise"))
    assert Study(name="x", blocks=(block,)).document()["key"] == changed["key"]


def test_declarations_refuse_what_cannot_be():
    with pytest.raises(dc.ConfigError, match="unknown problem 'sprnig'"):
        declare_problem("sprnig", ProblemEntry())
    with pytest.raises(dc.ConfigError, match="rmse_limit must be above 0; got 0"):
        declare_problem("heat-1d", ProblemEntry(rmse_limit=0.0))
    entry = MethodEntry(gauss_newton_in_three_steps, "noise", "x")
    with pytest.raises(dc.ConfigError, match="label must not be that of a method of the library"):
        declare_method("gn", entry)
    hidden = replace(gauss_newton_in_three_steps(), search=print)
    with pytest.raises(TypeError, match="a setting must be"):
        declare_method("hidden", replace(entry, method=lambda: hidden))


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    return report_study(folder, tmp_path_factory.mktemp("own") / "report")


def test_the_page_shows_them_by_what_was_declared(written):
    page = written.page.read_text(encoding="utf-8")
    verdict = page[page.index('id="verdict"') : page.index("</section>")]
    assert PROBLEM in verdict
    assert METHOD in verdict
    assert "RMSE &lt;= 0.05" in page
    assert "table-claims" not in page
    assert "heat-1d" not in verdict
    for name in ("shift", "methods"):
        table = (written.page.parent / "tables" / f"{name}.md").read_text(encoding="utf-8")
        assert METHOD in table
        assert "Not in the records" not in table  # d-ipg was never asked for
    figures = {path.stem for path in (written.page.parent / "figures").glob("*.svg")}
    assert {"shift", "reconstructions-standard"} <= figures


def test_tables_and_figures_of_the_paper_take_no_room(written):
    names = {path.stem for path in (written.page.parent / "tables").iterdir()}
    assert "verdict" in names
    assert not names & {"jcp", "methods-paper", "seeds"}
    page = written.page.read_text(encoding="utf-8")
    for name in ("mechanism", "reproducibility", "hyperparameters"):
        assert f"figure-{name}" not in page


def _define(factor):
    dc.problems.define(
        "changing",
        simulate=lambda x: simulate(factor * x),
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=0.01,
        train_count=64,
        val_count=16,
    )


def test_a_problem_that_changed_under_its_name_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "ENTRIES", dict(entries.ENTRIES))
    _define(1.0)
    block = Block(problems=("changing",), methods=("one-shot",), instances=3)
    study = Study(name="changing", blocks=(block,), missing_models="smoke")
    run_study(study, tmp_path / "a")
    assert run_study(study, tmp_path / "a").earlier == 2  # the same problem goes on
    _define(3.0)
    with pytest.raises(dc.ConfigError, match="another problem called 'changing'"):
        run_study(study, tmp_path / "a")
    # Nor is a pair of the old folder, which this process has loaded.
    shutil.rmtree(tmp_path / "a")
    for name in ("a", "b"):
        run_study(study, tmp_path / name)
    first, second = (read(tmp_path / name).instances["rmse"] for name in ("a", "b"))
    assert first.tolist() == second.tolist()


def test_a_pair_that_was_trained_for_another_problem_of_the_name_is_not_used(tmp_path):
    _define(1.0)
    dc.train(dc.problems.get("changing"), "smoke", tmp_path / "standard/changing-7", progress=False)
    provider = Provider(tmp_path, "skip", scratch=tmp_path)
    assert provider.pair(ModelKey("changing", "standard", 7))[0].name == "changing"
    _define(3.0)
    with pytest.raises(dc.CheckpointError, match="trained for another problem called 'changing'"):
        provider.pair(ModelKey("changing", "standard", 7))


@pytest.mark.filterwarnings("ignore:simulate of 'gaps/a'")
def test_rows_that_a_simulator_cannot_answer_are_replaced_by_the_next(tmp_path, monkeypatch):
    """Of a block of 64 about a fifth has no answer; the name is one of a folder's."""
    monkeypatch.setattr(entries, "ENTRIES", dict(entries.ENTRIES))
    dc.problems.define(
        "gaps/a",
        simulate=lambda x: torch.where(x[:, :1] > 0.68, torch.nan, simulate(x)),
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=0.01,
        train_count=64,
        val_count=16,
    )
    block = Block(problems=("gaps/a",), methods=("one-shot",), instances=64)
    study = Study(name="gaps", blocks=(block,), missing_models="smoke")
    summary = run_study(study, tmp_path)
    assert (summary.done, summary.absent) == (2, {})
    assert len(read(tmp_path).instances) == 64
