"""Cells as text, and one small table in each format."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from deceptron_paper.report.tables.formats import to_csv, to_latex, to_markdown, write
from deceptron_paper.report.tables.table import (
    Column,
    Count,
    Exact,
    Probability,
    Spread,
    Table,
    difference,
    differences,
    measured,
    number,
    paper_line,
    sort_key,
    text,
)
from deceptron_paper.statistics import Interval


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1190001, "0.119"),
        (1.0, "1.00"),
        (0.99951, "1.00"),
        (12.34, "12.3"),
        (2843.0, "2840"),
        (-0.5, "-0.500"),
        (0.0, "0"),
        (0.000123456, "0.000123"),
        (1.5e-5, "1.50e-05"),
        (2.5e7, "2.50e+07"),
        (np.nan, "-"),
        (np.inf, "inf"),
    ],
)
def test_three_significant_digits(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (Interval(0.119, 0.1151, 0.1229, 80), "0.119 [0.115, 0.123]"),
        (Interval(0.00107, 0.000968, 0.00116, 80), "0.00107 [0.00097, 0.00116]"),
        (Interval(4.6e-5, -0.000142, 0.000171, 80), "0.000046 [-0.000142, 0.000171]"),
        (Interval(3.0, np.nan, np.nan, 1), "3.00"),
        (Interval(0.0, 0.0, 0.0, 9), "0 [0, 0]"),
        (Spread(0.95, 0.0866), "0.950 ± 0.087"),
        (Spread(0.95, np.nan), "0.950"),
        (Probability(0.0004), "<0.001"),
        (Probability(0.0312), "0.031"),
        (Probability(np.nan), "-"),
        (Count(12), "12*"),
        (Count(80), "80"),
        (Exact(6.5), "6.5"),
        (Exact(6.0), "6"),
        (None, "-"),
        (7, "7"),
    ],
)
def test_cells(cell, shown):
    assert text(cell) == shown


def test_difference_is_ours_minus_the_papers():
    assert difference(Interval(0.5, 0.4, 0.6, 9), 0.2) == pytest.approx(0.3)
    assert difference(Exact(7.0), Exact(5.0)) == Exact(2.0)
    assert difference(None, 0.2) is None
    assert difference("lm", "gd") is None


TABLE = Table(
    "demo",
    "A demo",
    "Caption with 50% & under_score.",
    (
        Column("problem", "problem"),
        Column("rmse", "RMSE", "ours"),
        Column("p", "p", "ours"),
        Column("word", "word"),
    ),
    (
        {
            "problem": "heat-1d",
            "rmse": Interval(0.123456789, 0.1, 0.15, 40),
            "p": Probability(0.2),
            "word": "a|b",
        },
        {"problem": "heat-1d", "word": "x < y"},
        {
            "problem": "heat-2d",
            "rmse": Interval(1.0, np.nan, np.nan, 1),
            "p": Probability(0.00001),
            "word": "",
        },
    ),
    ("A note.",),
)


def test_csv_has_plain_numbers():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == {
        "problem": "heat-1d",
        "rmse": "0.123457",
        "rmse_low": "0.1",
        "rmse_high": "0.15",
        "p": "0.2",
        "word": "a|b",
    }
    assert rows[1]["problem"] == "heat-1d"
    assert rows[1]["rmse"] == rows[1]["rmse_low"] == rows[1]["p"] == ""
    assert rows[2]["rmse_low"] == ""


def test_markdown_is_aligned_and_says_repeated_names_once():
    lines = to_markdown(TABLE).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert table[0].split("|")[2].strip() == "RMSE, ours"
    assert table[3].split("|")[1].strip() == ""
    assert r"a\|b" in table[2]
    assert lines[0] == "## A demo"
    assert lines[-1] == "A note."


def test_latex_is_booktabs_and_escaped():
    tex = to_latex(TABLE)
    for part in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\cmidrule(lr){2-3}",
        r"\label{tab:demo}",
    ):
        assert part in tex
    assert r"50\% \& under\_score" in tex
    assert "x $<$ y" in tex
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 1
    assert all(line.count("&") - line.count(r"\&") in (0, 3, 2) for line in tex.splitlines())


def test_a_long_latex_table_continues_between_blocks():
    rows = tuple({"a": f"block {k // 20}", "b": k} for k in range(100))
    long = Table("long", "Long", "Words.", (Column("a", "a"), Column("b", "b")), rows)
    tex = to_latex(long)
    assert tex.count(r"\begin{table}[p]") == 3  # 40, 40 and 20 rows
    assert tex.count(r"\label") == 1
    assert "Long, continued." in tex


def test_files_appear_in_three_formats(tmp_path):
    write(TABLE, tmp_path / "tables")
    paths = sorted((tmp_path / "tables").iterdir())
    assert [path.name for path in paths] == ["demo.csv", "demo.md", "demo.tex"]
    assert all(path.read_text(encoding="utf-8") for path in paths)


def test_a_line_with_a_key_that_no_column_has_is_refused():
    with pytest.raises(ValueError, match="table x has no column b"):
        Table("x", "x", "x", (Column("a", "a"),), ({"a": 1, "b": 2},))


def test_columns_measure_themselves():
    columns = (
        Column("size", "size", value=len, paper=lambda problem: 7.0),
        Column("name", "name"),
    )
    ours = measured(columns, [1, 2, 3])
    assert ours == {"size": 3}
    assert paper_line(columns, "heat-1d") == {"size": 7.0}
    assert differences({"size": 3.0}, {"size": 7.0}) == {"size": -4.0}


@pytest.mark.parametrize(
    ("line", "shown"),
    [({}, False), ({"a": "heat-1d"}, False), ({"a": "x", "b": "y"}, True), ({"b": 2.0}, True)],
)
def test_a_table_of_labels_and_dashes_has_no_content(line, shown):
    assert Table("x", "x", "x", (Column("a", "a"), Column("b", "b")), (line,)).has_content is shown


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        (Interval(0.123456789, 0.1, 0.2, 9), "0.123456789"),
        (Spread(2.0, 0.1), "2.0"),
        (Count(12), "12"),
        (np.nan, ""),
        (None, ""),
        ("words", "words"),
    ],
)
def test_programs_sort_by_all_digits(cell, key):
    assert sort_key(cell) == key
