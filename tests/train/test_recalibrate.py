"""A pair on another grid: its trust, bars and corrections found anew, without training."""

import sys
from contextlib import contextmanager

import pytest
import torch

import deceptron as dc
from deceptron.geometry import fit_trust
from deceptron.train.beliefs import LARGEST_DENSE

GRID = 40


@pytest.fixture(scope="module")
def recalibrated():
    """1600 unknowns: beyond what dense tables are made for."""
    assert GRID**2 > LARGEST_DENSE
    problem = dc.problems.get("advection-diffusion-2d", grid=GRID)
    told = []

    @contextmanager
    def listening(shown):
        assert shown
        yield lambda what, share: told.append((what, share))

    before = dc.load(problem.name).at_grid(GRID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["deceptron.train.calibration"], "calibrating", listening)
        after = dc.recalibrate(before, problem, simulations=80, progress=True)
    return problem, before, after, told


def noisy(problem, count, seed):
    x = problem.sample(count, generator=torch.Generator().manual_seed(seed))
    return x, problem.add_noise(
        problem.simulate(x), generator=torch.Generator().manual_seed(seed + 1)
    )


def test_fresh_data_are_trusted_and_covered(recalibrated):
    problem, _, pair, _ = recalibrated
    x, y = noisy(problem, 40, 5)
    assert float(dc.trust(pair, y).flag.double().mean()) < 0.2
    assert bool(dc.trust(pair, 3 * y).flag.all())
    solution = dc.solve(pair, y, forward=problem)
    low, high = solution.interval(0.9)
    assert float(((x >= low) & (x <= high)).double().mean()) == pytest.approx(0.9, abs=0.06)


def test_corrections_are_there_and_help_off_the_family(recalibrated):
    problem, _, pair, _ = recalibrated
    corrections = pair.calibration.beliefs.corrections
    assert corrections.tables.log_variances.shape[2] == GRID**2
    rough = problem.sample(24, generator=torch.Generator().manual_seed(0), family="shifted")
    y = problem.add_noise(problem.simulate(rough), generator=torch.Generator().manual_seed(1))
    errors = [
        float((s.x - rough).square().mean().sqrt())
        for s in (dc.solve(pair, y, forward=problem), dc.solve(pair, y, method="one-shot"))
    ]
    assert errors[0] < errors[1]


def test_the_pair_that_was_given_stays_as_it_is(recalibrated, tmp_path):
    _, before, after, _ = recalibrated
    assert before.calibration.beliefs is None
    assert after.g is before.g
    loaded = dc.load(dc.save(after, tmp_path / "pair"))
    assert loaded.calibration.trust == after.calibration.trust
    assert loaded.surrogate_error == after.surrogate_error > 0


def test_somebody_who_listens_hears_how_far_it_is(recalibrated):
    told = recalibrated[3]
    whats = [what for what, _ in told]
    assert list(dict.fromkeys(whats)) == ["simulations", "error bars", "laws"]
    shares = [share for what, share in told if what == "laws"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_problem_of_another_shape_or_without_noise_or_simulator_is_refused():
    pair = dc.load("heat-1d")
    with pytest.raises(dc.ShapeError, match="brings a pair to another grid"):
        dc.recalibrate(pair, dc.problems.get("heat-1d", grid=80))
    with pytest.raises(dc.ConfigError, match="noise_std > 0"):
        dc.recalibrate(pair, dc.problems.get("heat-1d", noise_std=0.0))
    with pytest.raises(dc.ConfigError, match="simulations"):
        dc.recalibrate(pair, "heat-1d", simulations=1)
    x = torch.rand(20, 64, generator=torch.Generator().manual_seed(0))
    measured = dc.problems.from_data(x, x, bounds=(0.0, 1.0), noise_std=0.1)
    with pytest.raises(dc.ConfigError, match="must have a simulator"):
        dc.recalibrate(pair, measured)


def test_on_finer_grids_fewer_rows_are_calibrated_on():
    from deceptron.train.calibration import CALIBRATED_POINTS, FEWEST_ROWS, ROWS, _within

    assert _within(ROWS, CALIBRATED_POINTS, torch.zeros(1, 1, 32, 32)) == ROWS
    assert _within(ROWS, CALIBRATED_POINTS, torch.zeros(1, 1, 64, 64)) == ROWS // 2
    assert _within(ROWS, CALIBRATED_POINTS, torch.zeros(1, 1, 512, 512)) == FEWEST_ROWS


def patchy(x):
    y = torch.tanh(2 * x)
    return torch.where(x[:, :1] > 0.97, torch.nan, y)


def test_rows_without_an_answer_are_left_out(monkeypatch):
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    problem = dc.problems.define(
        "patchy",
        simulate=patchy,
        sample=lambda count, g: torch.rand(count, 4, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.05,
        train_count=300,
        val_count=80,
    )
    with pytest.warns(RuntimeWarning, match="has no answer for"):
        pair = dc.train(problem, "smoke", progress=False)
    after = dc.recalibrate(pair, problem, simulations=120, progress=False)
    assert after.calibration.trust is not None
    assert 60 < after.calibration.rows < 120
    with pytest.raises(dc.ConfigError, match="seed must be an integer >= 0"):
        dc.recalibrate(pair, problem, seed=-1)


def test_rows_that_a_pair_never_learned_are_not_made_familiar_by_recalibrating():
    """Discs of allen-cahn-2d have edges as sharp as the grid: a pair of 32 fails at 40."""
    pair = dc.load("allen-cahn-2d").at_grid(GRID)
    problem = dc.problems.get("allen-cahn-2d", grid=GRID)
    _, y = noisy(problem, 24, 5)
    assert float(dc.trust(pair, y).flag.double().mean()) > 0.8
    learned = pair.calibration.trust
    known = fit_trust(pair, y, learned)
    assert known.limit == learned.limit
    # What the data themselves say is of their own grid, and does not come along.
    assert known.parts == {n: learned.parts[n] for n in ("round_trip", "latent_round_trip")}
    # Another problem, or noise that has no limits of its own, is fitted anew.
    assert fit_trust(pair, y).parts != known.parts


def test_answers_stay_within_the_bounds_of_the_new_problem():
    pair, wider = dc.load("heat-1d"), dc.problems.get("heat-1d", bounds=(-1.0, 2.0))
    found = dc.recalibrate(pair, wider, simulations=20)
    assert (found.bounds, pair.bounds) == ((-1.0, 2.0), (0.0, 1.0))
    assert found.f is pair.f
    assert not found.training
