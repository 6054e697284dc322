"""Vorticity on the torus through Runge-Kutta steps, their tangents and their adjoints.

An adjoint is carried as the transform of a real field, like the vorticity itself. Then the pullback
through ``irfft2`` is ``rfft2`` and the other way round, without weights for the half spectrum, and
a symbol is pulled back through as its conjugate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from deceptron.core.constants import constant
from deceptron.problems.grids import wavenumbers
from deceptron.problems.linear import linear

# Velocities of all stages of a row, beyond which only modes are kept: half as much, for one more
# inverse transform in every product.
VELOCITY_BYTES = 2**22


@constant
def operators(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Fourier symbols: velocities from vorticity, transport from velocity products, |k|^2.

    With omega = -Laplacian(psi) and u = (psi_2, -psi_1), the transport term in the form that
    needs only products of velocities (Basdevant 1983) is
    -u . grad omega = d1 d2 (u1^2 - u2^2) + (d2^2 - d1^2) (u1 u2):
    four transforms instead of five. Only modes inside the 2/3 rule carry or feel velocity.
    """
    m1, m2 = wavenumbers(n, dtype, device)
    k1, k2 = 2 * math.pi * m1, 2 * math.pi * m2
    square = k1**2 + k2**2
    inverse = torch.where(square > 0, 1 / square.clamp_min(1), 0.0)
    kept = ((3 * m1.abs() < n) & (3 * m2.abs() < n)).to(dtype)
    velocity = 1j * torch.stack([k2 * inverse * kept, -k1 * inverse * kept])
    transport = torch.stack([-k1 * k2 * kept, (k1**2 - k2**2) * kept])
    return velocity, transport, square


@dataclass(frozen=True)
class Vorticity:
    """x to snapshots of w / amplitude with w(0) = amplitude x, in (steps, length) a snapshot."""

    grid: int
    viscosity: float
    amplitude: float
    schedule: tuple[tuple[int, float], ...]

    def plain(self, x: Float[Tensor, "B 1 n n"]) -> Float[Tensor, "B times n n"]:
        """All snapshots."""
        return self._run(x, None)

    def linearised(self, x: Float[Tensor, "B 1 n n"]) -> tuple[Tensor, Products]:
        """The same, and products at the path of x."""
        stages: list[Tensor] = []
        return self._run(x, stages), Products(self, stages)

    def decay(self, dt: float, like: Tensor) -> Float[Tensor, "n half"]:
        """What viscosity leaves of each mode after half a step."""
        _, _, square = operators(self.grid, like.real.dtype, like.device)
        return torch.exp(-0.5 * dt * self.viscosity * square)

    def to_velocities(self, w: Complex[Tensor, "B n half"]) -> Float[Tensor, "B 2 n n"]:
        """Both velocities, dealiased."""
        velocity, _, _ = operators(self.grid, w.real.dtype, w.device)
        return torch.fft.irfft2(velocity * w.unsqueeze(1), s=(self.grid, self.grid))

    def to_transport(self, products: Float[Tensor, "B 2 n n"]) -> Complex[Tensor, "B n half"]:
        """-u . grad w from u1^2 - u2^2 and u1 u2."""
        _, transport, _ = operators(self.grid, products.dtype, products.device)
        return (transport * torch.fft.rfft2(products)).sum(1)

    def _run(self, x: Tensor, stages: list[Tensor] | None) -> Tensor:
        modes = torch.fft.rfft2(self.amplitude * x[:, 0])
        snapshots = []
        for steps, dt in self.schedule:
            modes = self._advance(modes, steps, dt, stages)
            snapshots.append(torch.fft.irfft2(modes, s=(self.grid, self.grid)))
        return torch.stack(snapshots, dim=1) / self.amplitude

    def _advance(self, w: Tensor, steps: int, dt: float, stages: list[Tensor] | None) -> Tensor:
        """Fourth-order Runge-Kutta in the variable exp(nu |k|^2 t) w."""
        half = self.decay(dt, w)

        def decay(modes: Tensor) -> Tensor:
            return linear(lambda value: half * value, modes)

        for _ in range(steps):
            a = self._transport(w, stages)
            decayed = decay(w)
            b = self._transport(decay(torch.add(w, a, alpha=0.5 * dt)), stages)
            c = self._transport(torch.add(decayed, b, alpha=0.5 * dt), stages)
            d = self._transport(decay(torch.add(decayed, c, alpha=dt)), stages)
            middle = torch.add(decay(torch.add(w, a, alpha=dt / 6)), b + c, alpha=dt / 3)
            w = torch.add(decay(middle), d, alpha=dt / 6)
        return w

    def _transport(self, w: Tensor, stages: list[Tensor] | None) -> Tensor:
        """-u . grad w, dealiased; ``stages`` gets what the products need of it."""
        velocities = linear(self.to_velocities, w)
        if stages is not None:
            stages.append(velocities if self._keeps_velocities(velocities) else w)
        u1, u2 = velocities.unbind(1)
        products = torch.stack([(u1 - u2) * (u1 + u2), u1 * u2], dim=1)
        return linear(self.to_transport, products)

    def _keeps_velocities(self, velocities: Tensor) -> bool:
        stages = 4 * sum(steps for steps, _ in self.schedule)
        return stages * velocities[0].numel() * velocities.element_size() <= VELOCITY_BYTES


@dataclass(frozen=True)
class Products:
    """Products with the Jacobian at a path that is known by its stages, four a step.

    With E the decay over half a step, which is its own transpose, and T the transport linearised
    at the velocities of a stage, a step is w' = E (E (w + dt a / 6) + dt (b + c) / 3) + dt d / 6,
    where a = T w, b = T E (w + dt a / 2), c = T (E w + dt b / 2) and d = T E (E w + dt c).
    """

    flow: Vorticity
    stages: list[Tensor]

    def push(self, v: Float[Tensor, "B 1 n n"]) -> Float[Tensor, "B times n n"]:
        """J v."""
        flow, grid = self.flow, (self.flow.grid,) * 2
        w = torch.fft.rfft2(flow.amplitude * v[:, 0])
        stages = iter(self.stages)
        snapshots = []
        for steps, dt in flow.schedule:
            decay = flow.decay(dt, w)
            for _ in range(steps):
                a = self._transport(next(stages), w)
                decayed = decay * w
                b = self._transport(next(stages), torch.add(w, a, alpha=0.5 * dt).mul_(decay))
                c = self._transport(next(stages), torch.add(decayed, b, alpha=0.5 * dt))
                d = self._transport(next(stages), decayed.add_(c, alpha=dt).mul_(decay))
                middle = a.mul_(dt / 6).add_(w).mul_(decay).add_(b.add_(c), alpha=dt / 3)
                w = middle.mul_(decay).add_(d, alpha=dt / 6)
            snapshots.append(torch.fft.irfft2(w, s=grid))
        return torch.stack(snapshots, dim=1).div_(flow.amplitude)

    def pull(self, w: Float[Tensor, "B times n n"]) -> Float[Tensor, "B 1 n n"]:
        """J' w, the steps backwards; bars are derivatives by what a letter stands for."""
        flow, grid = self.flow, (self.flow.grid,) * 2
        sources = torch.fft.rfft2(w / flow.amplitude).unbind(1)
        stages = reversed(self.stages)
        bar = torch.zeros_like(sources[0])
        for (steps, dt), source in zip(reversed(flow.schedule), reversed(sources), strict=True):
            decay = flow.decay(dt, source)
            bar = bar + source
            for _ in range(steps):
                middle = decay * bar
                into_d = self._pulled(next(stages), bar.mul_(dt / 6)).mul_(decay)
                into_c = self._pulled(next(stages), torch.add(into_d, middle, alpha=1 / 3).mul_(dt))
                into_b = torch.add(middle.mul(dt / 3), into_c, alpha=0.5 * dt)
                into_b = self._pulled(next(stages), into_b)
                into_a = torch.add(middle.mul(dt / 6), into_b, alpha=0.5 * dt).mul_(decay)
                into_a = self._pulled(next(stages), into_a)
                inner = middle.add_(into_d).add_(into_c).add_(into_b)
                bar = inner.mul_(decay).add_(into_a)
        return torch.fft.irfft2(bar, s=grid).mul_(flow.amplitude).unsqueeze(1)

    def _velocities(self, stage: Tensor) -> tuple[Tensor, Tensor]:
        u1, u2 = (self.flow.to_velocities(stage) if stage.is_complex() else stage).unbind(1)
        return u1, u2

    def _transport(self, stage: Tensor, w: Tensor) -> Tensor:
        """The products have the derivatives 2 (u1 v1 - u2 v2) and u1 v2 + u2 v1."""
        u1, u2 = self._velocities(stage)
        changes = self.flow.to_velocities(w)
        v1, v2 = changes.unbind(1)
        products = torch.empty_like(changes)
        torch.mul(u1, v1, out=products[:, 0]).addcmul_(u2, v2, value=-1).mul_(2)
        torch.mul(u1, v2, out=products[:, 1]).addcmul_(u2, v1)
        return self.flow.to_transport(products)

    def _pulled(self, stage: Tensor, bar: Tensor) -> Tensor:
        """The transpose: to the products, to the velocities, to the vorticity."""
        velocity, transport, _ = operators(self.flow.grid, bar.real.dtype, bar.device)
        u1, u2 = self._velocities(stage)
        grid = (self.flow.grid,) * 2
        into_products = torch.fft.irfft2(transport * bar.unsqueeze(1), s=grid)
        p1, p2 = into_products.unbind(1)
        p1.mul_(2)
        into_velocities = torch.empty_like(into_products)
        torch.mul(u1, p1, out=into_velocities[:, 0]).addcmul_(u2, p2)
        torch.mul(u1, p2, out=into_velocities[:, 1]).addcmul_(u2, p1, value=-1)
        # The symbol is imaginary: its conjugate is its negative.
        return (velocity * torch.fft.rfft2(into_velocities)).sum(1).neg_()
