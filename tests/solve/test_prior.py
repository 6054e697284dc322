"""With a prior every method finds the most probable latent, not the best fit."""

import pytest
import torch

import deceptron as dc
from deceptron.core import ConfigError, Scaler, ShapeError

N, M = 6, 4  # more unknowns than data: without a prior there is no single answer


class Gaussian:
    """A prior in dense form."""

    def __init__(self, mean, covariance):
        self.mean, self.covariance = mean, covariance

    def apply(self, v):
        return v @ self.covariance

    def solve(self, v):
        return torch.linalg.solve(self.covariance, v.mT).mT


class PhysicalPair:
    """f in normalised units of ``scaler``, whose scales differ between components."""

    def __init__(self, simulate, scaler):
        self.simulate, self.scaler, self.x_shape = simulate, scaler, (N,)

    def f(self, x):
        return self.scaler.normalise(self.simulate(x))

    def g(self, y):
        return torch.zeros(len(y), N, dtype=y.dtype)


def setting(*, bend: float = 0.0):
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    matrix, root, mean = normal(M, N), normal(N, N), normal(N)
    prior = Gaussian(mean, root @ root.mT + 0.1 * torch.eye(N, dtype=torch.float64))
    noise = torch.tensor([0.05, 0.1, 0.2, 0.4], dtype=torch.float64)
    scaler = Scaler(normal(M), torch.tensor([1.0, 3.0, 0.5, 2.0], dtype=torch.float64))

    def simulate(x):
        z = x @ matrix.mT
        return z + bend * torch.tanh(z)

    y = simulate(mean + normal(5, N)) + noise * normal(5, M)
    return PhysicalPair(simulate, scaler), y, prior, noise, matrix


METHODS = {
    "gn, cg": lambda: dc.methods.gauss_newton(linear="cg"),
    "gn, dense": lambda: dc.methods.gauss_newton(linear="dense"),
    "lm, cg": lambda: dc.methods.levenberg_marquardt(linear="cg"),
    "lm, dense": lambda: dc.methods.levenberg_marquardt(linear="dense"),
    "l-bfgs": dc.methods.l_bfgs,
    "guarded": lambda: dc.methods.guarded(cg_tolerance=1e-8),
}
TO_THE_END = {"gradient_tolerance": 1e-10, "max_iterations": 400}


@pytest.mark.parametrize("name", METHODS)
def test_a_linear_problem_has_the_kalman_answer(name):
    pair, y, prior, noise, matrix = setting()
    solution = dc.solve(pair, y, method=METHODS[name](), prior=prior, noise_std=noise, **TO_THE_END)
    c = prior.covariance
    gain = c @ matrix.mT @ torch.linalg.inv(matrix @ c @ matrix.mT + torch.diag(noise**2))
    expected = prior.mean + (y - matrix @ prior.mean) @ gain.mT
    torch.testing.assert_close(solution.x, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_bent_problem_in_a_box_ends_where_the_posterior_is_stationary(name):
    pair, y, prior, noise, _ = setting(bend=0.5)
    low, high = -0.5, 0.8
    solution = dc.solve(
        pair,
        y,
        method=METHODS[name](),
        prior=prior,
        noise_std=noise,
        bounds=(low, high),
        **TO_THE_END,
    )

    def slope(x):
        """Of the negative log posterior; what a bound holds does not count."""
        x = x.detach().requires_grad_()
        misfit = 0.5 * ((pair.simulate(x) - y) / noise).square().sum()
        offset = x - prior.mean
        (gradient,) = torch.autograd.grad(misfit + 0.5 * (offset * prior.solve(offset)).sum(), x)
        return (x - (x - gradient).clamp(low, high)).detach().abs()

    x = solution.x
    start = prior.mean.clamp(low, high).expand_as(x)
    # A step of less than the round-off of the posterior, 1e-13 of it, may have a slope of 1e-4.
    assert float(slope(x).max()) < 1e-3 * float(slope(start).max())
    assert bool(((x == low) | (x == high)).any()), "the box must matter for this test"


def test_residuals_count_components_by_their_noise_and_the_loss_is_the_posterior():
    pair, y, prior, noise, _ = setting()
    solution = dc.solve(
        pair, y, method="gn", prior=prior, noise_std=noise, max_iterations=3, tau=1e-9
    )
    level = (noise / pair.scaler.scale).square().mean().sqrt()
    weighted = (pair.simulate(solution.x) - y) / noise
    torch.testing.assert_close(solution.residual, level * weighted.square().mean(1).sqrt())
    offset = solution.x - prior.mean
    log_posterior = 0.5 * weighted.square().sum(1) + 0.5 * (offset * prior.solve(offset)).sum(1)
    torch.testing.assert_close(solution.loss, level**2 * log_posterior / M)


def test_running_longer_does_not_make_an_ill_posed_row_worse():
    generator = torch.Generator().manual_seed(0)
    n = 24
    decay = torch.logspace(0, -6, n, dtype=torch.float64)
    basis, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))
    prior = Gaussian(torch.zeros(n, dtype=torch.float64), torch.eye(n, dtype=torch.float64))
    truth = torch.randn(8, n, dtype=torch.float64, generator=generator)

    def blur(x):
        return (x @ basis) * decay @ basis.mT

    y = blur(truth) + 1e-3 * torch.randn(8, n, dtype=torch.float64, generator=generator)
    settings = {"method": dc.methods.gauss_newton(linear="cg"), "x0": torch.zeros_like(truth)}

    def error(iterations, **more):
        solution = dc.solve(blur, y, max_iterations=iterations, **settings, **more)
        return (solution.x - truth).square().mean().sqrt()

    regularised = {"prior": prior, "noise_std": 1e-3, "tau": 1e-9, "gradient_tolerance": 0.0}
    # The most probable answer need not be nearer to each truth than the first step towards it.
    assert error(30, **regularised) <= 1.1 * error(1, **regularised)
    assert error(30, gradient_tolerance=0.0) > 100 * error(30, **regularised)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"noise_std": None}, ConfigError, "noise_std > 0"),
        ({"noise_std": 0.0}, ConfigError, "noise_std > 0"),
        ({"prior": 3}, ConfigError, "mean, apply and solve"),
        ({"x0": torch.zeros(5, N + 1, dtype=torch.float64)}, ShapeError, "x0 must have rows"),
        ({"prior": Gaussian(torch.zeros(N + 1), torch.eye(N + 1))}, ShapeError, "prior.mean"),
    ],
)
def test_what_a_prior_needs(change, error, words):
    pair, y, prior, noise, _ = setting()
    with pytest.raises(error, match=words):
        dc.solve(pair, y, **({"method": "gn", "prior": prior, "noise_std": noise} | change))
