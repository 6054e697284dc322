"""Files that appear whole or not at all, and folders that one process has to itself."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, of the same suffix, that takes its place at the end.

    If the block fails, what was at ``path`` stays and nothing is left behind. A kill can leave the
    temporary file, whose name starts with a dot, but never half a file at ``path``.
    """
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def take_lock(folder: Path) -> IO[bytes]:
    """Reserve ``folder`` for this process until the file returned here is closed.

    BlockingIOError if another process has it; the system drops the lock of a dead one.
    """
    handle = open(folder / ".lock", "ab")  # noqa: SIM115
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not on Windows
        pass
    except BlockingIOError:
        handle.close()
        raise
    return handle
