"""The laboratory is built on what the library offers to everybody."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import deceptron_paper

FILES = sorted(Path(deceptron_paper.__file__).parent.rglob("*.py"))
PUBLIC = {
    "deceptron",
    "deceptron.core",
    "deceptron.geometry",
    "deceptron.maps",
    "deceptron.measure",
    "deceptron.plot",
    "deceptron.problems",
    "deceptron.solve",
    "deceptron.train",
    "deceptron.work",
}
# Documented where they are: what arguments of methods take.
DOCUMENTED = {("deceptron.solve.searches", "Armijo")}


def taken(text: str) -> Iterator[tuple[str, str]]:
    """What a file takes from the library: module and name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "deceptron":
            yield from ((str(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if name.split(".")[0] == "deceptron")


def hidden(text: str) -> list[tuple[str, str]]:
    """What of it is not public."""
    return [
        (module, name)
        for module, name in taken(text)
        if (module, name) not in DOCUMENTED
        and not (module in PUBLIC and name in importlib.import_module(module).__all__)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_takes_public_names_only(path: Path) -> None:
    assert hidden(path.read_text(encoding="utf-8")) == []


def test_names_that_are_not_public_are_found() -> None:
    assert len(FILES) > 40
    text = "from deceptron.core.files import replacing\nfrom deceptron import solve, _ROOMS\n"
    assert hidden(text) == [("deceptron.core.files", "replacing"), ("deceptron", "_ROOMS")]
    assert hidden("import deceptron.core.work\n") == [("deceptron.core.work", "")]
