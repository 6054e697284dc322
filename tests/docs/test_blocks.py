"""Every code block of README and docs runs as it stands, a page in one folder and one namespace."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from deceptron import cli
from deceptron.problems import Problem, registry
from deceptron.train import Recipe, presets
from tests.docs.pages import Block, blocks, name, pages

# The first line of a block that is a file.
FILE = re.compile(r"# (?P<stem>\w+)\.py\n")
STAGES = ("forward", "reverse", "jcp")


def has_code(page: Path) -> bool:
    return any(block.language in ("python", "sh") for block in blocks(page.read_text()))


WITH_CODE = [page for page in pages() if has_code(page)]


def shortened(recipe: Callable[[Problem, str], Recipe]) -> Callable[[Problem, str], Recipe]:
    """The same stages and networks, one epoch of 256 rows each."""

    def short(problem: Problem, preset: str) -> Recipe:
        full = recipe(problem, preset)
        stages = {stage: replace(getattr(full, stage), epochs=1) for stage in STAGES}
        return replace(full, **stages, train_rows=256, val_rows=64, correction_limit=64)

    return short


@pytest.fixture(autouse=True)
def in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, short trainings, and no problem left defined for other tests."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    short = shortened(presets.recipe)
    monkeypatch.setattr(sys.modules["deceptron.train"], "recipe", short)
    monkeypatch.setattr(sys.modules["deceptron.train.api"], "preset_recipe", short)
    defined = dict(registry._DEFINED)
    yield
    registry._DEFINED.clear()
    registry._DEFINED.update(defined)


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_every_block_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.reason is None:
            run(block, page, names, monkeypatch)


def run(block: Block, page: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if block.language == "python":
        file = FILE.match(block.body)
        if file is not None:
            Path(f"{file['stem']}.py").write_text(block.body)
            monkeypatch.delitem(sys.modules, file["stem"], raising=False)
            return
        # Padded, so that a traceback names the line of the page.
        padded = "\n" * (block.line - 1) + block.body
        exec(compile(padded, str(page), "exec"), names)
    elif block.language == "sh":
        for line in block.body.splitlines():
            if line.startswith("deceptron "):
                monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
                with pytest.raises(SystemExit) as ended:
                    cli.main()
                assert ended.value.code in (0, None), f"{name(page)}: {line}"


def test_most_blocks_run() -> None:
    every = [block for page in WITH_CODE for block in blocks(page.read_text())]
    python = [block for block in every if block.language == "python"]
    assert len(python) > 40
    assert sum(block.reason is not None for block in python) <= len(python) // 10


def test_a_block_with_a_reason_is_found_and_others_are_not() -> None:
    text = "*Not run by the tests: needs Slurm.*\n\n```sh\na\n```\n\nWords.\n\n```python\nb\n```\n"
    assert [block.reason for block in blocks(text)] == ["needs Slurm.", None]


def test_a_block_that_fails_is_told_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("words\n\n```python\nx = 1\nx.missing\n```\n")
    with pytest.raises(AttributeError) as caught:
        run(block, Path("page.md").resolve(), {}, monkeypatch)
    assert caught.traceback[-1].lineno + 1 == 5
