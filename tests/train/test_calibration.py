"""The end of a training: error bars that cover and trust that notices, kept with the pair."""

import sys
from dataclasses import replace

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import EigenBasis, GridBasis
from deceptron.geometry import Posterior, trust
from deceptron.laws.odds import CORRECTION, Odds
from deceptron.laws.shapes import roughened
from deceptron.solve.descents.posterior import BY_START, COMPLETE
from deceptron.train import calibrate, recipe
from deceptron.train.families import data_laws, family_of, gaussian_of, observations_of
from tests.train.small import quick, tiny

LINEAR = 0.5 * torch.eye(6) + 0.1


@pytest.fixture(autouse=True, scope="module")
def _clean_registry():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        yield


def linear(**changes):
    return dc.problems.define(
        "linear-6",
        simulate=lambda x: x @ LINEAR.to(x),
        sample=lambda count, g: torch.rand(count, 6, generator=g),
        bounds=(0.0, 1.0),
        **{
            "noise_std": 0.05,
            "train_count": 400,
            "val_count": 160,
            "test_count": 160,
            **changes,
        },
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The standard maps start at the best linear estimate, here the truth; one epoch is enough."""
    folder, mine = tmp_path_factory.mktemp("run"), recipe(linear(), "standard")
    stages = {
        name: replace(getattr(mine, name), epochs=1) for name in ("forward", "reverse", "jcp")
    }
    return dc.train(linear(), replace(mine, **stages), out=folder, seed=3), folder


def test_intervals_of_fresh_data_cover(trained):
    pair, problem = trained[0], linear()
    test = problem.dataset(3).test
    bars = Posterior.one_shot(pair, test.y, prior=problem.prior, noise_std=problem.noise_std)
    low, high = bars.interval()
    inside = (test.x >= low) & (test.x <= high)
    assert float(inside.double().mean()) == pytest.approx(0.9, abs=0.03)
    # Not bought by width: half of it is less than the prior's standard deviation.
    assert float((high - low).mean() / 2) < 0.7 * float(problem.prior.variance.sqrt().mean())


def test_trust_knows_fresh_data_from_another_sensor(trained):
    pair, test = trained[0], linear().dataset(3).test
    assert float(trust(pair, test.y).flag.double().mean()) < 0.12
    assert bool(trust(pair, 3 * test.y - 5).flag.all())


def test_the_calibration_is_repeatable_and_stored(trained):
    pair, folder = trained
    stored = dc.load(folder / "pair.safetensors")
    known, kept = pair.calibration, stored.calibration
    assert kept.trust == known.trust
    for name in ("noise_std", "surrogate_error", "start", "interval_factor", "prior_share"):
        assert getattr(kept, name) == getattr(known, name), name
    assert kept.rows == 160
    torch.testing.assert_close(kept.family.variance, known.family.variance, rtol=1e-5, atol=0)
    assert kept.beliefs.corrections.scale == known.beliefs.corrections.scale
    again = calibrate(stored, linear(), linear().dataset(3)).calibration
    assert stored.calibration is kept  # it is what it was
    assert again.trust.limit == pytest.approx(known.trust.limit)
    assert again.interval_factor == pytest.approx(known.interval_factor)
    for which in ("corrections", "family"):
        mine, other = (getattr(c.beliefs, which) for c in (again, known))
        assert mine.factor == pytest.approx(other.factor, rel=1e-3)
        torch.testing.assert_close(
            mine.tables.log_determinants, other.tables.log_determinants, rtol=1e-4, atol=1e-4
        )
    torch.testing.assert_close(
        again.beliefs.simulator.answer, known.beliefs.simulator.answer, rtol=0.02, atol=0.02
    )


def test_intervals_of_the_default_solve_cover_without_a_prior(trained):
    pair, problem = trained[0], linear()
    test = problem.dataset(3).test
    for settings in ({}, {"forward": problem}):
        low, high = dc.solve(pair, test.y, **settings).interval()
        inside = (test.x >= low) & (test.x <= high)
        assert float(inside.double().mean()) == pytest.approx(0.9, abs=0.04)


def test_bars_about_the_linear_estimate_are_its_own():
    """A network of three epochs is far off, and its bars would be ten times too wide there."""
    problem = linear()
    pair = dc.train(problem, "smoke", seed=3, progress=False)
    assert pair.calibration.start == "wiener"
    test = problem.dataset(3).test
    for settings in ({"forward": problem}, {}, {"method": "wiener"}):
        solution = dc.solve(pair, test.y, **settings)
        low, high = solution.interval()
        inside = (test.x >= low) & (test.x <= high)
        assert float(inside.double().mean()) == pytest.approx(0.9, abs=0.06), settings
        error = float((solution.x - test.x).square().mean().sqrt())
        assert 0.5 < float(solution.std.mean()) / error < 1.5, settings
    one_shot = dc.solve(pair, test.y, method="one-shot")
    assert float(one_shot.std.mean()) > 2 * float(solution.std.mean())


def test_without_noise_there_is_nothing_to_calibrate():
    problem = linear(noise_std=0.0)
    pair = dc.train(problem, quick(problem, correction_limit=64), seed=3)
    assert pair.calibration.trust is pair.calibration.noise_std is None
    assert "the noise it was trained for is not known" in pair.verdict
    with pytest.raises(dc.ConfigError, match="must have noise_std > 0; got 0"):
        calibrate(pair, problem, problem.dataset(3))


def test_the_share_and_the_factor_have_rows_of_their_own(trained, monkeypatch):
    """Rows that the share is chosen on must not say how wide the bars are, nor the other way."""
    seen = {}
    module = sys.modules["deceptron.train.start_bars"]
    for name in ("fit_prior_share", "fit_interval_factor"):
        fit = getattr(module, name)

        def watched(bars, truth, fit=fit, name=name, **settings):
            seen[name] = {tuple(row) for row in truth.tolist()}
            return fit(bars, truth, **settings)

        monkeypatch.setattr(module, name, watched)
    calibrate(dc.load(trained[1] / "pair.safetensors"), linear(), linear().dataset(3))
    assert [len(rows) for rows in seen.values()] == [40, 120]
    assert seen["fit_prior_share"].isdisjoint(seen["fit_interval_factor"])


def test_one_row_is_not_enough():
    problem = linear(val_count=1)
    with pytest.warns(UserWarning, match="two or more rows in val; got 1"):
        pair = dc.train(problem, quick(problem, correction_limit=64), seed=3)
    assert pair.calibration.trust is pair.calibration.interval_factor is None


def test_a_pair_that_cannot_be_calibrated_is_not_lost(monkeypatch):
    def refuse(pair, problem, data, **settings):
        raise dc.ConfigError("too strange")

    monkeypatch.setattr(sys.modules["deceptron.train.run"], "calibrate", refuse)
    with (
        pytest.warns(UserWarning, match="the pair has no laws of its rows: too strange"),
        pytest.warns(UserWarning, match="the pair has no error bars and trust: too strange"),
    ):
        pair = dc.train(tiny(), quick(correction_limit=64))
    assert pair.calibration.trust is pair.calibration.interval_factor is None
    assert pair.noise_std == tiny().noise_std


def test_a_simulator_that_refuses_a_trial_does_not_cost_the_training(tmp_path):
    def simulate(x):
        if x.requires_grad:
            raise RuntimeError("no such rock")
        return x @ LINEAR.to(x)

    problem = dc.problems.define(
        "rock",
        simulate=simulate,
        sample=lambda count, g: torch.rand(count, 6, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.05,
        train_count=40,
        val_count=20,
    )
    with pytest.warns(UserWarning, match="no such rock"):
        pair = dc.train(problem, quick(problem, correction_limit=64), out=tmp_path, seed=3)
    known, kept = pair.calibration, dc.load(tmp_path / "pair.safetensors").calibration
    assert kept.trust == known.trust is not None
    assert kept.interval_factor == known.interval_factor is not None
    assert kept.beliefs is known.beliefs is None


# Beyond those that are solved in all of space.
WIDTH = COMPLETE + 6


class Scaled(torch.nn.Module):
    """The mean of the two readings times a number: at 0.5 every row needs a step, at 1 none."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, y):
        return 0.5 * self.factor * sum(y.chunk(2, dim=1))


class Twice(torch.nn.Module):
    """Each component is read twice, which tells its noise."""

    def forward(self, x):
        return torch.cat([x, x], 1)


def seen_directly(scale, name):
    """The observation is the latent, twice; ``scale`` says how far each component varies."""
    return dc.problems.define(
        name,
        simulate=Twice(),
        sample=lambda count, g: 0.5 + scale * (torch.rand(count, WIDTH, generator=g) - 0.5),
        bounds=(-1.0, 2.0),
        noise_std=0.02,
        train_count=400,
        val_count=200,
        test_count=100,
    )


def crude_pair(problem, factor=0.5):
    return dc.Deceptron(Twice(), Scaled(factor), x_shape=(WIDTH,), bounds=problem.bounds)


def test_a_law_of_the_start_is_kept_where_the_family_knows_more_than_the_data():
    narrow = seen_directly(torch.tensor([1.0] * 4 + [0.01] * (WIDTH - 4)), "narrow")
    data = narrow.dataset(3)
    pair = calibrate(crude_pair(narrow), narrow, data)
    known = pair.calibration
    start = known.beliefs.start
    assert start is not None
    settings = {"forward": narrow.simulate}
    # Corrections of every row, though an answer about the family's mean is closer still.
    corrected = replace(known.beliefs, simulator=Odds.only(CORRECTION))
    before, after = (
        dc.solve(
            pair.replaced(calibration=replace(known, beliefs=replace(corrected, start=law))),
            data.test.y,
            **settings,
        )
        for law in (None, start)
    )
    rmse = [float((s.x - data.test.x).square().mean(1).sqrt().mean()) for s in (before, after)]
    assert rmse[1] < 0.95 * rmse[0]
    assert float((after.rule == BY_START).double().mean()) > 0.9
    assert float(after.explained.double().mean()) > 0.9
    low, high = after.interval()
    inside = (data.test.x >= low) & (data.test.x <= high)
    assert float(inside.double().mean()) == pytest.approx(0.9, abs=0.04)
    again = calibrate(crude_pair(narrow), narrow, data).calibration.beliefs.start
    assert torch.equal(again.own, start.own)


@pytest.mark.parametrize(
    ("spread", "factor"), [(1.0, 0.5), (0.01, 1.0)], ids=["the data decide", "nobody steps"]
)
def test_no_law_of_the_start_is_kept_where_it_does_not_pay(spread, factor):
    wide = seen_directly(torch.full((WIDTH,), spread), f"wide-{factor}")
    pair = calibrate(crude_pair(wide, factor), wide, wide.dataset(3))
    assert pair.calibration.beliefs is not None
    assert pair.calibration.beliefs.start is None


def test_a_family_too_large_for_tables_still_has_bars_that_survive_a_file(tmp_path):
    problem = seen_directly(torch.full((WIDTH,), 1.0), "large")
    data = problem.dataset(3)
    pair = calibrate(crude_pair(problem, 1.0), problem, data, correction_limit=WIDTH - 1)
    assert pair.calibration.beliefs is None
    path = dc.save(pair, tmp_path / "pair")
    loaded = dc.load(path, forward=Twice(), reverse=Scaled(1.0))
    y = data.test.y[:5]
    torch.testing.assert_close(dc.solve(loaded, y).std, dc.solve(pair, y).std)


def shapes(count, *, seed):
    """Fields of two shapes that stand in a corner each: nothing about them is stationary."""
    weights = torch.randn(count, 2, 1, 1, generator=torch.Generator().manual_seed(seed))
    corners = torch.zeros(2, 16, 16)
    corners[0, :4, :4], corners[1, -4:, -4:] = 1.0, 1.0
    rough = 0.01 * torch.randn(count, 16, 16, generator=torch.Generator().manual_seed(seed + 1))
    return (weights * corners).sum(1) + rough


def waves(count, *, seed):
    """Fields of all waves, the longer the larger."""
    k = torch.arange(1.0, 17.0)
    size = 1 / (k[:, None].square() + k.square())
    sines = torch.sin(torch.pi * k[:, None] * k / 17)
    drawn = size * torch.randn(count, 16, 16, generator=torch.Generator().manual_seed(seed))
    return sines @ drawn @ sines


@pytest.mark.parametrize(("fields", "kind"), [(shapes, EigenBasis), (waves, GridBasis)])
def test_the_law_of_fields_is_told_by_fields_that_were_not_fitted(fields, kind):
    rows = fields(800, seed=3)
    family = family_of(rows)
    assert isinstance(family.basis, kind)
    fresh, other = fields(200, seed=11), gaussian_of(rows, GridBasis.fit(rows))
    if kind is EigenBasis:
        assert family.log_likelihood(fresh) > other.log_likelihood(fresh) + 100
    exact = torch.cov(rows.double().flatten(1).T)
    mine = family.apply(torch.eye(256, dtype=torch.float64).reshape(256, 16, 16)).reshape(256, 256)
    assert float((mine - exact).norm() / exact.norm()) < 0.15


def test_few_fields_are_not_told_apart_by_their_principal_directions():
    rows = shapes(200, seed=3)
    assert isinstance(family_of(rows).basis, GridBasis)


def test_the_data_of_roughened_laws_are_those_of_dense_algebra():
    """Through a linear map, in the coordinates of the family's data: diagonals of V A C A' V'."""
    rows = torch.randn(2000, 6, generator=torch.Generator().manual_seed(2)).double().cumsum(1)
    matrix = torch.randn(9, 6, generator=torch.Generator().manual_seed(3)).double()
    family, observations = family_of(rows), observations_of(rows @ matrix.T)
    laws = roughened(family)
    (found, *others) = data_laws(lambda x: x @ matrix.T, laws, observations, None, rows)
    eye = torch.eye(9, dtype=torch.float64)
    directions = found.basis.forward(eye).T
    torch.testing.assert_close(found.spectra[0], observations.spectrum)
    for shape, spectrum in zip(laws.shapes[1:], found.spectra[1:], strict=True):
        dense = shape.basis.back(shape.basis.forward(torch.eye(6).double()) * shape.spectrum)
        dense = laws.scale**2 * matrix @ dense @ matrix.T
        wanted = (directions @ dense @ directions.T).diagonal()
        seen = wanted > 1e-6 * wanted.max()
        # So many draws tell a variance to a fifth or so.
        assert float((spectrum[seen] / wanted[seen]).log().abs().max()) < 0.8
        assert float((spectrum[seen] / wanted[seen]).log().mean().abs()) < 0.25
    # Nine sensors in a row may lie on a line: the same in waves.
    assert [type(law.basis) for law in others] == [GridBasis]


def test_validation_rows_are_answered_in_as_many_runs_as_is_said():
    """Calibrating counts what it asks of a simulator without derivatives: rows, not time."""
    simulator = dc.simulators.wrap(lambda x: x @ LINEAR.numpy().astype(float))
    problem = dc.problems.define(
        "linear-values",
        simulate=simulator,
        sample=lambda count, g: torch.rand(count, 6, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.05,
        train_count=400,
        val_count=160,
    )
    pair = dc.Deceptron(
        torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), bounds=(0.0, 1.0), x_shape=(6,), y_shape=(6,)
    )
    data = problem.dataset(3)
    simulator.reset()
    calibrate(pair, problem, data)
    # 72 rows in three ways, a linearisation and an end each, some of them twice; seven laws of 64.
    assert 0 < simulator.calls.values < 3 * 72 * 20 + 7 * 64
