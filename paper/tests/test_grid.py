"""Grids: what they contain, what they refuse, and where in a file the mistake is."""

import json
import re
from dataclasses import replace

import pytest

import deceptron as dc
from deceptron.core.identity import plain
from deceptron.solve import methods
from deceptron.solve.searches import AdaptiveDamping, Armijo
from deceptron_paper.study import Block, Study, get_study
from deceptron_paper.study.cell import Cell, ModelKey
from deceptron_paper.study.entries import PROBLEMS
from deceptron_paper.study.methods import ENTRIES, METHODS
from deceptron_paper.study.names import MODELS, TRUTH

FILE = """\
# d-ipq is not a method
name = "mine"
missing_models = "skip"

[[block]]
problems = ["heat-1d"]
methods = ["one-shot"]
instances = 3

[[block]]
problems = ["heat-1d",
            "darcy-2d"]
sets = ["test", "shifted"]
models = ["standard"]
seeds = [7, 8]
methods = ["d-ipg", "lm-tuned"]
instances = 5
max_iterations = 9
"""


def tiny(**changes):
    settings = {"problems": ("heat-1d",), "methods": ("one-shot", "d-ipg"), "instances": 2}
    return Study(name="tiny", blocks=(Block(**{**settings, **changes}),))


def test_a_grid_is_the_union_of_products_with_a_truth_for_each_set():
    study = tiny(sets=("shifted", "test"), seeds=(8, 7), models=("paper", "standard"))
    cells = study.cells()
    assert len(cells) == 2 * 2 * 2 * 2 + 4
    assert cells[0] == Cell("heat-1d", "test", "", 7, TRUTH, 3)
    assert cells[2] == Cell("heat-1d", "test", "standard", 7, "one-shot", 2)
    keys = [ModelKey("heat-1d", model, seed) for seed in (7, 8) for model in ("standard", "paper")]
    assert study.models() == keys
    assert len({cell.key for cell in cells}) == len(cells)


def test_the_run_key_follows_every_setting():
    study = tiny()
    changed = [
        tiny(instances=3),
        tiny(max_iterations=4),
        replace(study, small=True),
        replace(study, missing_models="smoke"),
    ]
    keys = {entry.document()["key"] for entry in (study, *changed)}
    assert len(keys) == 5
    assert tiny().document() == study.document()
    assert Cell("a", "b", "c", 7, "d", 5).key != Cell("a", "b", "c", 7, "d", 6).key
    assert Cell("heat-1d", "test", "standard", 7, "d-ipg a=0.3", 5).key.startswith(
        "heat-1d.test.standard.7.d-ipg-a-0.3."
    )


def truncated(**changes):
    settings = {"linear": "cg", "cg_steps": 10, "cg_tolerance": 0.1, **changes}
    return lambda: methods.levenberg_marquardt(**settings)


@pytest.mark.parametrize(
    ("label", "change"),
    [
        ("lm-tuned", {"method": truncated(cg_steps=11)}),
        ("lm-tuned", {"method": truncated(cg_tolerance=0.2)}),
        ("lm-tuned", {"method": truncated(search=AdaptiveDamping(relative_start=0.5))}),
        ("lm-tuned", {"limit": 21}),
        ("lm-tuned", {"physics": "true"}),
        ("guarded", {"method": lambda: methods.guarded(quality=0.4)}),
        ("guarded", {"method": lambda: methods.guarded(cg_steps=19)}),
        ("guarded", {"method": lambda: methods.guarded(progress=0.1)}),
        ("d-ipg", {"method": lambda: methods.d_ipg(relaxation=0.5)}),
        ("d-ipg", {"method": lambda: methods.d_ipg(search=Armijo(shrink=0.4))}),
        ("l-bfgs-tuned", {"method": lambda: methods.l_bfgs(memory=9)}),
    ],
)
def test_the_run_key_follows_every_setting_of_a_method(monkeypatch, label, change):
    study = tiny(methods=(label,))
    before = study.document()["key"]
    monkeypatch.setitem(ENTRIES, label, replace(ENTRIES[label], **change))
    assert study.document()["key"] != before


def test_the_run_key_does_not_follow_words(monkeypatch):
    before = tiny().document()
    monkeypatch.setitem(ENTRIES, "d-ipg", replace(ENTRIES["d-ipg"], words="said otherwise"))
    after = tiny().document()
    assert after["key"] == before["key"]
    assert after["shown"]["methods"]["d-ipg"]["words"] == "said otherwise"


def test_every_method_can_be_written_down():
    for entry in ENTRIES.values():
        document = entry.document()
        assert json.loads(json.dumps(document)) == document
    with pytest.raises(TypeError, match="a setting must be"):
        plain({"a": [print]}, exact=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problems": ("heat-4d",)}, "unknown problem 'heat-4d'. Did you mean 'heat-"),
        ({"methods": ("d-ipq",)}, "unknown method 'd-ipq'. Did you mean 'd-ipg'"),
        ({"models": ("papre",)}, "unknown model 'papre'. Did you mean 'paper'"),
        ({"sets": ("tset",)}, "unknown set 'tset'. Did you mean 'test'"),
        ({"sets": ()}, "sets must be a non-empty list"),
        ({"seeds": (-1,)}, "seeds must be an integer >= 0; got -1"),
        ({"instances": 0}, "instances must be an integer >= 1; got 0"),
        ({"models": ("paper-probes-2",)}, "'paper-probes-2' exists for allen-cahn-2d only"),
    ],
)
def test_a_block_refuses_what_is_not_there(change, words):
    with pytest.raises(dc.ConfigError, match=re.escape(words)):
        tiny(**change)


def test_a_cell_that_comes_twice_is_refused():
    block = tiny().blocks[0]
    with pytest.raises(dc.ConfigError, match=r"heat-1d, test, standard, 7, d-ipg.* twice"):
        Study(name="twice", blocks=(block, replace(block, methods=("d-ipg",), instances=9)))
    with pytest.raises(dc.ConfigError, match=r"heat-1d, test, standard, 7, one-shot.* twice"):
        Study(name="twice", blocks=(replace(block, seeds=(7, 7)),))


def test_a_restricted_study_keeps_what_was_asked_for():
    study = get_study("quick").restricted(
        problems=["allen-cahn-2d"], methods=["d-ipg", "lm"], seeds=[7]
    )
    cells = [cell for cell in study.cells() if cell.method != TRUTH]
    assert {cell.problem for cell in cells} == {"allen-cahn-2d"}
    assert {cell.method for cell in cells} == {"d-ipg", "lm"}
    assert {cell.model for cell in cells} == set(MODELS)
    with pytest.raises(dc.ConfigError, match="unknown problem 'allen'"):
        study.restricted(problems=["allen"])
    with pytest.raises(dc.ConfigError, match="study 'quick' has no method 'gd'"):
        study.restricted(methods=["gd"])
    with pytest.raises(dc.ConfigError, match="unknown seed 5"):
        study.restricted(seeds=[5])
    apart = "no cell with problems heat-1d and methods d-ipg a=0.1"
    with pytest.raises(dc.ConfigError, match=apart):
        get_study("quick").restricted(problems=["heat-1d"], methods=["d-ipg a=0.1"])
    with pytest.raises(dc.ConfigError, match="seeds must name one or more; got none"):
        study.restricted(seeds=[])


@pytest.mark.parametrize("names", [("quick",), ("full", "guarded")])
def test_the_built_in_studies_hold_every_problem_model_and_method(names):
    cells = [cell for name in names for cell in get_study(name).cells()]
    assert {cell.problem for cell in cells} == set(PROBLEMS)
    assert {cell.model for cell in cells} == {"", *MODELS}
    assert {cell.method for cell in cells} == {TRUTH, *METHODS}
    assert all(get_study(name).small == (name == "quick") for name in names)


def test_the_guarded_study_pairs_every_competitor_with_guarded_on_three_seeds():
    cells = {(c.problem, c.set, c.seed, c.method): c for c in get_study("guarded").cells()}
    for problem in PROBLEMS:
        for seed in (7, 8, 9):
            for method in ("one-shot", "wiener", "d-ipg", "guarded-true"):
                assert cells[problem, "test", seed, method].instances == 300
            for method in ("gn-cold", "lm-cold", "l-bfgs-cold"):
                assert cells[problem, "test", seed, method].instances >= 10
            for off in ("shifted", "extreme"):
                assert cells[problem, off, seed, "guarded-true"].instances == 300
                assert cells[problem, off, seed, "gn-cold"].instances >= 10


def test_a_file_is_a_study(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    study = get_study(str(path))
    assert study == Study(
        name="mine",
        blocks=(
            Block(problems=("heat-1d",), methods=("one-shot",), instances=3),
            Block(
                problems=("heat-1d", "darcy-2d"),
                sets=("test", "shifted"),
                seeds=(7, 8),
                methods=("d-ipg", "lm-tuned"),
                instances=5,
                max_iterations=9,
            ),
        ),
    )
    path.write_text(FILE.replace('name = "mine"\n', ""))
    assert get_study(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"darcy-2d"', '"darcy-2"', 12, "unknown problem 'darcy-2'. Did you mean 'darcy-2d'"),
        ('"d-ipg"', '"d-ipq"', 16, "unknown method 'd-ipq'. Did you mean 'd-ipg'"),
        ('"shifted"', '"shift"', 13, "unknown set 'shift'. Did you mean 'shifted'"),
        ('["standard"]', '["standart"]', 14, "unknown model 'standart'. Did you mean 'standard'"),
        ("[7, 8]", "[7, 0.5]", 15, "seeds must be an integer >= 0; got 0.5"),
        ("[7, 8]", "7", 15, "seeds must be a non-empty list"),
        ("instances = 5", "instances = 0", 17, "instances must be an integer >= 1; got 0"),
        ("instances = 5", "instancs = 5", 17, "unknown setting of a block 'instancs'"),
        ("instances = 5\n", "", 10, "a block must have instances"),
        ('name = "mine"', "name = 3", 2, "name must be a str"),
        ('name = "mine"', "nam = 3", 2, "unknown setting 'nam'. Did you mean 'name'"),
        ('"skip"', '"never"', 3, "missing_models must be one of"),
        ('"one-shot"', '"d-ipg"', 1, "d-ipg) twice"),
        ("[7, 8]", "[7, 8", 16, "is not TOML"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(tmp_path, old, new, line, words):
    path = tmp_path / "study.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(dc.ConfigError) as error:
        get_study(str(path))
    assert words in str(error.value)
    assert f"line {line}" in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(dc.ConfigError, match="cannot read the study file"):
        get_study(str(tmp_path / "none.toml"))
    with pytest.raises(dc.ConfigError, match=r"unknown study 'quik'. Did you mean 'quick'"):
        get_study("quik")
