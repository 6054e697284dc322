"""The models that ship know how far they may be off and when they are out of their depth."""

import pytest
import torch

import deceptron as dc
from deceptron.geometry import Posterior

ROWS = 24


def observed(problem, family, count=ROWS):
    latents, noise = (torch.Generator().manual_seed(seed) for seed in (200, 201))
    x = problem.sample(count, generator=latents, family=family)
    with torch.no_grad():
        y = problem.simulate(x)
    return x, problem.add_noise(y, generator=noise, family=family)


@pytest.mark.parametrize("name", dc.maps.shipped())
def test_trust_of_a_model_that_ships(name):
    pair, problem = dc.load(name), dc.problems.get(name)
    ordinary, extreme = (dc.trust(pair, observed(problem, f)[1]) for f in ("prior", "extreme"))
    assert float(ordinary.flag.double().mean()) < 0.25
    assert float(extreme.flag.double().mean()) > 0.9
    assert f"{int(extreme.flag.sum())} of {ROWS} observations" in extreme.warning


@pytest.mark.parametrize(
    ("name", "rows"), [("heat-1d", 200), ("heat-3d", ROWS), ("darcy-2d", ROWS)]
)
def test_error_bars_of_a_model_that_ships(name, rows):
    """The benchmark has 300 rows and all seven; here the scatter between rows needs more room."""
    pair, problem = dc.load(name), dc.problems.get(name)
    x, y = observed(problem, "prior", rows)
    family = pair.calibration.family
    bars = Posterior.one_shot(pair, y, prior=family, noise_std=problem.noise_std)
    low, high = bars.interval()
    assert float(((x >= low) & (x <= high)).double().mean()) == pytest.approx(0.9, abs=0.04)
    half_width = float((high - low).mean()) / 2
    assert half_width < float(problem.prior.variance.sqrt().mean())
