"""Physics so bent that linearisations mislead: where could the default ruin a good answer?

Six problems that no default was chosen on: an epidemic, layers of the earth sounded by magnetic
waves, an echo, chaotic weather seen in part, currents through a plate, a rod of unknown
conductivity. Each is trained here (preset ``smoke``, whose networks are poor, and ``standard``) and
solved on its simulator, with derivatives and by values alone, on data like the training data and on
larger and rougher latents. ``ratio`` is the default's error over that of the start it was given,
``stayed`` how many were left there.

``python -m benchmarks bent``; trainings are kept in ``runs/bent``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import publish

SIZES = {"train_count": 1500, "val_count": 200, "test_count": 150}
ANYWHERE = (-math.inf, math.inf)
SEED, ROWS = 3, 150


@dataclass(frozen=True)
class Bent:
    """A simulator, its family, and latents outside of that."""

    simulate: Callable[[Tensor], Tensor]
    family: Callable[[int, Generator], Tensor]
    outside: Callable[[int, Generator], Tensor]
    noise_std: float
    bounds: tuple[float, float] = ANYWHERE

    def problem(self, name: str) -> dc.problems.Problem:
        return dc.problems.define(
            name,
            simulate=self.simulate,
            sample=self.family,
            bounds=self.bounds,
            noise_std=self.noise_std,
            **SIZES,
        )


def smooth(count: int, generator: Generator, points: int, length: float) -> Tensor:
    """Gaussian fields on a line, variance one."""
    t = torch.linspace(0, 1, points, dtype=torch.float64)
    covariance = torch.exp(-0.5 * ((t[:, None] - t) / length) ** 2) + 1e-6 * torch.eye(points)
    white = torch.randn(count, points, dtype=torch.float64, generator=generator)
    return (white @ torch.linalg.cholesky(covariance).T).float()


def epidemic() -> Bent:
    """SEIR: contact, incubation and recovery rates and the first cases, from case counts."""

    def simulate(x: Tensor) -> Tensor:
        contact, onset, recovery = 0.3 + 0.9 * x[:, 0], 0.1 + 0.4 * x[:, 1], 0.08 + 0.3 * x[:, 2]
        ill = 10 ** (-4 + 2 * x[:, 3])
        healthy, exposed, seen = 1 - ill, torch.zeros_like(ill), []
        for step in range(200):
            caught = contact * healthy * ill
            healthy, exposed, ill = (
                healthy - 0.5 * caught,
                exposed + 0.5 * (caught - onset * exposed),
                ill + 0.5 * (onset * exposed - recovery * ill),
            )
            if step % 8 == 7:
                seen.append(10 * ill)
        return torch.stack(seen, 1)

    def corners(count: int, generator: Generator) -> Tensor:
        side = torch.rand(count, 4, generator=generator) < 0.5
        return 0.9 * side + 0.1 * torch.rand(count, 4, generator=generator)

    def anywhere(count: int, generator: Generator) -> Tensor:
        return torch.rand(count, 4, generator=generator)

    return Bent(simulate, anywhere, corners, 0.03, bounds=(0.0, 1.0))


def soundings() -> Bent:
    """Magnetotellurics: log-resistivities of 24 layers from impedances at 18 periods."""
    layers = 24
    omega = 2 * math.pi / torch.logspace(-2, 3, 18, dtype=torch.float64)
    induction = 1j * omega * 4e-7 * math.pi
    thickness = torch.logspace(1.7, 3.3, layers - 1, dtype=torch.float64)

    def simulate(x: Tensor) -> Tensor:
        resistivity = 10 ** (2 + 1.2 * x.double())
        impedance = torch.sqrt(induction * resistivity[:, -1:])
        for layer in range(layers - 2, -1, -1):
            k = torch.sqrt(induction / resistivity[:, layer : layer + 1])
            own = induction / k
            reflected = (own - impedance) / (own + impedance)
            reflected = reflected * torch.exp(-2 * k * thickness[layer])
            impedance = own * (1 - reflected) / (1 + reflected)
        size = torch.log10(impedance.abs() ** 2 / induction.abs())
        return torch.cat([size, torch.angle(impedance) * 4 / math.pi], 1).to(x)

    return Bent(
        simulate,
        lambda count, generator: smooth(count, generator, layers, 0.2),
        lambda count, generator: 1.6 * smooth(count, generator, layers, 0.1),
        0.02,
    )


def echo() -> Bent:
    """The wave speed along a string from what comes back to its end."""
    points, dt = 40, 0.5

    def simulate(x: Tensor) -> Tensor:
        speed = (1 + 0.35 * torch.tanh(x)) ** 2
        before = now = torch.zeros_like(x)
        heard = []
        for step in range(140):
            sides = torch.nn.functional.pad(now, (1, 1))
            bend = sides[:, 2:] - 2 * now + sides[:, :-2]
            s = (step * dt - 6) / 2
            pulse = torch.zeros_like(now)
            pulse[:, 1] = (1 - 2 * s * s) * math.exp(-s * s)
            before, now = now, 2 * now - before + dt * dt * (speed * bend + pulse)
            if step % 4 == 3:
                heard.append(now[:, 2])
        return torch.stack(heard, 1)

    return Bent(
        simulate,
        lambda count, generator: 0.6 * smooth(count, generator, points, 0.15),
        lambda count, generator: 0.9 * smooth(count, generator, points, 0.08),
        0.02,
    )


def weather() -> Bent:
    """Lorenz's ring of 20 places: the first state from half of the places, twice, later."""

    def rate(u: Tensor) -> Tensor:
        return (u.roll(-1, 1) - u.roll(2, 1)) * u.roll(1, 1) - u + 8

    def simulate(x: Tensor) -> Tensor:
        u, dt, seen = 8 + 4 * x, 0.05, []
        for step in range(8):
            a = rate(u)
            b = rate(u + dt / 2 * a)
            c = rate(u + dt / 2 * b)
            u = u + dt / 6 * (a + 2 * b + 2 * c + rate(u + dt * c))
            if step % 4 == 3:
                seen.append(u[:, ::2])
        return torch.cat(seen, 1)

    def family(count: int, generator: Generator) -> Tensor:
        white = torch.randn(count, 20, generator=generator)
        return (white + white.roll(1, 1) + white.roll(2, 1)) / 12**0.5

    def rougher(count: int, generator: Generator) -> Tensor:
        return 0.7 * torch.randn(count, 20, generator=generator)

    return Bent(simulate, family, rougher, 0.2)


def plate() -> Bent:
    """Impedance tomography: an 8 x 8 log-conductivity from voltages along its rim."""
    m = 8
    places = torch.arange(m * m).reshape(m, m)
    rim = [places[0], places[1:, -1], places[-1, :-1].flip(0), places[1:-1, 0].flip(0)]
    electrodes = torch.cat(rim)[::2]
    at = torch.eye(m * m, dtype=torch.float64)[electrodes]
    currents = (at - at.roll(1, 0)).T
    links = [(places[:, :-1], places[:, 1:]), (places[:-1], places[1:])]

    def simulate(x: Tensor) -> Tensor:
        conductivity = torch.exp(x.double()).flatten(1)
        rows = torch.arange(len(x))[:, None]
        system = 1e-3 * torch.eye(m * m, dtype=torch.float64).repeat(len(x), 1, 1)
        for one, other in links:
            a, b = one.flatten(), other.flatten()
            link = 2 / (1 / conductivity[:, a] + 1 / conductivity[:, b])
            for i, j, sign in ((a, b, -1), (b, a, -1), (a, a, 1), (b, b, 1)):
                system = system.index_put((rows, i, j), sign * link, accumulate=True)
        volts = torch.linalg.solve(system, currents.expand(len(x), -1, -1))
        return (volts[:, electrodes] - volts[:, electrodes.roll(1)]).flatten(1).to(x)

    def fields(count: int, generator: Generator, length: float) -> Tensor:
        i = torch.arange(m).float()
        across = torch.exp(-0.5 * ((i[:, None] - i) / length) ** 2) + 1e-4 * torch.eye(m)
        root = torch.linalg.cholesky(across)
        return 0.6 * (root @ torch.randn(count, 1, m, m, generator=generator) @ root.T)

    return Bent(
        simulate,
        lambda count, generator: fields(count, generator, 1.5),
        lambda count, generator: 1.5 * fields(count, generator, 1.0),
        0.02,
    )


def rod() -> Bent:
    """-(a u')' = 1 in one dimension, in closed form: log a from every third value of u."""
    points = 30

    def simulate(x: Tensor) -> Tensor:
        resistance = torch.exp(-1.2 * x)
        total = resistance.cumsum(1)
        pushed = (torch.linspace(0, 1, points).to(x) * resistance).cumsum(1)
        return (pushed[:, -1:] / total[:, -1:] * total - pushed)[:, 1::3]

    return Bent(
        simulate,
        lambda count, generator: smooth(count, generator, points, 0.2),
        lambda count, generator: 1.7 * smooth(count, generator, points, 0.1),
        0.05,
    )


PHYSICS = {make.__name__: make for make in (epidemic, soundings, echo, weather, plate, rod)}


def rms(x: Tensor, truth: Tensor) -> float:
    return float((x - truth).double().square().mean().sqrt())


def rows_of(name: str, preset: str) -> list[dict[str, object]]:
    bent = PHYSICS[name]()
    problem = bent.problem(name)
    pair = dc.train(problem, preset, f"runs/bent/{name}-{preset}", seed=SEED, progress=False)
    start = "wiener" if pair.calibration.start == "wiener" else "one-shot"
    generator = Generator().manual_seed(SEED)
    outside = bent.outside(ROWS, generator)
    test = problem.dataset(SEED + 100).test
    sets = {
        "like the training data": (test.x, test.y),
        "outside": (outside, problem.add_noise(problem.simulate(outside), generator=generator)),
    }
    rows: list[dict[str, object]] = []
    for label, (x, y) in sets.items():
        first = rms(dc.solve(pair, y, method=start).x, x)
        for mode, differentiable in (("derivatives", True), ("values", False)):
            settings = {"forward": problem, "differentiable": differentiable}
            found = dc.solve(pair, y, **settings)
            rows.append(
                {
                    "problem": name,
                    "preset": preset,
                    "data": label,
                    "mode": mode,
                    "start": first,
                    "default": rms(found.x, x),
                    "ratio": rms(found.x, x) / first,
                    "stayed": int((found.reason == dc.Reason.START_IS_BETTER).sum()),
                    "explained": float(found.explained.double().mean()),
                }
            )
    return rows


def main() -> None:
    torch.set_num_threads(1)
    rows = [
        row for preset in ("smoke", "standard") for name in PHYSICS for row in rows_of(name, preset)
    ]
    publish("bent", "The default over its start, on bent physics", rows)


if __name__ == "__main__":
    main()
