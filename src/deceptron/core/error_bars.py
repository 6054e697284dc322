"""How far answers may be off, worked out when somebody asks, for any choice of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor


class ErrorBars(Protocol):
    """Of the answers of a solve."""

    def __len__(self) -> int:
        """How many rows."""

    def at(self, rows: Int[Tensor, " k"]) -> ErrorBars:
        """Of these rows, one or more."""

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        """Draws about each answer."""

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component."""

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Lower and upper ends of intervals, given what ``std`` found by so many draws."""


@dataclass(frozen=True)
class JoinedBars:
    """The bars of rows that were solved in parts."""

    parts: Sequence[ErrorBars]
    order: Int[Tensor, " B"] | None = None  # of the rows of all parts; by default as they come

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def at(self, rows: Int[Tensor, " k"]) -> JoinedBars:
        """Of these rows, asked of the parts that they are in."""
        rows = rows if self.order is None else self.order[rows]
        parts, places, first = [], [], 0
        for part in self.parts:
            mine = ((rows >= first) & (rows < first + len(part))).nonzero().flatten()
            if len(mine):
                parts.append(part.at(rows[mine] - first))
                places.append(mine)
            first += len(part)
        return JoinedBars(parts, torch.cat(places).argsort())

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        """As if all rows were in one part."""
        drawn = [p.sample(samples, generator=g) for p, g in self._alike(generator)]
        return self._ordered(torch.cat(drawn, 1).transpose(0, 1)).transpose(0, 1)

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        """As if all rows were in one part."""
        found = [p.std(samples, generator=g) for p, g in self._alike(generator)]
        return self._ordered(torch.cat(found))

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """As if all rows were in one part."""
        if self.order is not None:
            std = torch.empty_like(std).index_copy(0, self.order, std)
        pieces = std.split([len(part) for part in self.parts])
        found = [p.ends(s, level, samples=samples) for p, s in zip(self.parts, pieces, strict=True)]
        low, high = (torch.cat(side) for side in zip(*found, strict=True))
        return self._ordered(low), self._ordered(high)

    def _ordered(self, values: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        return values if self.order is None else values[self.order]

    def _alike(
        self, generator: torch.Generator | None
    ) -> Iterator[tuple[ErrorBars, torch.Generator]]:
        """Every part with the same random numbers, as if all rows were in one."""
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        state = generator.get_state()
        for part in self.parts:
            generator.set_state(state)
            yield part, generator


@dataclass(frozen=True, eq=False)
class NoRows:
    """The bars of a selection that chose nothing."""

    x: Float[Tensor, "0 *x"]

    def __len__(self) -> int:
        return 0

    def at(self, rows: Int[Tensor, " k"]) -> NoRows:
        """There is nothing to choose from."""
        return self

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S 0 *x"]:
        """No rows."""
        return self.x.new_empty(samples, *self.x.shape)

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "0 *x"]:
        """No rows."""
        return self.x

    def ends(
        self, std: Float[Tensor, "0 *x"], level: float, *, samples: int
    ) -> tuple[Float[Tensor, "0 *x"], Float[Tensor, "0 *x"]]:
        """No rows."""
        return self.x, self.x
