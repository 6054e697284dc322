"""Random streams named by what they are for, so that a resumed run needs no saved random state."""

from __future__ import annotations

import numpy as np
import torch

# Order is part of the result: new purposes go to the end.
PURPOSES = (
    "build",
    "shuffle",
    "cycle",
    "pairs",
    "probes",
    "bank",
    "val-probes",
    "val-noise",
    "modules",
    "probe-noise",
    "calibration-noise",
    "noise-levels",
    "sketch",
    "recalibration",
    "widened",
    "data laws",
)


def stream(seed: int, purpose: str, stage: int = 0, epoch: int = 0) -> torch.Generator:
    """The generator of one purpose in one epoch of one stage, on the CPU."""
    path = (seed, PURPOSES.index(purpose), stage, epoch)
    # The leading constant keeps these streams apart from those of the datasets.
    state = np.random.SeedSequence((0x747261696E, *path)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 2)
