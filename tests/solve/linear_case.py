"""y = A x with noise, for a pair that believes in corrections: everything has a dense answer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.calibration import Calibration
from deceptron.laws.law import Laws, Shape
from deceptron.laws.noise import PREFERENCE
from deceptron.laws.shapes import corrections_of
from deceptron.laws.tables import Formed, tabled
from deceptron.solve.model import Model
from deceptron.solve.plan import Plan, prepare
from deceptron.solve.request import Request
from deceptron.solve.subspace import Subspace
from tests.laws.dense import believed, covariance, gaussian_of, normal

NOISE = 0.05


def linear(matrix: Tensor) -> nn.Linear:
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).double().requires_grad_(False)
    layer.weight.copy_(matrix)
    return layer


class Fixed(nn.Module):
    """A reverse map that says the same of everything."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, y: Tensor) -> Tensor:
        return self.answer.to(y).expand(len(y), -1)


def with_beliefs(pair: dc.Deceptron, **changes: Any) -> dc.Deceptron:
    """The pair, its beliefs changed."""
    beliefs = pair.calibration.beliefs
    assert beliefs is not None
    known = replace(pair.calibration, beliefs=replace(beliefs, **changes))
    return pair.replaced(calibration=known)


def tabled_for(laws: Laws, matrix: Tensor, noise: float = NOISE) -> Laws:
    """Laws with the tables of ``y = matrix x``."""
    return tabled(laws, [Formed(laws.scale * matrix / noise)])


class Case:
    """Latents that are cumulated noise, and a g that finds only a ``share`` of them."""

    def __init__(
        self, n: int, m: int, *, share: float = 0.5, seed: int = 0, unit: float = 1.0
    ) -> None:
        self.n, self.m, self.unit = n, m, unit
        self.matrix = normal(m, n, seed=seed) / n**0.5 / unit
        self.family = unit * normal(300, n, seed=seed + 1).cumsum(1) / n**0.5
        laws = corrections_of(self.family)
        assert laws is not None
        self.pair = self.believing(tabled_for(laws, self.matrix), share)

    def believing(self, laws: Laws, share: float = 0.5, **changes: Any) -> dc.Deceptron:
        """The pair if these were the laws of its corrections."""
        self.laws = laws
        return dc.Deceptron(
            linear(self.matrix),
            linear(share * torch.linalg.pinv(self.matrix)),
            x_shape=(self.n,),
            y_shape=(self.m,),
            calibration=Calibration(noise_std=NOISE, beliefs=believed(laws, **changes)),
        )

    def know_family(self, law: DiagonalGaussian | None = None) -> DiagonalGaussian:
        """The pair knows the law of its latents, by which bars are made."""
        if law is None:
            law = gaussian_of(self.family, self.laws.shapes[0])
        self.pair = self.pair.replaced(calibration=replace(self.pair.calibration, family=law))
        return law

    def simulate(self, x: Tensor) -> Tensor:
        return x @ self.matrix.T

    def values(self, x: Tensor) -> Any:
        """The same for those who have no derivatives."""
        return x.numpy() @ self.matrix.numpy().T

    def by_values(self, differentiable: bool) -> dict[str, Any]:
        """Settings of a solve on f, or on a simulator that gives values only."""
        return {} if differentiable else {"forward": self.values, "differentiable": False}

    def observe(self, rows: int, *, noise: float = NOISE, seed: int = 7) -> tuple[Tensor, Tensor]:
        x = self.unit * normal(rows, self.n, seed=seed).cumsum(1) / self.n**0.5
        return x, x @ self.matrix.T + noise * normal(rows, self.m, seed=seed + 1)

    def total(self, shape: Shape, size: float) -> Tensor:
        """Covariance of the data in units of the noise."""
        a = self.matrix / NOISE
        t = (self.laws.scale * size) ** 2
        return t * a @ covariance(shape) @ a.T + torch.eye(self.m, dtype=torch.float64)

    def scores(self, y: Tensor, start: Tensor, *, told: bool = True) -> tuple[Tensor, Tensor]:
        """Minus twice the log evidence of every (shape, size), noise included, and the posterior
        means.
        """
        a, r = self.matrix / NOISE, (y - start @ self.matrix.T) / NOISE
        values, means = [], []
        for shape in self.laws.shapes:
            k = covariance(shape)
            for size in self.laws.sizes:
                total = self.total(shape, size)
                half = torch.linalg.solve(total, r.T)
                form = (r.T * half).sum(0)
                v = (form / self.m).sqrt().clamp_min(1.0)
                louder = form / v**2 + 2 * (self.m + PREFERENCE) * v.log()
                if told:
                    louder = torch.where(v > 1, louder - 2 * math.log(0.01), louder)
                form = torch.minimum(form, louder)
                values.append(form + torch.linalg.slogdet(total).logabsdet)
                t = (self.laws.scale * size) ** 2
                means.append(start + (t * k @ a.T @ half).T)
        return torch.stack(values), torch.stack(means)

    def best(self, y: Tensor, start: Tensor, *, told: bool = True) -> Tensor:
        """The posterior mean of the likeliest correction."""
        values, means = self.scores(y, start, told=told)
        return means[values.argmin(0), torch.arange(len(y))]

    def planned(self, y: Tensor, **settings: Any) -> tuple[Plan, Model]:
        """What a solve of these rows would do."""
        settings = {"noise_std": NOISE, **settings}
        plan = prepare(Request(self.pair, y, **settings).checked())
        return plan, plan.model()

    def subspace(
        self, y: Tensor, *, at: Tensor | None = None, **settings: Any
    ) -> tuple[Subspace, Tensor]:
        """Of every row at its start or elsewhere, and that start."""
        plan, model = self.planned(y, **settings)
        point = model.values(plan.start if at is None else at, plan.target)
        return Subspace(model, point, plan.start, plan.box, self.laws), plan.start
