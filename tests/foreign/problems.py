"""Eight inverse problems on which no default was tuned: what a stranger would bring.

Linear and nonlinear, vectors and fields, bounded and not, two in NumPy without derivatives, one
with noise over two decades, one whose prior is much narrower than its data, one whose field is too
coarse for waves.
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


def beam():
    """Log stiffness of 40 parts of a beam from 15 deflections under its weight; NumPy, m < n."""
    n = 40
    z = (np.arange(n) + 0.5) / n
    moment = 0.5 * z * (1 - z)
    green = np.minimum(z[:, None], z) * (1 - np.maximum(z[:, None], z)) / n
    seen = np.linspace(1, n - 2, 15).astype(int)

    def simulate(x):
        return 100 * (moment * np.exp(-0.8 * np.asarray(x, dtype=np.float64))) @ green[seen].T

    return dc.problems.define(
        "beam",
        simulate=simulate,
        sample=lambda count, generator: _smooth_fields(count, generator, n, 0.15),
        bounds=UNBOUNDED,
        noise_std=0.02,
        differentiable=False,
        **SIZES,
    )


def travel_times():
    """Log slowness of 6 x 6 cells from the first of 11 bows to arrive along each of 24 rays."""
    k, along = 6, torch.linspace(0, 1, 40)
    ends = [((0.0, a), (1.0, b)) for a in (0.1, 0.4, 0.6, 0.9) for b in (0.1, 0.4, 0.6, 0.9)]
    ends += [((a, 0.0), (a + d, 1.0)) for a in (0.1, 0.35, 0.6, 0.85) for d in (0.0, 0.1)]
    lengths = torch.zeros(len(ends), 11, k * k)
    for ray, (first, last) in enumerate(torch.tensor(ends)):
        across = torch.stack([first[1] - last[1], last[0] - first[0]])
        for bow, bend in enumerate(torch.linspace(-0.5, 0.5, 11)):
            bent = bend * torch.sin(math.pi * along)[:, None] * across
            points = first + (last - first) * along[:, None] + bent
            cells = (k * ((points[1:] + points[:-1]) / 2).clamp(0, 0.9999)).long()
            parts = (points[1:] - points[:-1]).norm(dim=1)
            lengths[ray, bow].index_add_(0, k * cells[:, 0] + cells[:, 1], parts)

    def simulate(x):
        times = torch.einsum("bc,rpc->brp", torch.exp(0.8 * x).flatten(1), lengths.to(x))
        return -0.05 * torch.logsumexp(-times / 0.05, 2)

    def sample(count, generator):
        rows = _smooth_fields(count * k, generator, k, 0.4).reshape(count, k, k)
        t = torch.linspace(0, 1, k)
        down = torch.exp(-0.5 * ((t[:, None] - t) / 0.4) ** 2) + 1e-5 * torch.eye(k)
        return 0.7 * (torch.linalg.cholesky(down) @ rows)

    return dc.problems.define(
        "travel-times",
        simulate=simulate,
        sample=sample,
        bounds=UNBOUNDED,
        noise_std=0.02,
        **SIZES,
    )


FOREIGN = {
    make.__name__: make
    for make in (
        heat_rod,
        predators,
        saturated_image,
        spectrum,
        narrow,
        attenuation,
        beam,
        travel_times,
    )
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
