"""The one discipline of a folder of work: a lock, a note of whose it is, no litter, no strangers.

Trainings, studies and file solves keep what is done in a folder, so that a killed one goes on where
it was. All of them open it here: one process at a time, the system drops the lock of a dead one;
work of other settings is refused, not mixed in; what a kill left half written is removed; and what
somebody else put there is left alone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from deceptron.core.errors import ConfigError
from deceptron.core.files import cannot_write, make_folder, read_json, remove_litter, write_json

LOCK = ".lock"


@dataclass(frozen=True)
class Folder:
    """A folder and what it is called in errors: ``kind`` is "study", ``note`` a file's name.

    ``inner`` are the folders within it that are made and cleaned too. ``shared`` folders may hold
    files of other people; one that is not must be new, empty, or hold the note.
    """

    path: Path
    kind: str
    note: str
    inner: tuple[str, ...] = ()
    shared: bool = True

    @contextmanager
    def taken(
        self,
        identity: Mapping[str, Any],
        *,
        check: Callable[[Path], None],
    ) -> Iterator[None]:
        """Hold the folder; ``check(note)`` raises if the note it has is not of this work."""
        if not self.shared:
            self._refuse_strangers()
        make_folder(self.path)
        with locked(self.path / LOCK, f"out={str(self.path)!r} is in use by another {self.kind}"):
            remove_litter(self.path)
            note = self.path / self.note
            if note.exists():
                check(note)
            else:
                if not self.shared:
                    self._refuse_strangers()
                write_json(note, identity)
            for place in (self.path / name for name in self.inner):
                make_folder(place)
                remove_litter(place)
            yield

    def note_environment(self, environment: Mapping[str, Any]) -> None:
        """Add to ``environment.json`` where the work was started or resumed."""
        path = self.path / "environment.json"
        found = read_json(path) or {}
        if not isinstance(found.get("resumed"), list):
            write_json(path, {"started": dict(environment), "resumed": []})
        else:
            write_json(path, {**found, "resumed": [*found["resumed"], dict(environment)]})

    def _refuse_strangers(self) -> None:
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise ConfigError(f"{self.path} must be a folder of a {self.kind}; it is none")
        if not self.path.is_dir() or (self.path / self.note).is_file():
            return
        names = sorted(entry.name for entry in self.path.iterdir() if entry.name != LOCK)
        if strangers := [name for name in names if not (name[0] == "." and ".partial" in name)]:
            raise ConfigError(
                f"{self.path} must be a folder of a {self.kind}; it has no {self.note}, but holds "
                f"{strangers[0]!r}: move it away"
            )


@contextmanager
def locked(path: Path, in_use: str) -> Iterator[None]:
    """Hold a lock file; ConfigError with the sentence ``in_use`` if somebody else does."""
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:  # an OSError too
        raise ConfigError(in_use) from None
    except OSError as error:
        raise cannot_write(path.parent, error.strerror or str(error)) from error
    try:
        yield
    finally:
        lock.release()


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What the bits of a result may depend on."""
    return {
        "library": metadata.version("deceptron"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "machine": platform.machine(),
        "device": str(device),
    }
