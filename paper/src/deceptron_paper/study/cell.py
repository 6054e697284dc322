"""One cell of a study's grid: a method on the first instances of a set, with one model."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from deceptron_paper.study.names import TRUTH


@dataclass(frozen=True, order=True)
class ModelKey:
    """Which pair: ``model`` is one of ``names.MODELS``, ``seed`` that of its data and weights."""

    problem: str
    model: str
    seed: int

    @property
    def slug(self) -> str:
        """A name for files, none of them in a folder of its own."""
        return f"{self.problem.replace('/', '%2F')}.{self.model}.{self.seed}"


@dataclass(frozen=True)
class Cell:
    """What is solved; ``max_iterations`` None leaves the limit to the method.

    The intervals of the first ``error_bars`` instances are held against the truth.
    """

    problem: str
    set: str
    model: str
    seed: int
    method: str
    instances: int
    max_iterations: int | None = None
    error_bars: int = 0

    @property
    def model_key(self) -> ModelKey | None:
        """The pair it needs; the truth needs none."""
        return None if self.method == TRUTH else ModelKey(self.problem, self.model, self.seed)

    @property
    def key(self) -> str:
        """A readable name with a hash of every field: the cell's folder."""
        words = (self.problem, self.set, self.model, str(self.seed), self.method)
        slug = ".".join(re.sub(r"[^A-Za-z0-9.]+", "-", word) for word in words if word)
        return f"{slug}.{digest(asdict(self))[:6]}"

    def document(self) -> dict[str, Any]:
        """Its fields as JSON values, key first."""
        return {"key": self.key, **asdict(self)}


def digest(document: Any) -> str:
    """Hash of the canonical JSON."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
