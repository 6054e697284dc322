"""Every table of a study, from its records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deceptron.report.query import Query
from deceptron.report.tables.amortisation import amortisation
from deceptron.report.tables.budget import equal_evaluations
from deceptron.report.tables.claims import claims
from deceptron.report.tables.criteria import criteria
from deceptron.report.tables.formats import to_csv, to_latex, to_markdown, write
from deceptron.report.tables.guarded import (
    guarded_in_distribution,
    guarded_off_distribution,
)
from deceptron.report.tables.jcp import equal_steps, jcp_effect
from deceptron.report.tables.methods import methods, methods_beside_paper
from deceptron.report.tables.operations import operations
from deceptron.report.tables.rjcp import rjcp_predicts
from deceptron.report.tables.seeds import seeds
from deceptron.report.tables.settings import hyperparameters, models
from deceptron.report.tables.shift import shift
from deceptron.report.tables.summary import summary
from deceptron.report.tables.table import Table

# In the order of the page: what was found, then how, then the settings.
TABLES: tuple[Callable[[Query], Table], ...] = (
    summary,
    methods,
    methods_beside_paper,
    shift,
    guarded_in_distribution,
    guarded_off_distribution,
    equal_evaluations,
    jcp_effect,
    equal_steps,
    rjcp_predicts,
    claims,
    seeds,
    amortisation,
    operations,
    models,
    hyperparameters,
    criteria,
)


def make_tables(query: Query) -> list[Table]:
    """Every table, with notes on what it looked for in vain."""
    made = []
    for make in TABLES:
        reader = query.fresh()
        table = make(reader)
        made.append(replace(table, notes=(*table.notes, *reader.notes())))
    return made


__all__ = [
    "TABLES",
    "Table",
    "make_tables",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write",
]
