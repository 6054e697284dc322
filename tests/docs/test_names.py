"""What the pages name in code exists: files, commands, and names of the library."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import FENCE, ROOT, name, pages

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:[\w.-]+/)+[\w.*-]+\.(?:py|json|csv|jinja|md|toml)")
MODULE = re.compile(r"python -m ((?:benchmarks|tools)(?:[. ][a-z_]\w*)?)")
NAME = re.compile(r"(?<![\w.])(dc|deceptron|deceptron_paper)((?:\.[A-Za-z_]\w*)+)")
# Made by the reader, or by a run.
FOREIGN = re.compile(r"^(?:runs|cells|models|build|x\.zarr|out|checkpoints)/|\bNAME\b")
PLACES = (ROOT, *(ROOT / p for p in ("src/deceptron", "paper/src/deceptron_paper", "docs")))


def is_there(path: str) -> bool:
    return bool(FOREIGN.search(path)) or any(any(place.glob(path)) for place in PLACES)


def resolves(root: str, dotted: str) -> bool:
    """As an attribute, or as a module that is found without running it."""
    package = root if root == "deceptron_paper" else "deceptron"
    value: Any = importlib.import_module(package)
    parts = dotted.strip(".").split(".")
    for count, part in enumerate(parts, start=1):
        if not hasattr(value, part):
            where = ".".join((package, *parts[:count]))
            try:
                if importlib.util.find_spec(where) is None:
                    return False
            except ModuleNotFoundError:
                return False
            value = importlib.import_module(where)
        else:
            value = getattr(value, part)
    return True


def absent(text: str) -> list[str]:
    """Names in the code of a page, blocks apart, that lead nowhere."""
    found = []
    for code in CODE.findall(FENCE.sub("", text)):
        found += [path for path in FILE.findall(code) if not is_there(path)]
        for module in MODULE.findall(code):
            file = module.replace(".", "/").replace(" ", "/")
            if not ((ROOT / f"{file}.py").is_file() or (ROOT / file / "__init__.py").is_file()):
                found.append(code)
        found += [
            root + dotted for root, dotted in NAME.findall(code) if not resolves(root, dotted)
        ]
    return found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_what_a_page_names_exists(page: Path) -> None:
    assert absent(page.read_text()) == []


def test_a_lost_file_a_lost_command_and_a_lost_name_are_found() -> None:
    text = "`solve/nowhere.py`, `python -m benchmarks nothing`, `dc.solve_all(y)`; `dc.solve(y)`"
    assert absent(text) == ["solve/nowhere.py", "python -m benchmarks nothing", "dc.solve_all"]
