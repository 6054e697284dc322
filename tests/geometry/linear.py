"""A linear problem in closed form: y = A x + noise, latents N(mean, C), any gain for g."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import deceptron as dc
from deceptron.problems.prior import LowRankPrior

N, M = 5, 7


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class LinearCase:
    """``matrix`` acts on latents and gives physical units; the pair's maps work in normalised."""

    matrix: Tensor
    covariance: Tensor
    noise: Tensor
    scaler: dc.Scaler
    prior: LowRankPrior

    @property
    def jacobian(self):
        return self.matrix / self.scaler.scale[:, None]

    @property
    def normalised_noise(self):
        return self.noise / self.scaler.scale

    @property
    def best_gain(self):
        j, c = self.jacobian, self.covariance
        return c @ j.T @ torch.linalg.inv(j @ c @ j.T + self.normalised_noise.square().diag())

    def covariance_of(self, gain):
        """Joseph form."""
        left = torch.eye(N, dtype=gain.dtype) - gain @ self.jacobian
        return (
            left @ self.covariance @ left.T + gain @ self.normalised_noise.square().diag() @ gain.T
        )

    def pair(self, gain, **settings):
        f, g = nn.Linear(N, M).double(), nn.Linear(M, N).double()
        with torch.no_grad():
            f.weight.copy_(self.jacobian)
            f.bias.copy_(-self.scaler.shift / self.scaler.scale)
            g.weight.copy_(gain)
            # g(f(mean)) = mean
            g.bias.copy_(self.prior.mean - gain @ (self.jacobian @ self.prior.mean + f.bias))
        return dc.Deceptron(f, g, scaler=self.scaler, **settings)

    def observe(self, count, seed):
        rng = generator(seed)
        root = torch.linalg.cholesky(self.covariance)
        white = torch.randn(count, N + M, dtype=torch.float64, generator=rng)
        x = self.prior.mean + white[:, :N] @ root.T
        return x, x @ self.matrix.T + self.noise * white[:, N:]


def linear_case():
    rng = generator(3)
    samples = torch.randn(400, N, dtype=torch.float64, generator=rng) * torch.arange(1, N + 1) + 2
    return LinearCase(
        matrix=torch.randn(M, N, dtype=torch.float64, generator=rng),
        covariance=torch.cov(samples.T),
        noise=torch.linspace(0.5, 2.0, M, dtype=torch.float64),
        scaler=dc.Scaler(
            torch.randn(M, dtype=torch.float64, generator=rng),
            torch.linspace(0.5, 3.0, M, dtype=torch.float64),
        ),
        prior=LowRankPrior.estimate(samples),
    )
