"""Exact solutions on the torus: transport of a blob, steady phases, Taylor-Green vortices."""

from __future__ import annotations

import math

import pytest
import torch

import deceptron as dc
from deceptron.problems.advection_diffusion import AdvectionDiffusion2D
from deceptron.problems.allen_cahn import AllenCahn2D
from deceptron.problems.fields import gaussian_bumps
from deceptron.problems.grids import periodic_points, wavenumbers
from tests.problems.small import generator

CPU = torch.device("cpu")


def blob(n: int, centre: tuple[float, float], width: float, amplitude: float) -> torch.Tensor:
    points = periodic_points(n, torch.float64, CPU)
    return gaussian_bumps(
        points,
        centres=torch.tensor([[centre]], dtype=torch.float64),
        widths=torch.full((1, 1, 2), width, dtype=torch.float64),
        amplitudes=torch.tensor([[amplitude]], dtype=torch.float64),
        periodic=True,
    )[:, None]


def test_propagator_moves_and_spreads_a_blob() -> None:
    problem = dc.problems.get("advection-diffusion-2d", grid=64, blur_width=0.0)
    assert isinstance(problem, AdvectionDiffusion2D)
    moved = problem.propagate(blob(64, (0.85, 0.3), 0.08, 1.0))
    # Variance grows by 2 kappa T, the mass stays, the centre moves by v T around the torus.
    width = math.sqrt(0.08**2 + 2 * 5e-3 * 0.3)
    expected = blob(64, (0.15, 0.45), width, (0.08 / width) ** 2)
    assert float((moved - expected).abs().max()) < 1e-6


def test_blur_is_a_gaussian_of_its_width() -> None:
    problem = dc.problems.get("advection-diffusion-2d", grid=64, diffusivity=0.0, time=0.0)
    assert isinstance(problem, AdvectionDiffusion2D)
    width = math.hypot(0.08, 0.02)
    expected = blob(64, (0.5, 0.5), width, (0.08 / width) ** 2)
    blurred = problem.propagate(blob(64, (0.5, 0.5), 0.08, 1.0))
    assert float((blurred - expected).abs().max()) < 1e-8
    y = problem.simulate(blob(64, (0.5, 0.5), 0.08, 1.0))
    torch.testing.assert_close(y, torch.tanh(1.5 * blurred) / 1.5)


def test_allen_cahn_energy_falls() -> None:
    problem = dc.problems.get("allen-cahn-2d")
    assert isinstance(problem, AllenCahn2D)

    def energy(u: torch.Tensor) -> torch.Tensor:
        """eps^2/2 |grad u|^2 + (1 - u^2)^2 / 4, integrated."""
        k1, k2 = wavenumbers(problem.grid, u.dtype, u.device)
        modes = torch.fft.rfft2(u)
        slopes = [torch.fft.irfft2(2j * math.pi * k * modes, s=u.shape[-2:]) for k in (k1, k2)]
        gradient = slopes[0].square() + slopes[1].square()
        density = 0.5 * problem.epsilon**2 * gradient + 0.25 * (1 - u**2) ** 2
        return density.flatten(1).mean(1)

    u = problem.sample(4, generator=generator(), dtype=torch.float64)
    energies = [energy(u)]
    for _ in range(12):
        u = problem.evolve(u, 5)
        energies.append(energy(u))
    assert bool((torch.stack(energies).diff(dim=0) < 0).all())


@pytest.mark.parametrize("level", [-1.0, 0.0, 1.0])
def test_allen_cahn_constant_states_stay(level: float) -> None:
    problem = dc.problems.get("allen-cahn-2d")
    u = torch.full((1, 1, 32, 32), level, dtype=torch.float64)
    torch.testing.assert_close(problem.simulate(u), u, rtol=0, atol=1e-13)


def test_allen_cahn_planar_front_stays() -> None:
    """tanh(s / (sqrt(2) eps)) is steady; two fronts half a period apart barely feel each other."""
    problem = dc.problems.get("allen-cahn-2d", grid=128, epsilon=0.03)
    s = periodic_points(128, torch.float64, CPU)
    scale = math.sqrt(2) * 0.03
    profile = torch.tanh((s - 0.25) / scale) * torch.tanh((0.75 - s) / scale)
    front = profile.expand(1, 1, 128, 128).contiguous()
    change = problem.simulate(front) - front
    assert float(change.abs().max()) < 1e-3
    # A front of the wrong width relaxes visibly in the same time.
    wide = torch.tanh((s - 0.25) / (2 * scale)) * torch.tanh((0.75 - s) / (2 * scale))
    wide = wide.expand(1, 1, 128, 128).contiguous()
    assert float((problem.simulate(wide) - wide).abs().max()) > 2e-2


def test_allen_cahn_is_first_order_in_time() -> None:
    def end(dt: float) -> torch.Tensor:
        problem = dc.problems.get("allen-cahn-2d", dt=dt, grid=16)
        x = 0.5 * problem.sample(1, generator=generator(), dtype=torch.float64)
        return problem.simulate(x)

    exact = end(0.12 / 4096)
    coarse, fine = ((end(0.12 / k) - exact).norm() for k in (16, 32))
    assert math.log2(float(coarse / fine)) == pytest.approx(1.0, abs=0.1)


def vortices(n: int, k: int) -> torch.Tensor:
    s = 2 * math.pi * k * periodic_points(n, torch.float64, CPU)
    return 0.9 * (torch.sin(s)[:, None] * torch.sin(s)[None, :])[None, None]


@pytest.mark.parametrize("k", [1, 3])
def test_taylor_green_decays_at_its_rate(k: int) -> None:
    problem = dc.problems.get("navier-stokes-2d")
    x = vortices(32, k)
    y = problem.simulate(x)
    for channel, time in enumerate((0.5, 1.0)):
        rate = math.exp(-2 * 2e-3 * (2 * math.pi * k) ** 2 * time)
        torch.testing.assert_close(y[:, channel], rate * x[:, 0], rtol=1e-11, atol=1e-12)


def test_navier_stokes_is_fourth_order_in_time() -> None:
    latent = dc.problems.get("navier-stokes-2d").sample(
        2, generator=generator(), dtype=torch.float64
    )

    def end(steps: int) -> torch.Tensor:
        problem = dc.problems.get("navier-stokes-2d", dt=0.5 / steps)
        return problem.simulate(latent)

    exact = end(160)
    coarse, fine = ((end(k) - exact).norm() for k in (20, 40))
    assert math.log2(float(coarse / fine)) == pytest.approx(4.0, abs=0.2)


def test_navier_stokes_transport_is_the_advection_it_stands_for() -> None:
    """One tiny step without viscosity against u . grad omega computed the long way."""
    dt, n = 1e-5, 32
    problem = dc.problems.get("navier-stokes-2d", viscosity=0.0, times=(dt,))
    x = 0.5 * problem.sample(1, generator=generator(), dtype=torch.float64)
    k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64) * 2 * math.pi
    k1, k2 = k[:, None], k[None, :]
    kept = (k1.abs() < 2 * math.pi * n / 3) & (k2.abs() < 2 * math.pi * n / 3)
    w = torch.fft.fft2(4 * x[0, 0]) * kept
    psi = torch.where(k1**2 + k2**2 > 0, w / (k1**2 + k2**2).clamp_min(1), 0)
    u1, u2, w1, w2 = (
        torch.fft.ifft2(1j * symbol * modes).real
        for symbol, modes in ((k2, psi), (-k1, psi), (k1, w), (k2, w))
    )
    rate = -torch.fft.ifft2(torch.fft.fft2(u1 * w1 + u2 * w2) * kept).real
    change = (problem.simulate(x) - x)[0, 0] * 4 / dt
    assert float((change - rate).abs().max() / rate.abs().max()) < 1e-3


def test_navier_stokes_keeps_mean_energy_budget() -> None:
    """Without viscosity the kinetic energy and the enstrophy of resolved modes hardly change."""
    problem = dc.problems.get("navier-stokes-2d", viscosity=0.0, times=(0.25,))
    x = problem.sample(2, generator=generator(), dtype=torch.float64)
    y = problem.simulate(x)
    torch.testing.assert_close(y.mean((-2, -1)), x.mean((-2, -1)), rtol=0, atol=1e-12)
    ratio = y.square().sum((-2, -1)) / x.square().sum((-2, -1))
    assert bool(((ratio - 1).abs() < 1e-3).all())


def test_whole_box_is_stable_at_the_default_step() -> None:
    problem = dc.problems.get("navier-stokes-2d")
    shear = torch.ones(1, 1, 32, 32)
    shear[..., :16] = -1  # the fastest flow in the box
    rough = torch.randn(3, 1, 32, 32, generator=generator()).sign()
    y = problem.simulate(torch.cat([shear, rough]))
    assert float(y.abs().max()) < 1.5
