"""A problem and a method that the library does not know, from records to the page."""

from __future__ import annotations

import pytest

from deceptron.report.study import report_study
from tests.study.test_own import METHOD, PROBLEM, folder

__all__ = ["folder"]  # the study of one's own, run once


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
