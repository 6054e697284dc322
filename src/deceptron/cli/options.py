"""Words and checks that more than one command has."""

from __future__ import annotations

import typer

ENGINE = "Where to run: local (processes on this machine) or ray."
ADDRESS = "Address of a running Ray cluster."


def words(text: str | None) -> list[str] | None:
    """What commas separate."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def whole_numbers(option: str, text: str | None) -> list[int] | None:
    """The same as numbers, or a mistake in one sentence."""
    found = words(text)
    for word in found or ():
        if not word.isdecimal():
            raise typer.BadParameter(f"{option} must be whole numbers; got {word!r}")
    return None if found is None else [int(word) for word in found]


def shape(extents: tuple[int, ...]) -> str:
    """As ``1x32x32``."""
    return "x".join(map(str, extents))
