"""Every table of a study, from its records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deceptron_paper.report.query import Query
from deceptron_paper.report.tables.amortisation import amortisation
from deceptron_paper.report.tables.beside_paper import (
    jcp_effect,
    methods_beside_paper,
    seeds,
    summary,
)
from deceptron_paper.report.tables.claims import claims
from deceptron_paper.report.tables.equal_steps import equal_steps
from deceptron_paper.report.tables.formats import write
from deceptron_paper.report.tables.methods import equal_evaluations, methods, operations, shift
from deceptron_paper.report.tables.rjcp import rjcp_predicts
from deceptron_paper.report.tables.settings import criteria, hyperparameters, models
from deceptron_paper.report.tables.table import Table

# In the order of the page: what was found, then how, then the settings.
TABLES: tuple[Callable[[Query], Table], ...] = (
    summary,
    methods,
    methods_beside_paper,
    shift,
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


__all__ = ["TABLES", "Table", "make_tables", "write"]
