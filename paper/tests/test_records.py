"""What a reader gets from a study folder that is whole, incomplete, foreign or damaged."""

import json
import os
import shutil
from importlib.metadata import version

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import deceptron as dc
from deceptron_paper.study.cell import Cell
from deceptron_paper.study.folder import FAILED, StudyFolder
from deceptron_paper.study.records import read
from deceptron_paper.study.tables import INSTANCES, MODELS, STEPS, read_table, write_table
from paper.tests.synthetic import Sizes, write_study

SMALL = Sizes(instances=3, problems=("allen-cahn-2d",), sets=("test",), seeds=(7,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "whole"
    write_study(folder, SMALL)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(whole, tmp_path / "copy")


def cell_folder(folder, start):
    (found,) = (entry for entry in (folder / "cells").iterdir() if entry.name.startswith(start))
    return found


def test_tables_are_concatenated_in_the_order_of_the_plan(whole):
    records = read(whole)
    assert records.missing == ()
    assert records.small
    assert records.name == "synthetic"
    planned = [entry["key"] for entry in records.study["cells"]]
    assert list(records.cells["key"]) == planned
    solved = records.cells[records.cells["method"] != "truth"]
    assert len(records.instances) == 3 * len(solved)
    assert list(records.instances.columns) == list(INSTANCES)
    assert list(records.steps.columns) == list(STEPS)
    assert records.instances["seed"].dtype == np.int64
    assert records.instances["rmse"].dtype == np.float64
    assert records.environment["started"]["cores"] == 2
    assert set(records.cells["library"]) == {version("deceptron")}
    last = records.steps.groupby(["problem", "model", "method", "instance"])["rmse"].last()
    final = records.instances.set_index(["problem", "model", "method", "instance"])["rmse"]
    pd.testing.assert_series_equal(last.sort_index(), final.sort_index())


def test_fields_are_found_by_their_axes(whole):
    records = read(whole)
    answer = records.fields("allen-cahn-2d", "test", "standard", 7, "d-ipg a=0.3")
    assert answer is not None
    assert answer["x"].shape == (3, 1, 32, 32)
    truth = records.truth("allen-cahn-2d", "test", 7)
    assert truth is not None
    shape = (3, 1, 32, 32)
    assert {name: value.shape for name, value in truth.items()} == {"x": shape, "y": shape}
    assert records.fields("allen-cahn-2d", "test", "standard", 8, "d-ipg") is None


def damage_nothing_run(place):
    shutil.rmtree(place)


def damage_truncated(place):
    path = place / "instances.parquet"
    path.write_bytes(path.read_bytes()[:-40])


def damage_no_table(place):
    (place / "instances.parquet").unlink()


def damage_no_steps(place):
    (place / "steps.parquet").unlink()


def damage_fewer_rows(place):
    rows = read_table(place / "instances.parquet", INSTANCES).to_pandas()
    write_table(place / "instances.parquet", INSTANCES, rows.iloc[:2])


def damage_other_columns(place):
    rows = read_table(place / "steps.parquet", STEPS).to_pandas()
    rows.rename(columns={"cosine": "sine"}).to_parquet(place / "steps.parquet")


def damage_json(place):
    (place / "cell.json").write_text("{")


def damage_version(place):
    path = place / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_nothing_run, "it has not been run"),
        (damage_truncated, "its instances.parquet cannot be read"),
        (damage_no_table, "its instances.parquet is missing"),
        (damage_no_steps, "its steps.parquet is missing"),
        (damage_fewer_rows, "it holds 2 of 3 instances"),
        (damage_other_columns, "its steps.parquet has no column 'cosine'"),
        (damage_json, "its cell.json cannot be read"),
        (damage_version, "it has format 99, this library reads 1"),
    ],
)
def test_a_damaged_cell_is_named_and_the_rest_is_read(folder, damage, words):
    damage(cell_folder(folder, "allen-cahn-2d.test.standard.7.gn-prior"))
    records = read(folder)
    (missing,) = records.missing
    assert missing.sentence.startswith("allen-cahn-2d, test, standard, seed 7, gn-prior: ")
    assert words in missing.sentence
    solved = [entry for entry in records.study["cells"] if entry["method"] != "truth"]
    assert len(records.instances) == 3 * (len(solved) - 1)
    left = records.instances.query("model == 'standard'")
    assert "gn-prior" not in set(left["method"])


def test_a_cell_written_before_versions_were_noted_has_none(folder):
    path = cell_folder(folder, "allen-cahn-2d.test.standard.7.gd.") / "cell.json"
    document = json.loads(path.read_text())
    del document["library"]
    path.write_text(json.dumps(document))
    records = read(folder)
    assert records.missing == ()
    assert records.cells["library"].isna().sum() == 1


def test_files_are_on_disk_before_the_cell_appears(tmp_path, monkeypatch):
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda number: synced.add(os.fstat(number).st_ino))
    write_study(tmp_path, SMALL)
    written = [path for path in (tmp_path / "cells").rglob("*") if path.is_file()]
    assert {path.suffix for path in written} == {".json", ".npz", ".parquet"}
    assert {path.stat().st_ino for path in written} <= synced


def test_a_failed_cell_says_why(folder):
    place = cell_folder(folder, "allen-cahn-2d.test.standard.7.gd.")
    document = json.loads((place / "cell.json").read_text())
    axes = ("problem", "set", "model", "seed", "method", "instances")
    cell = Cell(*(document[name] for name in axes))
    assert cell.key == place.name
    shutil.rmtree(place)
    StudyFolder(folder).write_absent(cell, FAILED, "ValueError: no luck")
    (missing,) = read(folder).missing
    assert missing.sentence.endswith("gd: failed, ValueError: no luck")


def test_a_cell_of_another_study_is_left_out(folder):
    known = cell_folder(folder, "allen-cahn-2d.test.standard.7.gd.")
    shutil.copytree(known, known.with_name("stranger.000000"))
    records = read(folder)
    assert len(records.instances) == 3 * (records.cells["method"] != "truth").sum()
    assert "stranger.000000 is not part of this study" in records.missing[0].sentence


def test_models_that_cannot_be_read_are_an_empty_table(folder):
    (folder / "models.parquet").write_bytes(b"PAR1")
    records = read(folder)
    assert list(records.models.columns) == list(MODELS)
    assert len(records.models) == 0
    assert "the table of models" in records.missing[0].sentence


def test_a_study_in_which_nothing_has_run_has_empty_tables(folder):
    shutil.rmtree(folder / "cells")
    records = read(folder)
    assert len(records.missing) == len(records.study["cells"])
    assert list(records.instances.columns) == list(INSTANCES)
    assert len(records.instances) == 0


def test_what_is_no_study_is_an_error(tmp_path, folder):
    with pytest.raises(dc.CheckpointError, match=r"it has no study.json"):
        read(tmp_path)
    path = folder / "study.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "format": 2}))
    with pytest.raises(dc.CheckpointError, match="format 2; this library reads up to 1"):
        read(folder)
    path.write_text("[]")
    with pytest.raises(dc.CheckpointError, match="damaged"):
        read(folder)


def test_writing_asks_for_exactly_the_columns(tmp_path):
    with pytest.raises(ValueError, match="columns must be"):
        write_table(tmp_path / "x.parquet", MODELS, pd.DataFrame({"problem": ["heat-1d"]}))


def test_a_folder_of_before_entries_were_noted_is_read_with_the_librarys(folder):
    path = folder / "study.json"
    study = json.loads(path.read_text())
    noted = study.pop("shown")
    path.write_text(json.dumps(study))
    place = cell_folder(folder, "allen-cahn-2d.test.standard.7.d-ipg-free") / "instances.parquet"
    pq.write_table(pq.read_table(place).drop_columns(["coverage"]), place)
    records = read(folder)
    assert records.missing == ()
    assert records.problems["allen-cahn-2d"].rmse_limit == 0.10
    assert records.methods["gn-prior"].words == noted["methods"]["gn-prior"]["words"]
    assert list(records.methods) == list(read(folder).methods)
    early = records.instances[records.instances["method"] == "d-ipg-free"]
    assert early.query("model == 'standard'")["coverage"].isna().all()


def test_a_planned_name_that_nobody_knows_has_defaults_and_comes_last(folder):
    path = folder / "study.json"
    study = json.loads(path.read_text())
    study["cells"].insert(0, {**study["cells"][1], "method": "new", "key": "new"})
    path.write_text(json.dumps(study))
    records = read(folder)
    assert list(records.methods)[-1] == "new"
    assert records.methods["new"].begins == "x0 = 0"
