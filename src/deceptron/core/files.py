"""Files that appear whole or not at all: written under a temporary name, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
