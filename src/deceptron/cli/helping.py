"""Help that never breaks a name: not at its hyphens, and not in a narrow terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# Looks like a hyphen and is not a place to break a line; turned back into one on the way out.
_WHOLE = "\N{NON-BREAKING HYPHEN}"
_WIDEST, _NARROW = 90, 64


# What typer formats help with, by the only public name it has.
_Base: Any = typer.Context.formatter_class


class _Formatter(_Base):
    """Wraps between words only; where there is little room, help goes below its option."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST) - 2
        super().__init__(*arguments, **{**settings, "width": max(width, 24)})

    def write(self, string: str) -> None:
        super().write(string.replace(_WHOLE, "-"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, _whole(args), prefix)

    def write_text(self, text: str) -> None:
        super().write_text(_whole(text))

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        protected = [(first, _whole(second)) for first, second in rows]
        super().write_dl(protected, 4 if self.width < _NARROW else col_max, col_spacing)


class _Context(typer.Context):
    formatter_class = _Formatter


class Command(TyperCommand):
    """A command with such help."""

    context_class = _Context


class Group(TyperGroup):
    """A group of commands with such help, in the order in which they were added."""

    context_class = _Context


def _whole(text: str) -> str:
    return text.replace("-", _WHOLE)
