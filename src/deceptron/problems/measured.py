"""Pairs of latents and observations without a simulator, as a problem that can be trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from deceptron.core.arrays import real_tensor
from deceptron.core.box import Bounds, Box
from deceptron.core.checks import check_range, check_seed
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.problems.base import Problem
from deceptron.problems.dataset import Dataset, Split
from deceptron.problems.noise_estimate import estimate_noise
from deceptron.problems.registry import check_own_name

FEWEST_ROWS = 20
# Beyond the range of the data, on each side, where no bounds are given.
MARGIN = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredProblem(Problem):
    """Made by ``from_data``. Its splits are rows of the data, whatever the seed of a dataset.

    It cannot simulate, so there are no fresh rows and no shifted sets, and the surrogate is the
    only forward map. ``sample`` draws latents of the training rows again. Where rows carry their
    noise, ``add_noise`` leaves them as they are; with a ``ratio`` above 1 they get what they lack.

    Attributes:
        noisy: whether the rows carry their noise already.
        rows: the splits ``train``, ``val`` and ``test``.
    """

    differentiable: bool = field(default=False, init=False, repr=False)
    noisy: bool = True
    rows: dict[str, Split] = field(repr=False)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one latent."""
        return tuple(self.rows["train"].x.shape[1:])

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return tuple(self.rows["train"].y.shape[1:])

    @property
    def carries_noise(self) -> bool:
        """Whether the rows of its data sets are as measured."""
        return self.noisy

    @property
    def has_simulator(self) -> bool:
        """It has none."""
        return False

    def _add_noise(
        self, y: Tensor, generator: Generator | None, family: str, ratio: Tensor | None
    ) -> Tensor:
        if self.noisy:
            if ratio is None:
                return y
            ratio = (ratio.square() - 1).clamp_min(0).sqrt()
        return super()._add_noise(y, generator, family, ratio)

    def _split(self, data: Dataset, name: str, family: str, count: int, noisy: bool) -> Split:
        if name not in self.rows:
            self._sample(1, Generator(), family)
        x, y = (part[:count].to(data.dtype) for part in (self.rows[name].x, self.rows[name].y))
        if noisy:
            y = self.add_noise(y, generator=Generator().manual_seed(data.seed), family=family)
        return Split(x, y)

    def _simulate(self, x: Tensor) -> NoReturn:
        raise ConfigError(
            f"problem {self.name!r} was made from data and has no simulator: leave out forward=... "
            "to solve on the surrogate, and take rows from problem.dataset(seed)"
        )

    def _sample(self, count: int, generator: Generator, family: str) -> Tensor:
        if family != "prior":
            raise ConfigError(
                f"problem {self.name!r} was made from data: it has no {family!r} family, because "
                "nothing can simulate one"
            )
        x = self.rows["train"].x
        return x[torch.randint(len(x), (count,), generator=generator)]

    def _prior_samples(self) -> Tensor:
        return self.rows["train"].x.to(torch.float64)


def from_data(
    x: Any,
    y: Any,
    *,
    bounds: Bounds | None = None,
    noise_std: float | Tensor | None = None,
    name: str = "data",
    noisy: bool = True,
    val_share: float = 0.1,
    test_share: float = 0.1,
    seed: int = 0,
    scaling: Literal["component", "channel"] = "component",
    equation: str = "",
) -> MeasuredProblem:
    """A problem from measured pairs of latent and observation, without a simulator.

    It can be trained and solved on the surrogate, with trust and error bars. What needs a simulator
    raises an error that says so: ``problem.simulate``, fresh rows, shifted sets.

    Args:
        x: latents, one a row: a tensor, an array or lists.
        y: what was observed for each.
        bounds: ``(low, high)`` of the latents; by default the range of each component of x, a tenth
            wider on each side.
        noise_std: of y, a number or one row of them; None estimates it from how well y follows from
            x among neighbours, which is an upper estimate where there are few rows.
        name: under which runs know it.
        noisy: y carries its noise already, as measured data do, and training adds none. False for
            noise-free pairs, for example from a simulator that is no longer at hand.
        val_share: part of the rows that chooses epochs and calibrates.
        test_share: part of the rows kept aside, ``problem.dataset(seed).test``.
        seed: of the split; ``dataset`` gives the same rows for every seed of its own.
        scaling: whether y is normalised by component or by its first axis.
        equation: what is measured, in words.
    """
    check_own_name(name)
    x, y = _rows("x", x), _rows("y", y)
    if len(x) != len(y):
        raise ShapeError(f"x and y must have as many rows as each other; got {len(x)} and {len(y)}")
    if len(x) < FEWEST_ROWS:
        raise ConfigError(f"from_data needs {FEWEST_ROWS} rows or more; got {len(x)}")
    for argument, rows in (("x", x), ("y", y)):
        if bool((rows == rows[:1]).all()):
            raise ConfigError(f"{argument} must vary from row to row; all {len(rows)} are the same")
    for argument, share in (("val_share", val_share), ("test_share", test_share)):
        check_range(argument, share, low=0.0, high=0.4, open_low=True)
    generator = Generator().manual_seed(check_seed(seed))
    val, test = (max(2, round(share * len(x))) for share in (val_share, test_share))
    parts = _parts(x, test, val, generator)
    names = ("test", "val", "train")
    splits = {part: Split(x[k], y[k]) for part, k in zip(names, parts, strict=True)}
    if noise_std is None:
        noise_std = estimate_noise(splits["train"].x, splits["train"].y)
    problem = MeasuredProblem(
        name=name,
        rows=splits,
        bounds=_range(x) if bounds is None else bounds,
        noise_std=noise_std,
        noisy=noisy,
        scaling=scaling,
        equation=equation,
        train_count=len(splits["train"]),
        val_count=len(splits["val"]),
        test_count=len(splits["test"]),
    )
    box = Box.parse(problem.bounds, problem.x_shape, x)
    outside = (box.project(x.flatten(1)) != x.flatten(1)).any(1)
    if bool(outside.any()):
        raise ConfigError(
            f"x must lie within bounds; {int(outside.sum())} of {len(x)} rows do not, "
            f"row {int(outside.nonzero()[0])} for one"
        )
    return problem


def _parts(
    x: Float[Tensor, "N *x"], test: int, val: int, generator: Generator
) -> tuple[Int[Tensor, " k"], ...]:
    """Places of the test rows, of so many validation rows, and of the others, at random.

    Rows of one latent, measured more than once, stay together, and parts are as much larger as that
    takes: a network that has seen a latent errs less there than elsewhere, and validation rows must
    not be told. Of fewer different latents than make a data set nothing can be learned about
    others, and rows are as good as those to come.
    """
    order = torch.randperm(len(x), generator=generator)
    _, latent, counts = x.flatten(1).unique(dim=0, return_inverse=True, return_counts=True)
    if FEWEST_ROWS <= len(counts) < len(x):
        places = torch.empty_like(order)
        places[order] = torch.arange(len(x))
        first = torch.full_like(counts, len(x)).scatter_reduce(0, latent, places, "amin")
        # Those that would fill a part alone are learned from.
        first = first + len(x) * (counts > min(test, val))
        together = order[first[latent[order]].argsort(stable=True)]
        own = latent[together]
        ends = (own[1:] != own[:-1]).nonzero().flatten() + 1
        last = int(torch.searchsorted(ends, test))
        if last < len(ends):
            tested = int(ends[last])
            last = int(torch.searchsorted(ends, tested + val))
            if last < len(ends):
                return together.tensor_split([tested, int(ends[last])])
    return order.tensor_split([test, test + val])


def _rows(argument: str, value: Any) -> Tensor:
    rows = real_tensor(argument, value)
    if rows.ndim < 2 or 0 in rows.shape[1:]:
        hint = f": one number a row is {argument}[:, None]" if rows.ndim == 1 else ""
        raise ShapeError(
            f"{argument} must be rows of numbers, of at least one axis each; got shape "
            f"{tuple(rows.shape)}{hint}"
        )
    rows = rows.detach().to("cpu", rows.dtype if rows.is_floating_point() else torch.float64)
    bad = ~rows.isfinite()
    if bool(bad.any()):
        row = int(bad.flatten(1).any(1).nonzero()[0])
        raise ConfigError(
            f"{argument} must be finite to learn from; row {row} holds {int(bad[row].sum())} "
            f"non-finite value(s), {int(bad.flatten(1).any(1).sum())} rows do: leave them out"
        )
    return rows.clone()


def _range(x: Tensor) -> Bounds:
    low, high = x.amin(0), x.amax(0)
    width = (high - low).clamp_min(1e-12)
    return low - MARGIN * width, high + MARGIN * width
