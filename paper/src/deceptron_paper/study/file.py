"""A study from a TOML file; a mistake in it is reported with its line before anything runs.

::

    name = "mine"
    missing_models = "skip"      # or "train", "smoke"

    [[block]]
    problems = ["heat-1d", "darcy-2d"]
    sets = ["test", "shifted"]
    models = ["standard"]
    seeds = [7]
    methods = ["one-shot", "d-ipg", "lm-tuned"]
    instances = 80
    max_iterations = 40          # may be left out: the method's own limit
    error_bars = 16              # may be left out: none are held against the truth
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from deceptron import ConfigError, DeceptronError
from deceptron.core import unknown_name
from deceptron_paper.study.grid import NAMED, Block, Study, known

_STUDY = ("name", "small", "missing_models", "block")
_BLOCK = tuple(entry.name for entry in fields(Block))


def load_study(path: Path) -> Study:
    """The study that a file describes; without a ``name`` it is called like the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the study file {path}: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    # A comment may name what the setting below it gets wrong.
    source = _Source(path, [re.sub(r"#.*", "", line) for line in text.splitlines()])
    for key in document:
        if key not in _STUDY:
            raise source.error(unknown_name("setting", key, _STUDY), key)
    entries = document.pop("block", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise source.error(ConfigError("blocks are written as [[block]]"), "block")
    blocks = tuple(_block(entry, source.block(number)) for number, entry in enumerate(entries))
    settings = {"name": path.stem, **document}
    for key, kind in (("name", str), ("small", bool)):
        value = settings.get(key, kind())
        if not isinstance(value, kind):
            wrong = ConfigError(f"{key} must be a {kind.__name__}; got {value!r}")
            raise source.error(wrong, key)
    try:
        return Study(**settings, blocks=blocks)
    except DeceptronError as error:
        raise source.error(
            error, "missing_models" if "missing_models" in str(error) else ""
        ) from error


def _block(entry: dict[str, Any], source: _Source) -> Block:
    for key, value in entry.items():
        if key not in _BLOCK:
            raise source.error(unknown_name("setting of a block", key, _BLOCK), key)
        if key in (*NAMED, "seeds"):
            if not isinstance(value, list) or not value:
                raise source.error(
                    ConfigError(f"{key} must be a non-empty list; got {value!r}"), key
                )
            for name in value if key in NAMED else ():
                if name not in known(key):
                    error = unknown_name(key.removesuffix("s"), name, known(key))
                    raise source.error(error, key, str(name))
    for key in ("methods", "instances"):
        if key not in entry:
            raise source.error(ConfigError(f"a block must have {key}"), "")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    try:
        return Block(**values)
    except DeceptronError as error:
        key = next((k for k in entry if str(error).startswith(k)), "")
        raise source.error(error, key) from error


@dataclass(frozen=True)
class _Source:
    """Finds the line that a mistake stands on; tomllib does not keep it."""

    path: Path
    lines: list[str]
    first: int = 0  # where in the file the lines begin

    def block(self, number: int) -> _Source:
        """The part of the file that holds one [[block]]."""
        header = re.compile(r"\s*\[\[\s*block\s*\]\]")
        heads = [k for k, line in enumerate(self.lines) if header.match(line)]
        if number >= len(heads):  # blocks written inline: the whole file is as near as it gets
            return self
        first, last = [*heads, None][number : number + 2]
        return _Source(self.path, self.lines[first:last], heads[number])

    def error(self, error: DeceptronError, key: str, value: str | None = None) -> ConfigError:
        """The error with the file and the line of ``key``, or of ``value`` at or after it."""
        at = self._find(re.compile(rf"\s*(\[*\s*)?[\"']?{re.escape(key)}\b"), 0) if key else 0
        if value is not None:
            at = self._find(re.compile(rf".*[\"']{re.escape(value)}[\"']"), at)
        return ConfigError(f"{self.path}, line {self.first + at + 1}: {error}")

    def _find(self, pattern: re.Pattern[str], start: int) -> int:
        places = range(start, len(self.lines))
        return next((k for k in places if pattern.match(self.lines[k])), start)
