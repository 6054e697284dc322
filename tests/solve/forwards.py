"""Forward maps that a module defines, so that other processes can have them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torch import Tensor


def softened(x: Tensor) -> Tensor:
    return x + 0.1 * x.tanh()


class DiesOnce:
    """The first call with many rows kills its process; where, it says in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, x: Tensor) -> Tensor:
        note = self.folder / "died"
        if len(x) > 1 and not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return softened(x)
