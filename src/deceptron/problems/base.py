"""What every problem of the library is: a simulator, its latents, its box and its noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, Generic, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core import html
from deceptron.core.arrays import real_tensor
from deceptron.core.box import Bounds, Box, sides
from deceptron.core.checks import check_choice, check_count, check_range, check_rows, check_seed
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.units import units_of
from deceptron.problems.dataset import Dataset, Split
from deceptron.problems.fields import draw_in_blocks, normal
from deceptron.problems.prior import LowRankPrior, Prior, PriorInUnits

FAMILIES = ("prior", "shifted", "extreme")
PRIOR_SAMPLES = 2048
PRIOR_SEED = 20
# Share of the width of the box that round-off may leave it by.
BOX_SLACK = 1e-4


@dataclass(frozen=True, kw_only=True)
class Family:
    """Numbers of one latent family; ``noise_factor`` multiplies the noise of its test set."""

    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        check_range("noise_factor", self.noise_factor, low=0.0)


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """A family of inverse problems; ``simulate`` is batched, differentiable and noise-free.

    Shapes: a one-dimensional field is a vector ``(n,)``; fields in the plane and in space carry a
    leading channel, ``(channels, n, n)`` or ``(channels, n, n, n)``.

    Attributes:
        name: under which runs and models know it.
        noise_std: standard deviation of the noise, a number or one row of y.
        bounds: ``(low, high)`` of the latents, numbers or one row of x each.
        train_count: rows of ``dataset(seed).train``.
        val_count: rows of ``.val``.
        test_count: rows of ``.test``.
        shifted_count: rows of ``.shifted``.
        extreme_count: rows of ``.extreme``.
        scaling: whether observations are normalised by ``"component"`` or by ``"channel"``.
        checks: whether ``simulate`` refuses latents outside of the bounds.
        differentiable: whether derivatives flow through ``simulate``.
        equation: what it solves, in a line.
        paper: what of it is the paper's.
    """

    name: str
    noise_std: float | Tensor
    bounds: Bounds = (0.0, 1.0)
    train_count: int = 3000
    val_count: int = 300
    test_count: int = 80
    shifted_count: int = 300
    extreme_count: int = 300
    scaling: Literal["component", "channel"] = "channel"
    checks: bool = True
    differentiable: bool = field(default=True, init=False, repr=False)
    equation: str = field(default="", repr=False)
    paper: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("train", "val", "test", "shifted", "extreme"):
            check_count(f"{name}_count", getattr(self, f"{name}_count"))
        check_choice("scaling", self.scaling, ("component", "channel"))
        object.__setattr__(self, "noise_std", _noise(self.noise_std, self.y_shape))
        object.__setattr__(self, "bounds", sides(self.bounds))
        Box.parse(self.bounds, self.x_shape, torch.empty(0))

    @property
    @abstractmethod
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one latent."""

    @property
    @abstractmethod
    def y_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""

    def simulate(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
        """Noise-free observations of latents, row by row; gradients and jvps flow through."""
        check_rows("x", x, self.x_shape)
        if self.checks:
            self._check_box(x)
        return self._simulate(x)

    def sample(
        self,
        count: int,
        *,
        generator: Generator | None = None,
        family: str = "prior",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "count *x"]:
        """Latents of a family; a row does not depend on how many are drawn after it.

        The generator lives on the CPU, so every device sees the same latents. Without one they are
        drawn afresh, from torch's global generator.
        """
        check_count("count", count)
        check_choice("family", family, FAMILIES)
        rows = self._sample(count, _generator(generator), family)
        return rows.to(dtype=dtype or torch.get_default_dtype(), device=device)

    def add_noise(
        self,
        y: Float[Tensor, "B *y"],
        *,
        generator: Generator | None = None,
        family: str = "prior",
        ratio: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B *y"]:
        """Observations as a sensor gives them; the noise of a row ignores the rows after it.

        ``ratio`` multiplies the noise of each row.
        """
        check_rows("y", y, self.y_shape)
        check_choice("family", family, FAMILIES)
        return self._add_noise(y, generator, family, ratio)

    def dataset(self, seed: int, *, dtype: torch.dtype = torch.float32) -> Dataset:
        """Train, val, test, shifted and extreme sets and their scaler; made when asked for."""
        return Dataset(self, check_seed(seed), dtype)

    @cached_property
    def prior(self) -> Prior:
        """Mean and covariance of the prior family."""
        return self._prior()

    def noise_factor(self, family: str) -> float:
        """What the noise of this family's test set is multiplied by."""
        return 1.0

    @property
    def carries_noise(self) -> bool:
        """Whether training and validation rows are noisy already; measured ones are."""
        return False

    @property
    def has_simulator(self) -> bool:
        """Whether ``simulate`` works; a problem made from data has none."""
        return True

    def unchecked(self) -> Problem:
        """The same problem whose ``simulate`` takes latents outside the box as they come."""
        return replace(self, checks=False)

    def __str__(self) -> str:
        """What it is in a few lines; ``repr`` has every field."""
        facts = "\n".join(f"  {name}: {value}" for name, value in self._facts().items())
        return f"Problem {self.name}\n{facts}"

    def _repr_html_(self) -> str:
        """For notebooks: the equation, its shapes, its bounds and its noise."""
        return html.facts(f"Problem {self.name}", self._facts())

    def _facts(self) -> dict[str, str]:
        derivatives = "yes" if self.differentiable else "none: values only"
        if not self.has_simulator:
            derivatives = "none: made from data, without a simulator"
        return {
            **({"equation": self.equation} if self.equation else {}),
            "latent x": html.shape(self.x_shape),
            "observation y": html.shape(self.y_shape),
            "bounds of x": html.ends(*self.bounds),
            "noise of y": html.number(self.noise_std),
            "rows": f"{self.train_count} to train on, {self.val_count} to validate",
            "derivatives": derivatives,
        }

    def _add_noise(
        self, y: Tensor, generator: Generator | None, family: str, ratio: Tensor | None
    ) -> Tensor:
        shape = self.y_shape
        white = draw_in_blocks(len(y), _generator(generator), lambda g: normal(g, *shape)).to(y)
        if ratio is not None:
            white = white * ratio.to(y).reshape(-1, *(1,) * (y.ndim - 1))
        return self._sensor(y + self.noise_factor(family) * self._noise(y) * white)

    def _split(self, data: Dataset, name: str, family: str, count: int, noisy: bool) -> Split:
        return data._simulated(name, family, count, noisy)

    @abstractmethod
    def _simulate(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _sample(self, count: int, generator: Generator, family: str) -> Tensor: ...

    def _prior(self) -> Prior:
        samples = self._prior_samples()
        units = units_of(samples)
        if units is None:
            return LowRankPrior.estimate(samples)
        without = LowRankPrior.estimate(units.reduced(samples))
        return PriorInUnits(units.physical(without.mean), without, units.scale)

    def _prior_samples(self) -> Tensor:
        generator = Generator().manual_seed(PRIOR_SEED)
        return self.sample(PRIOR_SAMPLES, generator=generator, dtype=torch.float64)

    def _sensor(self, y: Tensor) -> Tensor:
        return y

    def _noise(self, y: Tensor) -> float | Tensor:
        return self.noise_std.to(y) if isinstance(self.noise_std, Tensor) else self.noise_std

    def _check_box(self, x: Tensor) -> None:
        low, high = (s.to(x) if isinstance(s, Tensor) else s for s in self.bounds)
        width = torch.as_tensor(high - low)
        slack = BOX_SLACK * torch.where(width.isfinite(), width, 1.0)
        # Comparisons carry no derivative, so this is safe inside any transform but vmap;
        # NaN compares false and is caught too.
        inside = (x >= low - slack) & (x <= high + slack)
        if bool(inside.all()):
            return
        row = int((~inside).flatten(1).any(1).nonzero()[0])
        values = x[row].detach()
        if not bool(values.isfinite().all()):
            bad = int((~values.isfinite()).sum())
            raise ConfigError(f"x must be finite; row {row} holds {bad} non-finite value(s)")
        place = tuple((~inside[row]).nonzero()[0].tolist())
        sides = (torch.as_tensor(s).to(values).broadcast_to(values.shape) for s in (low, high))
        bounds = ", ".join(f"{float(side[place]):g}" for side in sides)
        where = ", ".join(map(str, (row, *place)))
        raise ConfigError(
            f"x must lie in the box [{bounds}] of {self.name}; x[{where}] is "
            f"{float(values[place]):g}: clip it, or use problem.unchecked()"
        )


def _noise(noise_std: Any, y_shape: tuple[int, ...]) -> float | Tensor:
    if isinstance(noise_std, Real):
        return check_range("noise_std", float(noise_std), low=0.0, high=math.inf, open_high=True)
    level = real_tensor("noise_std", noise_std)
    known = (level > 0) & level.isfinite()
    if not bool(known.all() | (level == 0).all()):
        wrong = level[~known]
        raise ConfigError(
            "noise_std must be finite and > 0 in every component, or 0 in all; "
            f"got {float(wrong[0]):g} in {len(wrong)} of {level.numel()}"
        )
    try:
        level.broadcast_to(y_shape)
    except RuntimeError:
        raise ShapeError(
            f"noise_std must broadcast to one row of y, shape {y_shape}; got {tuple(level.shape)}"
        ) from None
    return level if level.is_floating_point() else level.double()


def _generator(generator: Generator | None) -> Generator:
    if generator is None:
        return Generator().manual_seed(int(torch.randint(2**62, ())))
    if not isinstance(generator, Generator) or generator.device.type != "cpu":
        raise ConfigError(f"generator must be a torch.Generator on the CPU; got {generator!r}")
    return generator


F = TypeVar("F", bound=Family)


@dataclass(frozen=True, kw_only=True)
class SampledProblem(Problem, Generic[F]):
    """A problem on a grid whose three families follow one recipe with other numbers.

    Latents and observations are fields in the plane, of one channel, unless it says otherwise.
    """

    grid: int
    latents: F
    shifted: F
    extreme: F

    def __post_init__(self) -> None:
        check_count("grid", self.grid, low=2)
        kind = type(type(self).__dataclass_fields__["latents"].default)
        for name in ("latents", "shifted", "extreme"):
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name} must be a {kind.__name__}; got {getattr(self, name)!r}")
        super().__post_init__()

    @property
    def x_shape(self) -> tuple[int, ...]:
        """One channel on the grid."""
        return (1, self.grid, self.grid)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The same grid as the latent."""
        return self.x_shape

    def noise_factor(self, family: str) -> float:
        """What the noise of this family's test set is multiplied by."""
        return self._numbers(family).noise_factor

    def _numbers(self, family: str) -> F:
        return {"prior": self.latents, "shifted": self.shifted, "extreme": self.extreme}[family]

    def _sample(self, count: int, generator: Generator, family: str) -> Tensor:
        numbers = self._numbers(family)
        return draw_in_blocks(count, generator, lambda g: self._draw(g, numbers))

    @abstractmethod
    def _draw(self, generator: Generator, family: F) -> Tensor:
        """A block of latents in float64."""
