"""Every public name is on a page of the reference, and every public field has words."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re

import pytest

import deceptron
from deceptron import problems, simulators
from deceptron.core import Cost, History
from deceptron.core.trust import Trust
from deceptron.solve import FileSummary, Method, Snapshot
from deceptron.solve.searches import AdaptiveDamping, Armijo, Wolfe
from deceptron.solve.span import Directions
from deceptron.train import Recipe, Stage, Weights
from tests.docs.pages import DOCS

ROOMS = {"deceptron": deceptron, "deceptron.problems": problems, "deceptron.simulators": simulators}
CLASSES = {
    value
    for room in ROOMS.values()
    for value in (getattr(room, name) for name in room.__all__)
    if inspect.isclass(value) and not issubclass(value, (Exception, int))
} | {
    *(Cost, FileSummary, History, Method, Recipe, Snapshot, Stage, Trust, Weights),
    *(AdaptiveDamping, Armijo, Directions, Wolfe),
}
FUNCTIONS = {
    f"{room}.{name}": getattr(module, name)
    for room, module in ROOMS.items()
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
} | {f"methods.{name}": method for name, method in deceptron.methods.METHODS.items()}


def on_pages() -> str:
    return "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize("room", [*ROOMS, "deceptron.measure", "deceptron.plot", "deceptron.work"])
def test_every_public_name_has_an_entry(room: str) -> None:
    text = on_pages()
    missing = [
        name
        for name in importlib.import_module(room).__all__
        if not re.search(rf"^\.\. auto\w+:: {re.escape(room)}\.{name}$", text, re.M)
    ]
    assert missing == []


def undocumented(kind: type) -> list[str]:
    """Public fields that neither the class nor one it derives from says anything about."""
    words = "\n".join(inspect.getdoc(base) or "" for base in kind.__mro__[:-1])
    wanted = (
        {field.name for field in dataclasses.fields(kind)}
        if dataclasses.is_dataclass(kind)
        else set()
    )
    wanted |= set(inspect.get_annotations(kind))
    return sorted(
        name
        for name in wanted
        if not name.startswith("_")
        and not isinstance(inspect.getattr_static(kind, name, None), property)
        and not re.search(rf"(^|``|[ ,]){name}(``|:|, \w+.*:)", words, re.M)
    )


@pytest.mark.parametrize("kind", sorted(CLASSES, key=str), ids=lambda kind: kind.__name__)
def test_every_public_field_has_words(kind: type) -> None:
    assert undocumented(kind) == []


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_argument_has_words(name: str) -> None:
    """``rjcp`` has those of ``jcp`` and says so."""
    words = inspect.getdoc(FUNCTIONS[name]) or ""
    untold = [
        argument
        for argument in inspect.signature(FUNCTIONS[name]).parameters
        if not re.search(rf"^    {argument}: ", words, re.M)
    ]
    assert untold == [] or "which has the same arguments" in words


def test_a_field_without_words_is_found() -> None:
    @dataclasses.dataclass
    class Sample:
        """``told`` is told."""

        told: int
        untold: int

    assert undocumented(Sample) == ["untold"]
