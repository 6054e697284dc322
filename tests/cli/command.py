"""Runs the command in this process, as a shell would."""

from __future__ import annotations

import sys

import pytest

from deceptron import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object, columns: int = 200) -> int:
    """Exit code of ``deceptron ARGUMENTS``, in a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["deceptron", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)
