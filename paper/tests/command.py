"""Runs ``python -m deceptron_paper`` in this process, as a shell would."""

from __future__ import annotations

import sys

import pytest

from deceptron_paper.__main__ import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object, columns: int = 200) -> int:
    """Exit code of the command, in a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["deceptron_paper", *map(str, arguments)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
