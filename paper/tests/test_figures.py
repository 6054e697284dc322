"""Figures from synthetic records: whole files, nothing overlaps, nothing missing goes unsaid."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib import rc_context
from matplotlib.text import Text

from deceptron_paper.report import figures
from deceptron_paper.report.figures import PLANS, draw_all
from deceptron_paper.report.figures.allen_cahn import hyperparameters, mechanism
from deceptron_paper.report.figures.family import PLAIN, STYLE, Family
from deceptron_paper.report.figures.sheet import NothingToDraw, models_used
from deceptron_paper.report.query import Query

KILOBYTES = 150
CHOSEN = [replace(plan, families=plan.families[:1]) for plan in PLANS]  # to save time
NAMES = [plan.name for plan in PLANS]


@pytest.fixture(scope="module")
def drawn(records, tmp_path_factory):
    """Everything drawn once, with the canvases that were written."""
    canvases = {}
    write = figures.write_figure

    def keep(canvas, path, **settings):
        canvases[path.stem] = canvas
        return write(canvas, path, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "write_figure", keep)
        patch.setattr(figures, "PLANS", CHOSEN)
        found = draw_all(Query(records), tmp_path_factory.mktemp("figures"), small=True)
    return {figure.name: figure for figure in found}, canvases


def test_every_figure_is_drawn(drawn):
    found, _ = drawn
    assert list(found) == NAMES
    assert [figure.missing for figure in found.values()] == [None] * len(NAMES)


def test_names_and_titles_say_which_models_where_there_are_two(records, tmp_path, monkeypatch):
    def draw(family):
        raise NothingToDraw(f"nothing of {family.name}")

    monkeypatch.setattr(figures, "PLANS", [replace(plan, draw=draw) for plan in PLANS])
    found = {figure.name: figure for figure in draw_all(Query(records), tmp_path, small=False)}
    both = {"performance", "reliability", "reconstructions"}
    expected = [
        drawn
        for name in NAMES
        for drawn in ([f"{name}-standard", f"{name}-paper"] if name in both else [name])
    ]
    assert list(found) == expected
    title = "Reliability matrix (Figure 3), paper models"
    assert found["reliability-paper"].missing == f"{title}: nothing of paper."
    assert found["cosine"].missing == "Cosine spectrum (Figure 5): nothing of paper."


@pytest.mark.parametrize("name", NAMES)
def test_files_are_whole_and_small(drawn, name):
    figure = drawn[0][name]
    png, pdf = (figure.svg.with_suffix(suffix) for suffix in (".png", ".pdf"))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    drawing = ElementTree.parse(figure.svg)
    assert drawing.getroot().tag.endswith("svg")
    assert any(element.tag.endswith("text") for element in drawing.iter())
    for path in (png, figure.svg):
        assert path.stat().st_size < KILOBYTES * 1000
    assert b"CreationDate" not in pdf.read_bytes()
    assert b"dc:date" not in figure.svg.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_no_text_overlaps_or_leaves_the_page(drawn, name):
    canvas = drawn[1][name]
    canvas.set_dpi(figures.DPI)  # the PDF, which came last, has another
    with rc_context(fname=STYLE):
        canvas.draw_without_rendering()
    page = canvas.bbox.padded(1)
    boxes = [(text.get_text(), text.get_window_extent()) for text in visible_texts(canvas)]
    for words, box in boxes:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, words
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, words
    for (one, first), (other, second) in combinations(boxes, 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert min(width, height) < 1, f"{one!r} overlaps {other!r}"


def visible_texts(canvas):
    """Texts that are seen; ticks beyond the limits of their axis are not."""
    unseen = set()
    for axes in canvas.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not (axes.axison and min(limits) <= tick.get_loc() <= max(limits)):
                    unseen |= {tick.label1, tick.label2}
    return [
        text
        for text in canvas.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen
    ]


@pytest.mark.parametrize("name", NAMES)
def test_axes_are_labelled(drawn, name):
    images = name in ("reconstructions", "reliability")  # they carry names instead
    for axes in drawn[1][name].axes:
        assert images or axes.get_xlabel() or axes.get_ylabel()


def test_captions_say_sample_rule_models(drawn):
    captions = {name: figure.caption for name, figure in drawn[0].items()}
    for words in captions.values():
        assert "Small sample" in words
        assert "Models: " in words
    assert "6 instances per problem, seed 7." in captions["cosine"]
    assert "6 instances, seed 7." in captions["mechanism"]
    assert "r_t / r_0 <= 0.30" in captions["profiles"]
    assert "main text: the 12 instances" in captions["profiles"]
    assert "all problems: the 18 instances" in captions["profiles"]
    assert "fewer than two steps that 85%" in captions["reproducibility"]
    assert "12 instances per problem, seeds 7, 8." in captions["performance"]
    assert "only the threshold of allen-cahn-2d" in captions["reliability"]
    assert "preset paper-reduced" in captions["cosine"]


def test_small_samples_are_marked_only_when_small(drawn, records, tmp_path, monkeypatch):
    assert drawn[1]["cosine"].get_suptitle() == "small sample"
    monkeypatch.setattr(figures, "PLANS", [plan for plan in CHOSEN if plan.name == "cosine"])
    (figure,) = draw_all(Query(records), tmp_path, small=False)
    assert "mall sample" not in figure.caption


def test_errors_that_are_no_numbers_are_said(records, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PLANS", [plan for plan in CHOSEN if plan.name == "cosine"])
    lost = (records.instances["model"] == "paper") & (records.instances["instance"] == 0)
    broken = replace(
        records, instances=records.instances.assign(rmse=records.instances["rmse"].mask(lost))
    )
    (figure,) = draw_all(Query(broken), tmp_path, small=False)
    assert f"RMSE not a number in {lost.sum()} instances" in figure.caption


def test_direct_answers_stand_in_every_method_figure(drawn):
    for name in NAMES:
        if name in ("cosine", "reconstructions", "reproducibility"):
            continue
        words = {text.get_text().split(",")[0] for text in visible_texts(drawn[1][name])}
        # The errors off distribution are relative to one-shot.
        assert "wiener" in words, name
        assert "one-shot" in words or name == "shift", name


def test_no_panel_is_empty_or_holds_a_sentence(drawn):
    """What cannot be drawn takes no room: the caption says why."""
    for name, canvas in drawn[1].items():
        for axes in canvas.axes:
            if not axes.axison:
                continue  # the corner of a matrix
            assert axes.has_data(), name
            assert all(len(text.get_text()) < 40 for text in axes.texts), name


def test_profiles_have_a_row_for_each_method_and_no_lines_that_cover_each_other(drawn):
    panels = drawn[1]["profiles"].axes
    assert len(panels) == 6
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert len(set(names)) == len(names) >= 8
    for axes in panels:
        (mesh,) = axes.collections
        assert mesh.get_array().shape[0] == len(names)
        assert not [line for line in axes.lines if len(set(line.get_ydata())) > 1]


def test_no_records_give_a_sentence_each(records, tmp_path):
    empty = replace(
        records,
        cells=records.cells.iloc[:0],
        models=records.models.iloc[:0],
        instances=records.instances.iloc[:0],
        steps=records.steps.iloc[:0],
    )
    found = draw_all(Query(empty), tmp_path / "new", small=False)
    assert len(found) == sum(len(plan.families) for plan in PLANS)
    for figure in found:
        assert figure.svg is None
        assert figure.missing.startswith(figure.title)
    assert list((tmp_path / "new").iterdir()) == []


def test_figures_do_not_compare_models_of_two_presets(records):
    models = records.models.copy()
    models.loc[models["model"] == "standard-plain", "preset"] = "smoke"
    query = Query(replace(records, models=models))
    standard, paper = Family(query, "standard"), Family(query, "paper")
    assert standard.problems(PLAIN) == []
    assert paper.problems(PLAIN) == ["heat-1d", "heat-3d", "allen-cahn-2d"]
    words = models_used(standard)
    assert words.endswith("preset: standard-plain on allen-cahn-2d, heat-1d, heat-3d.")
    assert "Left out" not in models_used(paper)


@pytest.mark.parametrize("error", [0.01, 0.5])
def test_without_two_groups_there_is_no_separation(records, error):
    """Trials without JCP that all reach the basin, or all miss it, have no distance."""
    plain = records.steps["model"] == "paper-plain"
    moved = replace(
        records, steps=records.steps.assign(rmse=records.steps["rmse"].mask(plain, error))
    )
    with rc_context(fname=STYLE):
        drawing = mechanism(Family(Query(moved), "paper"))
    titles = [axes.get_title(loc="left")[:3] for axes in drawing.figure.axes]
    strip = [""] if error == 0.01 else []
    assert titles == ["(b)", "(c)", *strip]
    assert not drawing.facts["separable"]


def test_what_was_not_varied_is_not_drawn(records):
    with pytest.raises(NothingToDraw, match="not varied with the model standard"):
        hyperparameters(Family(Query(records), "standard"))


def test_a_single_instance_is_enough(records):
    one = replace(
        records,
        instances=records.instances[records.instances["instance"] == 0],
        steps=records.steps[records.steps["instance"] == 0],
    )
    query = Query(one)
    with rc_context(fname=STYLE):
        for plan in CHOSEN:
            if plan.name != "reproducibility":  # one instance has no spread
                assert plan.draw(Family(query, plan.families[0])).figure.axes
