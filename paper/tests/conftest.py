"""Synthetic records that the tests of tables and pages share, and a clean registry."""

from __future__ import annotations

import pytest

from deceptron_paper.report.query import Query
from deceptron_paper.report.tables import TABLES, Table, make_tables
from deceptron_paper.study.records import Records, read
from paper.tests.synthetic import Sizes, write_study

SIZES = Sizes(
    instances=6,
    problems=("heat-1d", "heat-3d", "allen-cahn-2d"),
    sets=("test", "shifted"),
    seeds=(7, 8),
)


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory):
    """A whole synthetic study; copy it before changing it."""
    folder = tmp_path_factory.mktemp("study") / "synthetic"
    write_study(folder, SIZES)
    return folder


@pytest.fixture(scope="session")
def records(study_folder) -> Records:
    return read(study_folder)


@pytest.fixture(scope="session")
def query(records) -> Query:
    return Query(records)


@pytest.fixture(scope="session")
def tables(query) -> dict[str, Table]:
    """Every table by the name of the function that makes it."""
    return {make.__name__: table for make, table in zip(TABLES, make_tables(query), strict=True)}


@pytest.fixture(autouse=True, scope="module")
def _clean_registry():
    """Problems that a module defines are gone after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        yield
