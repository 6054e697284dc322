"""The command ``report``: a folder and a page that stand alone, and sentences for bad folders."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from deceptron_paper.report import study as reporting
from deceptron_paper.report.figures import Figure
from deceptron_paper.report.tables import TABLES
from paper.tests.command import run

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'


class Outline(HTMLParser):
    """Open elements, ids, links and sources of a page."""

    VOID = ("meta", "img", "br", "link", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        self.sources += [values["src"]] if "src" in values else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def drawn(monkeypatch):
    """Two figures without matplotlib: one drawn, one not."""

    def draw_all(records, folder, *, small):
        folder.mkdir(parents=True, exist_ok=True)
        picture = folder / "one.svg"
        picture.write_text(SVG)
        return [
            Figure("one", "First", "A caption <b>.", picture),
            Figure("two", "Second", "", missing="Second: no steps were recorded."),
        ]

    monkeypatch.setattr(reporting, "draw_all", draw_all)


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.usefixtures("drawn")
def test_page_and_files(monkeypatch, capsys, study_folder, tmp_path):
    out = tmp_path / "report"
    assert run(monkeypatch, "report", study_folder, "--out", out) == 0
    said = capsys.readouterr().out
    assert f"{1 + len(TABLES)} tables and 1 figures" in said
    assert "missing: Second: no steps were recorded." in said
    assert len(list((out / "tables").iterdir())) == 3 * (1 + len(TABLES))
    page = (out / "index.html").read_text(encoding="utf-8")
    found = outline(page)
    assert len(set(found.ids)) == len(found.ids)
    assert found.sources == [
        source for source in found.sources if source.startswith("data:image/svg+xml")
    ]
    for link in found.links:
        assert link[1:] in found.ids if link.startswith("#") else not link.startswith("http")
    assert page.index('id="verdict"') < page.index('id="findings"') < page.index('id="tables"')
    assert "figure-two" not in found.ids  # what was not drawn takes no room
    tables = {link for link in found.links if link.startswith("tables/")}
    assert all((out / link).is_file() for link in tables)
    assert len(tables) == 3 * (1 + len(TABLES))
    assert "A caption &lt;b&gt;." in page
    assert "Small samples" in page
    assert not re.search(r"\d\.\d{9,}", re.sub(r'(base64,|data-key=")[^"]*', "", page))
    assert not re.search(r"\bnan\b", page)


@pytest.mark.usefixtures("drawn")
def test_a_partly_damaged_folder_is_reported_and_shown(study_folder, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(study_folder, folder)
    cells = sorted((folder / "cells").glob("heat-3d.test.standard.7.lm*"))
    (cells[0] / "instances.parquet").write_bytes(b"PAR1 no longer")
    shutil.rmtree(cells[1])
    foreign = sorted((folder / "cells").glob("heat-1d.test.standard.7.gn*"))[0] / "cell.json"
    foreign.write_text(json.dumps({**json.loads(foreign.read_text()), "format": 99}))
    (folder / "models.parquet").unlink()
    written = reporting.report_study(folder)
    assert written.page == folder / "report" / "index.html"
    sentences = " ".join(written.missing)
    assert "cannot be read" in sentences
    assert "has not been run" in sentences
    assert "format 99" in sentences
    assert "the table of models" in sentences
    page = written.page.read_text(encoding="utf-8")
    outline(page)
    assert "missing or damaged" in page
    assert "Not in the records: " in page


def test_what_is_no_study_is_one_sentence(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "report", tmp_path / "nowhere") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "study.json" in said
    assert len(said.splitlines()) == 1


def test_a_later_format_is_one_sentence(monkeypatch, capsys, study_folder, tmp_path):
    shutil.copy(study_folder / "study.json", tmp_path)
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    assert run(monkeypatch, "report", tmp_path) == 2
    assert "format 2" in capsys.readouterr().err


def test_out_must_not_be_a_file(monkeypatch, capsys, study_folder, tmp_path):
    (tmp_path / "file").write_text("")
    assert run(monkeypatch, "report", study_folder, "--out", tmp_path / "file") == 2
    assert "out must be a folder" in capsys.readouterr().err
