"""Residuals of the standard nonlinear least-squares problems, batched: rows of x to rows of r.

From More, Garbow and Hillstrom (ACM TOMS 7, 1981), two from More and Wild (SIAM J. Optim. 20,
2009), and Bratu's equation. Constants are made outside of the functions: what is made while
``torch.func`` looks on is traced by old versions of torch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def _constant(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _count(x: Tensor, start: int, stop: int) -> Tensor:
    return torch.arange(start, stop + 1, dtype=x.dtype, device=x.device)


def _columns(x: Tensor) -> tuple[Tensor, ...]:
    """The unknowns, each as a column that broadcasts against the data."""
    return x[:, :, None].unbind(1)


def rosenbrock(x: Tensor) -> Tensor:
    """Any even number of unknowns: pairs that do not meet."""
    odd, even = x[:, 0::2], x[:, 1::2]
    return torch.cat([10 * (even - odd**2), 1 - odd], 1)


def freudenstein_roth(x: Tensor) -> Tensor:
    a, b = x.unbind(1)
    return torch.stack(
        [-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b],
        1,
    )


def powell_badly_scaled(x: Tensor) -> Tensor:
    a, b = x.unbind(1)
    return torch.stack([1e4 * a * b - 1, (-a).exp() + (-b).exp() - 1.0001], 1)


def brown_badly_scaled(x: Tensor) -> Tensor:
    a, b = x.unbind(1)
    return torch.stack([a - 1e6, b - 2e-6, a * b - 2], 1)


def beale(x: Tensor) -> Tensor:
    a, b = x.unbind(1)
    return torch.stack([y - a * (1 - b**k) for k, y in ((1, 1.5), (2, 2.25), (3, 2.625))], 1)


def jennrich_sampson(x: Tensor) -> Tensor:
    a, b = _columns(x)
    i = _count(x, 1, 10)
    return 2 + 2 * i - ((i * a).exp() + (i * b).exp())


def helical_valley(x: Tensor) -> Tensor:
    a, b, c = x.unbind(1)
    theta = torch.atan2(b, a) / (2 * math.pi)
    return torch.stack([10 * (c - 10 * theta), 10 * ((a**2 + b**2).sqrt() - 1), c], 1)


_BARD = _constant(
    0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39
)  # fmt: skip


def bard(x: Tensor) -> Tensor:
    a, b, c = _columns(x)
    u = _count(x, 1, 15)
    v = 16 - u
    return _BARD.to(x) - (a + u / (v * b + torch.minimum(u, v) * c))


_GAUSSIAN = _constant(
    0.0009, 0.0044, 0.0175, 0.0540, 0.1295, 0.2420, 0.3521, 0.3989,
    0.3521, 0.2420, 0.1295, 0.0540, 0.0175, 0.0044, 0.0009,
)  # fmt: skip


def gaussian(x: Tensor) -> Tensor:
    a, b, c = _columns(x)
    t = (8 - _count(x, 1, 15)) / 2
    return a * (-b * (t - c) ** 2 / 2).exp() - _GAUSSIAN.to(x)


_MEYER = _constant(
    34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744,
    8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872,
)  # fmt: skip


def meyer(x: Tensor) -> Tensor:
    a, b, c = _columns(x)
    t = 45 + 5 * _count(x, 1, 16)
    return a * (b / (t + c)).exp() - _MEYER.to(x)


def gulf(x: Tensor) -> Tensor:
    a, b, c = _columns(x)
    t = _count(x, 1, 99) / 100
    y = 25 + (-50 * t.log()) ** (2 / 3)
    return (-((y - b).abs() ** c) / a).exp() - t


def box_three_dimensional(x: Tensor) -> Tensor:
    a, b, c = _columns(x)
    t = _count(x, 1, 10) / 10
    return (-t * a).exp() - (-t * b).exp() - c * ((-t).exp() - (-10 * t).exp())


def powell_singular(x: Tensor) -> Tensor:
    """Any multiple of four unknowns: quadruples that do not meet."""
    a, b, c, d = (x[:, k::4] for k in range(4))
    return torch.cat(
        [a + 10 * b, math.sqrt(5) * (c - d), (b - 2 * c) ** 2, math.sqrt(10) * (a - d) ** 2], 1
    )


def wood(x: Tensor) -> Tensor:
    a, b, c, d = x.unbind(1)
    return torch.stack(
        [
            10 * (b - a**2),
            1 - a,
            math.sqrt(90) * (d - c**2),
            1 - c,
            math.sqrt(10) * (b + d - 2),
            (b - d) / math.sqrt(10),
        ],
        1,
    )


_KOWALIK = _constant(
    0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246
)  # fmt: skip
_KOWALIK_U = _constant(
    4.0, 2.0, 1.0, 0.5, 0.25, 0.1670, 0.1250, 0.1000, 0.0833, 0.0714, 0.0625
)  # fmt: skip


def kowalik_osborne(x: Tensor) -> Tensor:
    a, b, c, d = _columns(x)
    u = _KOWALIK_U.to(x)
    return _KOWALIK.to(x) - a * (u**2 + u * b) / (u**2 + u * c + d)


def brown_dennis(x: Tensor) -> Tensor:
    a, b, c, d = _columns(x)
    t = _count(x, 1, 20) / 5
    return (a + t * b - t.exp()) ** 2 + (c + d * t.sin() - t.cos()) ** 2


_OSBORNE_1 = _constant(
    0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751,
    0.718, 0.685, 0.658, 0.628, 0.603, 0.580, 0.558, 0.538, 0.522, 0.506, 0.490,
    0.478, 0.467, 0.457, 0.448, 0.438, 0.431, 0.424, 0.420, 0.414, 0.411, 0.406,
)  # fmt: skip


def osborne_1(x: Tensor) -> Tensor:
    a, b, c, d, e = _columns(x)
    t = 10 * (_count(x, 1, 33) - 1)
    return _OSBORNE_1.to(x) - (a + b * (-t * d).exp() + c * (-t * e).exp())


def biggs_exp6(x: Tensor) -> Tensor:
    a, b, c, d, e, f = _columns(x)
    t = _count(x, 1, 13) / 10
    y = (-t).exp() - 5 * (-10 * t).exp() + 3 * (-4 * t).exp()
    return c * (-t * a).exp() - d * (-t * b).exp() + f * (-t * e).exp() - y


_OSBORNE_2 = _constant(
    1.366, 1.191, 1.112, 1.013, 0.991, 0.885, 0.831, 0.847, 0.786, 0.725, 0.746, 0.679, 0.608,
    0.655, 0.616, 0.606, 0.602, 0.626, 0.651, 0.724, 0.649, 0.649, 0.694, 0.644, 0.624, 0.661,
    0.612, 0.558, 0.533, 0.495, 0.500, 0.423, 0.395, 0.375, 0.372, 0.391, 0.396, 0.405, 0.428,
    0.429, 0.523, 0.562, 0.607, 0.653, 0.672, 0.708, 0.633, 0.668, 0.645, 0.632, 0.591, 0.559,
    0.597, 0.625, 0.739, 0.710, 0.729, 0.720, 0.636, 0.581, 0.428, 0.292, 0.162, 0.098, 0.054,
)  # fmt: skip


def osborne_2(x: Tensor) -> Tensor:
    height, width, centre = x[:, :4, None], x[:, 4:8, None], x[:, 8:, None]
    t = (_count(x, 1, 65) - 1) / 10
    decay = (-t * width[:, :1]).exp()
    bumps = (-((t - centre) ** 2) * width[:, 1:]).exp()
    return _OSBORNE_2.to(x) - (height * torch.cat([decay, bumps], 1)).sum(1)


def watson(x: Tensor) -> Tensor:
    n = x.shape[1]
    t = (_count(x, 1, 29) / 29)[:, None]
    powers = t ** _count(x, 0, n - 1)
    slopes = pad(_count(x, 1, n - 1) * powers[:, :-1], (1, 0))
    fitted = x @ slopes.T - (x @ powers.T) ** 2 - 1
    return torch.cat([fitted, x[:, :1], x[:, 1:2] - x[:, :1] ** 2 - 1], 1)


def penalty_1(x: Tensor) -> Tensor:
    return torch.cat([math.sqrt(1e-5) * (x - 1), (x**2).sum(1, keepdim=True) - 0.25], 1)


def penalty_2(x: Tensor) -> Tensor:
    n, small = x.shape[1], math.sqrt(1e-5)
    i = _count(x, 2, n)
    y = (i / 10).exp() + ((i - 1) / 10).exp()
    e = (x / 10).exp()
    weighted = ((n - _count(x, 1, n) + 1) * x**2).sum(1, keepdim=True) - 1
    rising = small * (e[:, 1:] + e[:, :-1] - y)
    return torch.cat([x[:, :1] - 0.2, rising, small * (e[:, 1:] - math.exp(-0.1)), weighted], 1)


def variably_dimensioned(x: Tensor) -> Tensor:
    total = (_count(x, 1, x.shape[1]) * (x - 1)).sum(1, keepdim=True)
    return torch.cat([x - 1, total, total**2], 1)


def trigonometric(x: Tensor) -> Tensor:
    n = x.shape[1]
    return n - x.cos().sum(1, keepdim=True) + _count(x, 1, n) * (1 - x.cos()) - x.sin()


def brown_almost_linear(x: Tensor) -> Tensor:
    n = x.shape[1]
    sums = x[:, :-1] + x.sum(1, keepdim=True) - (n + 1)
    return torch.cat([sums, x.prod(1, keepdim=True) - 1], 1)


def discrete_boundary_value(x: Tensor) -> Tensor:
    n = x.shape[1]
    h = 1 / (n + 1)
    t = h * _count(x, 1, n)
    padded = pad(x, (1, 1))
    return 2 * x - padded[:, :-2] - padded[:, 2:] + h**2 * (x + t + 1) ** 3 / 2


def discrete_integral(x: Tensor) -> Tensor:
    n = x.shape[1]
    h = 1 / (n + 1)
    t = h * _count(x, 1, n)
    kernel = torch.minimum(t[:, None], t) * (1 - torch.maximum(t[:, None], t))
    return x + h / 2 * (x + t + 1) ** 3 @ kernel


def broyden_tridiagonal(x: Tensor) -> Tensor:
    padded = pad(x, (1, 1))
    return (3 - 2 * x) * x - padded[:, :-2] - 2 * padded[:, 2:] + 1


def broyden_banded(x: Tensor) -> Tensor:
    n = x.shape[1]
    i = torch.arange(n, device=x.device)
    offset = i[:, None] - i
    near = ((offset <= 5) & (offset >= -1) & (offset != 0)).to(x)
    return x * (2 + 5 * x**2) + 1 - (x * (1 + x)) @ near.T


def linear_full_rank(x: Tensor) -> Tensor:
    """Twice as many residuals as unknowns."""
    m = 2 * x.shape[1]
    shared = 2 / m * x.sum(1, keepdim=True) + 1
    return pad(x, (0, m - x.shape[1])) - shared


def linear_rank_1(x: Tensor) -> Tensor:
    n = x.shape[1]
    return _count(x, 1, 2 * n) * (x @ _count(x, 1, n))[:, None] - 1


def linear_rank_1_with_zeros(x: Tensor) -> Tensor:
    n = x.shape[1]
    m = 2 * n
    inner = x[:, 1:-1] @ _count(x, 2, n - 1)
    return pad(_count(x, 1, m - 2) * inner[:, None], (1, 1)) - 1


def chebyquad(x: Tensor) -> Tensor:
    n = x.shape[1]
    z = 2 * x - 1
    before, here, means = torch.ones_like(z), z, []
    for i in range(1, n + 1):
        means.append(here.mean(1) + (1 / (i**2 - 1) if i % 2 == 0 else 0.0))
        before, here = here, 2 * z * here - before
    return torch.stack(means, 1)


def bdqrtic(x: Tensor) -> Tensor:
    n = x.shape[1]
    quartic = sum((k + 1) * x[:, k : n - 4 + k] ** 2 for k in range(4)) + 5 * x[:, -1:] ** 2
    return torch.cat([3 - 4 * x[:, : n - 4], quartic], 1)


def cube(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1] - 1, 10 * (x[:, 1:] - x[:, :-1] ** 3)], 1)


def bratu(x: Tensor) -> Tensor:
    """u'' + exp(u) = 0 on (0, 1), u = 0 at both ends, by second differences (scaled by h^2)."""
    h = 1 / (x.shape[1] + 1)
    padded = pad(x, (1, 1))
    return padded[:, 2:] - 2 * x + padded[:, :-2] + h**2 * x.exp()
