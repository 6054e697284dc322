"""Six inverse problems on which no default was tuned: what a stranger would bring.

Linear and nonlinear, vectors and fields, bounded and not, one in NumPy without derivatives, one
with noise over two decades, one whose prior is much narrower than its data.
"""

import math

import numpy as np
import torch

import deceptron as dc

UNBOUNDED = (-math.inf, math.inf)
SIZES = {"train_count": 1500, "val_count": 200, "test_count": 200}


def _smooth_fields(count, generator, n, length):
    """Rows of a Gaussian process on n points with this correlation length."""
    t = torch.linspace(0, 1, n, dtype=torch.float64)
    covariance = torch.exp(-0.5 * ((t[:, None] - t) / length) ** 2) + 1e-6 * torch.eye(n)
    white = torch.randn(count, n, dtype=torch.float64, generator=generator)
    return (white @ torch.linalg.cholesky(covariance).T).float()


def heat_rod():
    """Linear, 48 unknowns, unbounded, NumPy values only: a rod that has cooled."""
    n = 48
    k = np.arange(1, n + 1)
    sine = np.sqrt(2 / (n + 1)) * np.sin(np.pi * np.outer(k, k) / (n + 1))
    matrix = sine @ np.diag(np.exp(-0.004 * k**2)) @ sine

    def simulate(x):
        return np.asarray(x, dtype=np.float64) @ matrix.T

    return dc.problems.define(
        "heat-rod",
        simulate=simulate,
        sample=lambda count, generator: _smooth_fields(count, generator, n, 0.12),
        bounds=UNBOUNDED,
        noise_std=0.02,
        differentiable=False,
        **SIZES,
    )


def predators():
    """Nonlinear, six bounded parameters: two populations, watched for a while."""

    def simulate(x):
        a, b, c, d = (0.5 + x[:, i] for i in range(4))
        u, v = 0.5 + x[:, 4], 0.5 + x[:, 5]
        seen = []
        for step in range(60):
            du, dv = u * (a - b * v), v * (d * u - c)
            # Heun, so that the answer is smooth in x and bounded.
            u1, v1 = u + 0.1 * du, v + 0.1 * dv
            du1, dv1 = u1 * (a - b * v1), v1 * (d * u1 - c)
            u, v = u + 0.05 * (du + du1), v + 0.05 * (dv + dv1)
            if step % 3 == 2:
                seen += [u, v]
        return torch.stack(seen, 1)

    return dc.problems.define(
        "predators",
        simulate=simulate,
        sample=lambda count, generator: torch.rand(count, 6, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=0.02,
        **SIZES,
    )


def saturated_image():
    """A 12 x 12 field, blurred and saturated, no bounds."""
    n = 12
    i = torch.arange(n, dtype=torch.float64)
    blur = torch.exp(-0.5 * ((i[:, None] - i) / 1.2) ** 2)
    blur = (blur / blur.sum(1, keepdim=True)).float()

    def simulate(x):
        seen = blur.to(x) @ x[:, 0] @ blur.to(x).T
        return torch.tanh(1.5 * seen)[:, None]

    def sample(count, generator):
        rows = _smooth_fields(count * n, generator, n, 0.2).reshape(count, n, n)
        t = torch.linspace(0, 1, n)
        across = torch.exp(-0.5 * ((t[:, None] - t) / 0.2) ** 2) + 1e-5 * torch.eye(n)
        return 0.4 * (torch.linalg.cholesky(across) @ rows)[:, None]

    return dc.problems.define(
        "saturated-image",
        simulate=simulate,
        sample=sample,
        bounds=UNBOUNDED,
        noise_std=0.01,
        **SIZES,
    )


def spectrum():
    """Ten amplitudes and widths of known lines; the noise of a channel is 0.002 to 0.2."""
    channels = torch.linspace(0, 1, 60)
    lines = torch.linspace(0.1, 0.9, 5)
    noise = 0.002 * 100 ** torch.linspace(0, 1, 60)

    def simulate(x):
        height, width = x[:, :5, None], 0.03 + 0.07 * x[:, 5:, None]
        shapes = torch.exp(-0.5 * ((channels.to(x) - lines.to(x)[:, None]) / width) ** 2)
        return (height * shapes).sum(1)

    return dc.problems.define(
        "spectrum",
        simulate=simulate,
        sample=lambda count, generator: torch.rand(count, 10, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=noise,
        **SIZES,
    )


def narrow():
    """Sixteen values known to a hundredth beforehand, seen through noise ten times that."""
    mix = torch.randn(40, 16, generator=torch.Generator().manual_seed(4)) / 4

    def simulate(x):
        return x @ mix.to(x).T

    def sample(count, generator):
        return 1 + 0.01 * torch.randn(count, 16, generator=generator)

    return dc.problems.define(
        "narrow",
        simulate=simulate,
        sample=sample,
        bounds=UNBOUNDED,
        noise_std=0.1,
        **SIZES,
    )


def attenuation():
    """Positive densities of 40 cells, seen as what is left of light along 30 rays."""
    generator = torch.Generator().manual_seed(9)
    rays = torch.rand(30, 40, generator=generator) * (torch.rand(30, 40, generator=generator) < 0.4)

    def simulate(x):
        return torch.exp(-0.25 * x @ rays.to(x).T)

    def sample(count, generator):
        field = _smooth_fields(count, generator, 40, 0.1)
        return 1 / (1 + torch.exp(-1.5 * field))

    return dc.problems.define(
        "attenuation",
        simulate=simulate,
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=0.003,
        **SIZES,
    )


FOREIGN = {
    make.__name__: make
    for make in (heat_rod, predators, saturated_image, spectrum, narrow, attenuation)
}


def rmse(x, truth):
    return float((x - truth).flatten(1).square().mean(1).sqrt().mean())


def errors(pair, problem, data):
    """Mean RMSE of one-shot, wiener and the default in every mode, on fresh test rows."""
    x, y = data.test.x, data.test.y
    modes = {"surrogate": {}, "values": {"forward": problem.simulate, "differentiable": False}}
    if problem.differentiable:
        modes["derivatives"] = {"forward": problem.simulate}
    found = {
        method: rmse(dc.solve(pair, y, method=method).x, x) for method in ("one-shot", "wiener")
    }
    solutions = {mode: dc.solve(pair, y, **settings) for mode, settings in modes.items()}
    found |= {mode: rmse(solution.x, x) for mode, solution in solutions.items()}
    return found, solutions


def best_of(found):
    return min(found["one-shot"], found["wiener"])


def worst_ratio(found):
    default = [v for k, v in found.items() if k not in ("one-shot", "wiener")]
    return max(default) / best_of(found) if best_of(found) else math.inf
