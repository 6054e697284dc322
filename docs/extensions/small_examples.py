"""The gallery runs each example in the small setting of the tests, if what it needs is there."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SCRATCH = tempfile.TemporaryDirectory()
for talkative in ("jax", "skfem"):
    logging.getLogger(talkative).setLevel(logging.WARNING)


def _has(package: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(package) is not None


def _can_listen() -> bool:
    try:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
    except OSError:
        return False
    return True


# An example that is not runnable here is shown all the same, without output.
NEEDS: dict[str, Callable[[], bool]] = {
    "c_burgers": lambda: shutil.which("cc") is not None,
    "jax_wave_speed": _has("jax"),
    "measured_spectra": lambda: True,
    "scikit_fem_absorption": _has("skfem"),
    "scipy_predator_prey": lambda: True,
    "umbridge_beam": lambda: _has("umbridge")() and _can_listen(),
}


def runnable() -> list[str]:
    return [name for name, is_there in NEEDS.items() if is_there()]


def arguments(gallery: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """The command line of an example; the figure that it leaves open is shown on its page."""
    return ["--small", "--picture", str(Path(_SCRATCH.name) / "bars.png")]
