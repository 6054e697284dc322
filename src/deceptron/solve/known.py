"""What a pair says about itself, asked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike

import torch
from jaxtyping import Int
from torch import Tensor

from deceptron.core.arrays import weight_of
from deceptron.core.box import Bounds
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.laws.calibration import Calibration, calibration_of
from deceptron.solve.evaluation import in_evaluation
from deceptron.solve.methods import Method

_UNSCALED = Scaler()


@dataclass(frozen=True, eq=False)
class Known:
    """What a pair says about itself, asked once; a bare callable is an f that knows nothing.

    ``trained_g`` is its g whatever the noise that this solve was told: its limits of trust are of
    that one.
    """

    f: RowMap
    g: RowMap | None
    trained_g: RowMap | None
    scaler: Scaler
    bounds: Bounds | None
    x_shape: tuple[int, ...] | None
    y_shape: tuple[int, ...] | None
    wiener: RowMap | None
    calibration: Calibration
    like: Tensor | None

    @staticmethod
    def of(pair: Pair | RowMap) -> Known:
        """What ``pair`` has of it."""
        f: RowMap | None = getattr(pair, "f", None)
        g: RowMap | None = getattr(pair, "g", None)
        if f is None or g is None:
            f, g = (pair if callable(pair) else None), None
        if f is None:
            instead = ": dc.load(...) gives a pair" if isinstance(pair, (str, PathLike)) else ""
            if hasattr(pair, "simulate"):
                instead = ": dc.train(problem) gives a pair, and the classical methods take "
                instead += "problem.simulate"
            raise ConfigError(
                f"pair must have f and g or be callable; got {type(pair).__name__}{instead}"
            )
        return Known(
            f=in_evaluation(f),
            g=in_evaluation(g),
            trained_g=g,
            scaler=in_evaluation(getattr(pair, "scaler", None) or _UNSCALED),
            bounds=getattr(pair, "bounds", None),
            x_shape=getattr(pair, "x_shape", None),
            y_shape=getattr(pair, "y_shape", None),
            wiener=in_evaluation(getattr(pair, "wiener", None)),
            calibration=calibration_of(pair),
            like=weight_of(pair),
        )

    def starts_at_linear_estimate(self, method: Method, x0: Tensor | None) -> bool:
        """Asked for by name, or by a calibration that found it the better start."""
        if method.start == "finite reverse":
            return x0 is None and self.wiener is not None and self.calibration.start == "wiener"
        return method.start == "wiener"

    def rows_alike(
        self, pair: Pair | RowMap, noise_std: object, rows: int
    ) -> list[Int[Tensor, " k"]]:
        """The rows of y for which the pair has the same g at this noise."""
        everyone = torch.arange(rows)
        levels_of = getattr(pair, "g_levels", None)
        if noise_std is None or levels_of is None or self.g is None:
            return [everyone]
        levels = levels_of(noise_std)
        if levels is None or len(levels) == 1:
            return [everyone]
        levels = levels.cpu()
        return [everyone[levels == level] for level in levels.unique()]

    def at_noise(self, pair: Pair | RowMap, noise_std: object) -> Known:
        """With the g that the pair has for this noise, which is the same for all rows."""
        bind = getattr(pair, "at_noise", None)
        if noise_std is None or bind is None or self.g is None:
            return self
        return replace(self, g=in_evaluation(bind(noise_std).g))
