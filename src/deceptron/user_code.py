"""Problems and simulators in a user's own file, for the command line: ``mine.py:problem``.

Such a file is run, as ``python mine.py`` would run it, and only where a command names it. A run
folder remembers the file that its problem came from, so that ``solve RUN --simulator`` finds it; a
folder from elsewhere cannot bring code along: the note must be an absolute path outside of it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from deceptron import problems as library
from deceptron.core.errors import ConfigError, DeceptronError, in_words
from deceptron.core.files import read_json, write_json
from deceptron.problems import Problem

OWN = "own"
NOTE = "problem.json"


@dataclass(frozen=True)
class Forward:
    """A simulator to solve on, and whether it has derivatives; None where it says so itself."""

    simulate: Callable[..., Any]
    differentiable: bool | None
    words: str


def find_problem(text: str) -> Problem:
    """The problem of this name, or that of ``file.py:name``."""
    if not _is_place(text):
        return library.get(text)
    found = load_object(text)
    if not isinstance(found, Problem):
        raise ConfigError(
            f"{text} must be a problem, as dc.problems.define gives it; got {type(found).__name__}"
        )
    return found


def remember(folder: Path, text: str) -> None:
    """Note in a run folder which file its problem came from."""
    if not _is_place(text):
        return
    path, name = _place(text)
    write_json(folder / NOTE, {"file": str(path.resolve()), "name": name})


def find_forward(text: str, *, model: str, name: str | None) -> Forward:
    """What ``--simulator`` asks for: ``file.py:name``, or with ``own`` that of the pair's problem.

    ``model`` is what the command calls the pair and ``name`` the problem it was trained on.
    """
    if text == OWN:
        text = _noted(Path(model)) or name or ""
        if not _is_place(text) and text not in library.names():
            raise ConfigError(
                f"--simulator: {model} does not say where the simulator of its problem is; "
                "pass --simulator file.py:name"
            )
    found = find_problem(text) if not _is_place(text) else load_object(text)
    if isinstance(found, Problem):
        if not found.has_simulator:
            raise ConfigError(f"--simulator: {text} was made from data and has no simulator")
        return Forward(found.simulate, None, text)
    if not callable(found):
        raise ConfigError(
            f"--simulator {text} must be a problem or a function of rows; "
            f"got {type(found).__name__}"
        )
    return Forward(found, getattr(found, "differentiable", None), text)


def load_object(text: str) -> Any:
    """The object ``name`` of the file in ``file.py:name``."""
    path, name = _place(text)
    module = _module(path)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if isinstance(value, Problem)]
        hint = f"; its problems are {', '.join(known)}" if known else ""
        raise ConfigError(f"{path} has no {name!r}{hint}")
    return getattr(module, name)


def _is_place(text: str) -> bool:
    return ".py:" in text or text.endswith(".py")


def _place(text: str) -> tuple[Path, str]:
    path, _, name = text.rpartition(":")
    if not path:
        raise ConfigError(f"{text} must say which object of the file is meant, as {text}:problem")
    return Path(path), name


def _module(path: Path) -> ModuleType:
    path = path.resolve()
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        raise ConfigError(f"{path.name} has the name of another module, {path.stem}: rename it")
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Found by its name from here on: by what it imports, and by processes that it starts.
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except DeceptronError:
        del sys.modules[path.stem]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        raise ConfigError(f"{path.name} raises {in_words(error)}") from error
    return module


def _noted(folder: Path) -> str | None:
    folder = folder if folder.is_dir() else folder.parent
    note = read_json(folder / NOTE) or {}
    if not isinstance(note.get("file"), str) or "name" not in note:
        return None
    path, name = Path(note["file"]), str(note["name"])
    if not path.is_absolute() or folder.resolve() in path.resolve().parents:
        raise ConfigError(
            f"{folder / NOTE} names code inside the run folder, which is not run: "
            "pass --simulator file.py:name"
        )
    return f"{path}:{name}"
