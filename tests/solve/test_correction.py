"""Corrections by evidence: on linear problems everything has a dense answer to compare with."""

import math
from dataclasses import replace

import pytest
import torch
from deceptron.core.corrections import SIZE_MARKS, SIZES, Corrections, tabulated
from deceptron.solve.boxed_evidence import choose_in_box
from deceptron.solve.evidence import PREFERENCE, _determinant, choose
from deceptron.solve.measured_span import MeasuredSpan
from deceptron.solve.span_growth import FIRST_MEMBERS, FIRST_SIZE, grow
from scipy.optimize import lsq_linear
from torch import nn

import deceptron as dc
from deceptron.core import Reason, Status
from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.calibration import Calibration
from deceptron.solve import boxed_evidence, span_growth
from deceptron.solve.descents import correction
from deceptron.solve.methods import get_method
from deceptron.solve.task import Known, prepare

NOISE = 0.05


def normal(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=rng)


def linear(matrix):
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).double().requires_grad_(False)
    layer.weight.copy_(matrix)
    return layer


class Case:
    """y = A x, latents that are cumulated noise, and a g that finds only a part of them."""

    def __init__(self, n, m, *, share=0.5, seed=0, unit=1.0):
        self.n, self.m = n, m
        self.matrix = normal(m, n, seed=seed) / n**0.5 / unit
        family = unit * normal(300, n, seed=seed + 1).cumsum(1) / n**0.5
        gain = share * torch.linalg.pinv(self.matrix)
        corrections = Corrections.of(family, largest=64, kept=64)
        if n > correction.DENSE:
            own = corrections.scale
            tables = tabulated(corrections, [own * self.matrix / NOISE])
            corrections = replace(
                corrections, log_determinants=tables[0], log_variances=tables[1], table_unit=own
            )
        self.corrections = corrections
        self.pair = dc.Deceptron(
            linear(self.matrix),
            linear(gain),
            x_shape=(n,),
            y_shape=(m,),
            calibration=Calibration(noise_std=NOISE, corrections=corrections),
        )

    def observe(self, rows, *, noise=NOISE, seed=7):
        x = normal(rows, self.n, seed=seed).cumsum(1) / self.n**0.5
        return x, x @ self.matrix.T + noise * normal(rows, self.m, seed=seed + 1)

    def covariance(self, number):
        member = self.corrections.members[number]
        eye = torch.eye(self.n, dtype=torch.float64)
        return member.basis.back(member.basis.forward(eye) * member.spectrum)

    def scores(self, y, start, noise=NOISE):
        """Minus twice the log evidence of every (member, size), and the posterior means."""
        jacobian = self.matrix / noise
        r = (y - start @ self.matrix.T) / noise
        eye = torch.eye(self.m, dtype=torch.float64)
        values, means = [], []
        for number in range(len(self.corrections.members)):
            k = self.covariance(number)
            for size in SIZES:
                t = (self.corrections.scale * size) ** 2
                total = t * jacobian @ k @ jacobian.T + eye
                half = torch.linalg.solve(total, r.T)
                values.append((r.T * half).sum(0) + torch.linalg.slogdet(total).logabsdet)
                means.append(start + (t * k @ jacobian.T @ half).T)
        return torch.stack(values), torch.stack(means)

    def best(self, y, start):
        values, means = self.scores(y, start)
        place = values.argmin(0)
        return means[place, torch.arange(len(y))]


def spanned(case, y, *, at=None, **settings):
    """Of every row at its start or elsewhere, and that start."""
    settings = {"noise_std": NOISE, **settings}
    task = prepare(Known.of(case.pair), y, get_method("guarded"), **settings)
    model = task.model()
    point = model.values(task.start if at is None else at, task.target)
    return MeasuredSpan(model, point, task.start, task.box, case.corrections), task.start


@pytest.mark.parametrize(("n", "m"), [(6, 9), (12, 8), (24, 40)])
def test_the_evidence_is_that_of_the_dense_gaussian(n, m):
    case = Case(n, m)
    _, y = case.observe(4)
    with torch.no_grad():
        span, start = spanned(case, y)
        span.fill()
    quadratics = span.quadratics()
    t = case.corrections.strengths(torch.ones(4, dtype=torch.float64))
    wanted, means = case.scores(y, start)
    for number, member in enumerate(case.corrections.members):
        stiffness = quadratics.stiffness[number]
        z, value, factor = quadratics.minimise(stiffness, t)
        found = value + _determinant(quadratics, stiffness, t, factor, member)
        rows = slice(number * len(SIZES), (number + 1) * len(SIZES))
        torch.testing.assert_close(found, wanted[rows], rtol=1e-6, atol=1e-6)
        for size in range(len(SIZES)):
            torch.testing.assert_close(
                start + span.combined(z[size]), means[rows][size], rtol=0, atol=1e-6
            )


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
@pytest.mark.parametrize(("n", "m"), [(6, 9), (12, 8), (24, 40)])
def test_the_answer_is_the_posterior_mean_of_the_likeliest_correction(n, m, differentiable):
    case = Case(n, m)
    _, y = case.observe(8)
    settings = {}
    if not differentiable:
        matrix = case.matrix.numpy()
        settings = {"forward": lambda x: x.numpy() @ matrix.T, "differentiable": False}
    solution = dc.solve(case.pair, y, noise_std=NOISE, **settings)
    start = case.pair.g(y)
    # A start may explain its data by chance.
    moved = solution.iterations > 0
    assert int(moved.sum()) > 4
    assert set(solution.rule[moved].tolist()) == {correction.CORRECTION}
    best = case.best(y, start)
    torch.testing.assert_close(solution.x[moved], best[moved], rtol=0, atol=1e-6)
    if differentiable:
        # The start, as many products as unknowns, and where the correction ends.
        once = solution.iterations == 1
        assert bool((solution.cost.jvp[once] == n).all())
        assert bool((solution.cost.f[once] == 2).all())
        assert bool((solution.cost.g == 1).all())


@pytest.mark.parametrize("bounds", [None, (-9.0, 9.0)], ids=["free", "boxed"])
def test_a_row_takes_as_much_of_it_as_is_likely_not_to_be_chance(bounds):
    case = Case(12, 20, share=0.93)
    _, y = case.observe(100)
    start = case.pair.g(y)
    values, means = case.scores(y, start)
    least, place = values.min(0)
    misfit = ((y - start @ case.matrix.T) / NOISE).square().sum(1)
    for_it = (misfit - least) / 2
    odds = float(for_it[misfit > 2 * case.m].median())
    case.pair.calibration = replace(
        case.pair.calibration, corrections=replace(case.corrections, chance=(odds, odds))
    )
    solution = dc.solve(case.pair, y, noise_std=NOISE, bounds=bounds)
    share = torch.sigmoid(for_it - odds)
    wanted = start + share[:, None] * (means[place, torch.arange(len(y))] - start)
    moved = solution.iterations > 0
    assert int((share[moved] < 0.9).sum()) > 4  # there is something to see
    torch.testing.assert_close(solution.x[moved], wanted[moved], rtol=0, atol=1e-6)


def test_a_component_that_a_bound_holds_is_at_the_bound_in_double_precision():
    """0.3 is a little more in single precision."""
    case = Case(12, 20)
    _, y = case.observe(8)
    x = dc.solve(case.pair, y, noise_std=NOISE, bounds=(0.3, 9.0)).x
    near = x < 0.3 + 1e-6
    assert bool(near.any())
    assert float((x[near] - 0.3).abs().max()) < 1e-12


def test_a_span_of_enough_pairs_holds_the_posterior_means(monkeypatch):
    """All of them for the member that it was grown with, roughly that of the likeliest one."""
    monkeypatch.setattr(span_growth, "PAYS", -1.0)  # every pair does
    case = Case(60, 80)
    _, y = case.observe(3)
    with torch.no_grad():
        span, start = spanned(case, y)
        grow(span, None, 40)
    quadratics = span.quadratics()
    t = case.corrections.strengths(torch.ones(3, dtype=torch.float64))
    values, means = case.scores(y, start)
    errors = torch.empty_like(values)
    for number, stiffness in enumerate(quadratics.stiffness):
        z, _, _ = quadratics.minimise(stiffness, t)
        for size in range(len(SIZES)):
            place = number * len(SIZES) + size
            error = start + span.combined(z[size]) - means[place]
            errors[place] = error.norm(dim=1) / (means[place] - start).norm(dim=1)
    names = [member.name for member in case.corrections.members]
    grown = len(SIZES) * names.index(FIRST_MEMBERS[0])
    assert float(errors[grown : grown + len(SIZES)].max()) < 1e-2
    assert float(errors[grown : grown + SIZES.index(FIRST_SIZE)].max()) < 1e-6
    assert float(errors.gather(0, values.argmin(0)[None]).median()) < 0.5


def test_directions_stay_orthonormal_when_the_span_is_nearly_everything(monkeypatch):
    """A bent simulator and many directions: what is new in each is a small part of it."""
    monkeypatch.setattr(span_growth, "PAYS", -1.0)
    case = Case(40, 40)
    x, _ = case.observe(4)
    y = torch.sin(x) @ case.matrix.T
    with torch.no_grad():
        span, _ = spanned(case, y, forward=lambda rows: torch.sin(rows) @ case.matrix.T)
        grow(span, None, 20)
    products = span.directions @ span.directions.mT
    # A direction that was none is zero.
    known = products.diagonal(dim1=1, dim2=2).round().diag_embed()
    torch.testing.assert_close(products, known, rtol=0, atol=1e-6)


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_few_pairs_come_close_to_the_dense_answer(differentiable):
    case = Case(60, 80)
    x, y = case.observe(6)
    settings = {}
    if not differentiable:
        matrix = case.matrix.numpy()
        settings = {"forward": lambda x: x.numpy() @ matrix.T, "differentiable": False}
    solution = dc.solve(case.pair, y, noise_std=NOISE, **settings)
    start = case.pair.g(y)
    wanted = case.best(y, start)
    error = (solution.x - wanted).norm(dim=1) / (wanted - start).norm(dim=1)
    assert float(error.max()) < 0.15
    rmse = [float((a - x).square().mean().sqrt()) for a in (solution.x, wanted)]
    assert rmse[0] < 1.1 * rmse[1]


def test_a_direction_that_the_span_holds_but_for_round_off_is_not_taken():
    """Single precision: a suggestion that is a multiple of the first one, with noise of 1e-4."""
    case = Case(60, 80)
    _, y = case.observe(3)
    pair = case.pair.float()
    case.pair = pair
    with torch.no_grad():
        span, _ = spanned(case, y.float())
        growth = span_growth._Growth(span, None, 14, 0.0)
        first = normal(3, 60)
        growth._add(first, None)
        for size, taken in ((1e-4, False), (1.0, True)):
            growth._add(first + size * normal(3, 60, seed=1), None)
            lengths = span.directions[:, -1].norm(dim=1)
            assert bool((lengths > 0.5).all()) == taken
            assert bool((lengths > 0).any()) == taken


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_the_dearer_a_pass_through_g_the_fewer_are_made(differentiable):
    case = Case(60, 80)
    _, y = case.observe(12)
    settings, runs = {}, 3
    if not differentiable:
        matrix = case.matrix.numpy()
        settings = {"forward": lambda x: x.numpy() @ matrix.T, "differentiable": False}
        runs = 2
    passes = []
    for price in (0.0, 1.0, 100.0):
        method = dc.methods.guarded(reverse_price=price)
        solution = dc.solve(case.pair, y, method=method, noise_std=NOISE, **settings)
        passes.append(float(solution.cost.g.double().mean()))
        # A start, a linearisation, an end; later ones grow from the correction so far.
        steps = solution.iterations.double()
        spans = correction.PAIRS[0] + (steps - 1).clamp_min(0) * correction.PAIRS[1]
        assert bool((solution.cost.forward <= 1 + runs * spans + 4 * steps).all())
    if not differentiable:
        assert passes[0] == passes[2]  # every direction is one run, whoever suggests it
        return
    assert passes[0] > passes[1] > passes[2]
    # g(y), g(y_t), and one direction that shows what another would be worth.
    assert passes[2] <= 1 + 2 * float(steps.mean())


def test_noise_three_times_what_is_stated_is_found_where_nobody_told_it():
    case = Case(8, 60, share=1.0)
    truth, y = case.observe(40, noise=3 * NOISE)
    with torch.no_grad():
        span, _ = spanned(case, y)
        span.fill()
    ones = torch.ones(len(y), dtype=torch.float64)
    settings = {"precision": ones, "count": case.m * ones, "complete": True}
    free, _ = choose(case.corrections, span.quadratics(), free_noise=True, **settings)
    assert float(free.noise.median()) == pytest.approx(3.0, rel=0.2)
    assert 1.5 < float(free.noise.min()) < float(free.noise.max()) < 4.5
    told, _ = choose(case.corrections, span.quadratics(), free_noise=False, **settings)
    assert bool((told.noise == 1).all())
    # The whole solve leaves such rows nearly where they are, and says why.
    solution = dc.solve(case.pair, y)
    moved = (solution.x - case.pair.g(y)).square().mean().sqrt()
    assert float(moved) < 0.1 * float((solution.x - truth).square().mean().sqrt())
    assert float((solution.reason == Reason.NOISIER).double().mean()) > 0.9
    assert not bool(solution.converged.any())


def test_ten_times_the_noise_is_not_taken_for_structure_where_sensors_are_few():
    """Sixteen integrals of a rough walk: a correction could be made to look like such noise."""
    n, m, noise = 32, 16, 0.005
    family = normal(300, n, seed=1).cumsum(1) / n**0.5
    matrix = torch.tril(torch.ones(n, n, dtype=torch.float64))[1::2] / n
    covariance = torch.cov(family.T)
    total = matrix @ covariance @ matrix.T + noise**2 * torch.eye(m)
    gain = torch.linalg.solve(total, matrix @ covariance).T
    corrections = Corrections.of(family, largest=64, kept=64)
    known = Calibration(noise_std=noise, corrections=corrections)
    pair = dc.Deceptron(linear(matrix), linear(gain), x_shape=(n,), y_shape=(m,), calibration=known)
    x = normal(60, n, seed=7).cumsum(1) / n**0.5
    y = x @ matrix.T + 10 * noise * normal(60, m, seed=8)
    errors = [float((a - x).square().mean().sqrt()) for a in (dc.solve(pair, y).x, pair.g(y))]
    assert errors[0] < 1.05 * errors[1]


def test_a_start_that_explains_its_data_costs_one_evaluation_and_is_left_alone():
    for case in (Case(8, 20, share=1.0), Case(60, 80, share=1.0)):
        _, y = case.observe(6)
        y[2] += 40 * NOISE * normal(case.m, seed=3)
        solution = dc.solve(case.pair, y, noise_std=NOISE, tau=2.0)
        others = torch.arange(6) != 2
        torch.testing.assert_close(solution.x[others], case.pair.g(y)[others])
        assert solution.cost.f[others].tolist() == [1] * 5
        assert solution.cost.g[others].tolist() == [1] * 5
        assert solution.cost.evaluations[others].tolist() == [2] * 5
        assert bool((solution.reason[others] == Reason.DISCREPANCY).all())
        assert int(solution.cost.evaluations[2]) > 2


@pytest.mark.parametrize(("n", "m"), [(10, 16), (40, 50)], ids=["dense", "span"])
@pytest.mark.parametrize("told", [True, False], ids=["noise told", "noise free"])
@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_rows_together_equal_rows_alone(n, m, told, differentiable):
    case = Case(n, m)
    _, y = case.observe(6)
    y[1, 3] = y[4, :7] = torch.nan
    y[2] = torch.nan
    y[5] = case.pair.f(case.pair.g(y[5:6]))[0]  # a row with less to explain
    noise = NOISE * torch.tensor([1.0, 0.5, 1.0, 2.0, 3.0, 1.0], dtype=torch.float64)[:, None]
    matrix, simulated = case.matrix.numpy(), [0]

    def simulate(x):
        simulated[0] += len(x)
        return x.numpy() @ matrix.T

    more = {} if differentiable else {"forward": simulate, "differentiable": False}
    together = dc.solve(case.pair, y, noise_std=noise if told else None, **more)
    if not differentiable:
        assert simulated[0] == int(together.cost.f.sum())
    for row in range(6):
        rows = slice(row, row + 1)
        alone = dc.solve(case.pair, y[rows], noise_std=noise[rows] if told else None, **more)
        assert int(together.reason[row]) == int(alone.reason[0])
        for name in ("x", "residual", "over_noise"):
            a, b = getattr(together, name)[rows], getattr(alone, name)
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7, equal_nan=True)
        for kind in ("f", "g", "jvp", "vjp", "surrogate"):
            assert getattr(together.cost, kind)[row] == getattr(alone.cost, kind)[0], kind
    assert int(together.reason[2]) == Reason.NO_DATA
    assert int(together.status[2]) == Status.NONFINITE
    assert bool(together.x.isfinite().all())


@pytest.mark.parametrize(("n", "m"), [(10, 16), (40, 50)], ids=["dense", "span"])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e3])
def test_a_missing_sensor_is_ignored_whatever_it_says(n, m, value):
    case = Case(n, m)
    _, y = case.observe(3)
    gone = torch.zeros_like(y, dtype=torch.bool)
    gone[0, 2] = gone[1, 4:9] = True
    noise = torch.full_like(y, NOISE)
    missing = dc.solve(case.pair, torch.where(gone, torch.nan, y), noise_std=noise)
    said = dc.solve(
        case.pair, torch.where(gone, value, y), noise_std=torch.where(gone, torch.inf, noise)
    )
    torch.testing.assert_close(missing.x, said.x, rtol=0, atol=1e-8)
    torch.testing.assert_close(missing.residual, said.residual)
    assert torch.equal(missing.reason, said.reason)
    # The row that has all of its sensors does not notice.
    whole = dc.solve(case.pair, y, noise_std=NOISE)
    torch.testing.assert_close(missing.x[2], whole.x[2], rtol=0, atol=1e-8)


def test_with_a_sensor_missing_the_answer_is_still_the_dense_posterior_mean():
    case = Case(10, 16)
    _, y = case.observe(2)
    y[:, 5] = torch.nan
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    start = dc.solve(case.pair, y, noise_std=NOISE, max_iterations=0).x
    kept = torch.arange(16) != 5
    smaller = Case(10, 16)
    smaller.matrix, smaller.m = case.matrix[kept], 15
    torch.testing.assert_close(solution.x, smaller.best(y[:, kept], start), rtol=0, atol=1e-6)


def test_what_the_surrogate_cannot_explain_is_never_called_converged():
    """f errs by six times the noise and knows it: explained to that is not explained."""
    case = Case(8, 30, share=0.9)
    x, _ = case.observe(40)
    bent = x @ case.matrix.T
    y = bent + 6 * NOISE * torch.sin(9 * bent) + NOISE * normal(40, 30, seed=5)
    pair = case.pair
    pair.calibration = replace(pair.calibration, surrogate_error=6 * NOISE)
    solution = dc.solve(pair, y, noise_std=NOISE)
    assert not bool(solution.explained.any())
    assert not bool(solution.converged.any())
    assert float((solution.reason == Reason.SURROGATE_LIMIT).double().mean()) > 0.9
    assert "0% explained to the noise" in repr(solution)
    # The pair does not claim the simulator's error: there the noise is all that counts.
    exact = dc.solve(pair, x @ case.matrix.T, noise_std=NOISE, forward=lambda z: z @ case.matrix.T)
    assert bool(exact.explained.all())
    assert bool(exact.converged.all())


def test_values_alone_are_never_asked_outside_of_the_box():
    case = Case(8, 20)
    _, y = case.observe(4)
    matrix = case.matrix.numpy()

    def strict(x):
        assert float(x.min()) >= -0.4
        assert float(x.max()) <= 0.4
        return x.numpy() @ matrix.T

    settings = {"bounds": (-0.4, 0.4), "noise_std": NOISE}
    solution = dc.solve(case.pair, y, forward=strict, differentiable=False, **settings)
    assert bool((solution.x.abs() == 0.4).any()), "the box must matter for this test"
    torch.testing.assert_close(solution.x, dc.solve(case.pair, y, **settings).x, rtol=0, atol=1e-6)


def test_draws_about_a_corrected_row_are_normal_of_its_deviation_however_few_they_are():
    case = Case(8, 20)
    own = case.corrections
    family = DiagonalGaussian(torch.zeros(8).double(), own.eigen, own.eigenvalues)
    case.pair.calibration = replace(case.pair.calibration, family=family)
    _, y = case.observe(4)
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    assert bool((solution.iterations > 0).all())
    rng = torch.Generator().manual_seed(0)
    one, many = (
        (solution.posterior(count, generator=rng) - solution.x) / solution.std
        for count in (1, 4000)
    )
    # A single draw is anywhere, not at one deviation from the answer.
    assert float(one.abs().std()) > 0.1
    # Four thousand of them have a second moment of 1 to 2%, and a fourth of 3 to 5%.
    torch.testing.assert_close(many.square().mean(0), torch.ones_like(solution.x), rtol=0, atol=0.2)
    assert abs(float(many.pow(4).mean()) - 3) < 0.5


@pytest.mark.parametrize("width", [0.0, 1e-4])
def test_values_alone_cope_with_a_component_that_the_box_fixes(width):
    case = Case(8, 20)
    _, y = case.observe(4)
    low = torch.full((8,), -5.0, dtype=torch.float64)
    high = -low
    low[2], high[2] = 0.1, 0.1 + width

    def strict(x):
        assert bool(((x >= low) & (x <= high)).all())
        return x.numpy() @ case.matrix.numpy().T

    settings = {"bounds": (low, high), "noise_std": NOISE}
    solution = dc.solve(case.pair, y, forward=strict, differentiable=False, **settings)
    assert int(solution.iterations.min()) > 0
    wanted = dc.solve(case.pair, y, **settings)
    assert bool((solution.residual < 1.2 * wanted.residual).all())
    if width:
        torch.testing.assert_close(solution.x, wanted.x, rtol=0, atol=1e-6)


def in_units(unit):
    """Two fields side by side, the second in this unit: a pair and its simulator."""
    units = torch.tensor([1.0, unit], dtype=torch.float64)[:, None]
    matrix = normal(60, 40) / 40**0.5
    family = units * normal(300, 2, 20, seed=1).cumsum(2) / 20**0.5

    class Forward(nn.Module):
        def forward(self, x):
            return 2 * torch.sin(0.5 * (x / units).flatten(1)) @ matrix.T

    class Reverse(nn.Module):
        def forward(self, y):
            return 0.5 * units * (y @ torch.linalg.pinv(matrix).T).reshape(-1, 2, 20)

    corrections = Corrections.of(family, largest=64, kept=64)
    own = corrections.scale
    jacobian = own * matrix / units.expand(2, 20).flatten() / NOISE
    determinants, variances = tabulated(corrections, [jacobian])
    corrections = replace(
        corrections, log_determinants=determinants, log_variances=variances, table_unit=own
    )
    known = Calibration(noise_std=NOISE, corrections=corrections)
    maps = {"x_shape": (2, 20), "y_shape": (60,), "calibration": known}
    return dc.Deceptron(Forward(), Reverse(), **maps).double(), units


@pytest.mark.parametrize("differentiable", [True, False])
def test_the_unit_of_a_channel_does_not_matter(differentiable):
    truth = normal(6, 2, 20, seed=3).cumsum(2) / 20**0.5
    found = []
    for unit in (1.0, 1e-3):
        pair, units = in_units(unit)
        y = pair.f(units * truth) + NOISE * normal(6, 60, seed=4)
        solution = dc.solve(pair, y, forward=pair.f, differentiable=differentiable)
        assert int(solution.explained.sum()) >= 3
        assert int(solution.iterations.min()) > 0
        found.append(solution.x / units)
    if differentiable:
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    # Differences of values are taken along other combinations of the same directions.
    errors = [float((x - truth).square().mean().sqrt()) for x in found]
    assert errors[1] < 1.5 * errors[0]


def blurred_spikes(noise, rows, n=40, seed=2):
    """Of no less than zero, by a g that knows nothing of bounds: most components of a correction
    without bounds go below zero.
    """
    m = 3 * n // 2
    places = torch.linspace(0, n - 1, m, dtype=torch.float64)[:, None] - torch.arange(n)
    matrix = torch.exp(-0.5 * (places / 1.5).square())

    def spikes(count, seed):
        rng = torch.Generator().manual_seed(seed)
        there = torch.rand(count, n, dtype=torch.float64, generator=rng) < 0.15
        return there * torch.rand(count, n, dtype=torch.float64, generator=rng)

    family = spikes(300, 1)
    gain = torch.linalg.solve(matrix.T @ matrix + 0.3 * torch.eye(n), matrix.T)
    corrections = Corrections.of(family, largest=256, kept=64)
    own = corrections.scale
    tables = tabulated(corrections, [own * matrix / noise])
    corrections = replace(
        corrections, log_determinants=tables[0], log_variances=tables[1], table_unit=own
    )
    known = Calibration(noise_std=noise, corrections=corrections)
    pair = dc.Deceptron(linear(matrix), linear(gain), x_shape=(n,), y_shape=(m,), calibration=known)
    x = spikes(rows, seed)
    return pair, matrix, x, x @ matrix.T + noise * normal(rows, m, seed=seed + 1)


def test_components_that_a_bound_holds_do_not_stop_the_others(monkeypatch):
    # Too many for a span that is everything.
    for most in ("BOXED", "BOXED_AT_LAST"):
        monkeypatch.setattr(correction, most, 0)
    pair, _, x, y = blurred_spikes(0.03, 80)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.03}
    found = [dc.solve(pair, y, max_iterations=most, **settings).x for most in (None, 0)]
    errors = [float((answer - x).square().mean().sqrt()) for answer in found]
    # 0.95 on every draw that was tried; 0.975 where bounds cut off what was found without them.
    assert errors[0] < 0.962 * errors[1]


def test_round_off_does_not_decide_which_components_a_bound_holds(monkeypatch):
    """A row alone differs from the same among others by round-off, and a component that was held
    comes back from its basis at its bound or next to it.
    """
    for most in ("BOXED", "BOXED_AT_LAST"):
        monkeypatch.setattr(correction, most, 0)
    pair, _, _, y = blurred_spikes(0.03, 12)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.03}
    together = dc.solve(pair, y, **settings)
    assert int(together.iterations.max()) > 2
    for row in range(len(y)):
        alone = dc.solve(pair, y[row : row + 1], **settings)
        torch.testing.assert_close(alone.x[0], together.x[row], rtol=0, atol=1e-6)
        assert int(alone.reason[0]) == int(together.reason[row])


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_what_bounds_hold_is_found_where_the_span_may_be_everything(differentiable):
    pair, matrix, x, y = blurred_spikes(0.003, 40)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.003}
    if not differentiable:
        blur = matrix.numpy()
        settings |= {"forward": lambda rows: rows.numpy() @ blur.T, "differentiable": False}
    solution = dc.solve(pair, y, **settings)
    started = dc.solve(pair, y, max_iterations=0, **settings)
    errors = [float((found.x - x).square().mean().sqrt()) for found in (solution, started)]
    # Without it no row is explained, and the error falls by a third.
    assert float(solution.explained.double().mean()) > 0.9
    assert errors[0] < 0.4 * errors[1]
    alone = dc.solve(pair, y[3:4], **settings)
    torch.testing.assert_close(alone.x, solution.x[3:4], rtol=0, atol=1e-6)


def test_what_bounds_hold_is_found_where_a_few_directions_do_not_explain_the_data():
    n = 140
    assert correction.BOXED < n <= correction.BOXED_AT_LAST
    pair, _, x, y = blurred_spikes(0.003, 5, n)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.003}
    found, started = dc.solve(pair, y, **settings), dc.solve(pair, y, max_iterations=0, **settings)
    errors = [float((answer.x - x).square().mean().sqrt()) for answer in (found, started)]
    # In a few directions no row is explained, and the error falls to 0.6 or 0.8 of the start's.
    assert bool(found.explained.all())
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("bounds", [None, (0.0, 1e6)], ids=["free", "boxed"])
def test_differences_are_divided_by_the_steps_that_round_off_leaves(bounds):
    """In float32 latents near 1e5 are a multiple of 0.008, a quarter of a step."""
    case, far = Case(6, 9), 1e5
    case.pair = case.pair.float()
    _, y = case.observe(4)
    matrix = case.matrix.numpy()
    settings = {
        "forward": lambda x: (x.double().numpy() - far) @ matrix.T,
        "differentiable": False,
        "bounds": bounds,
    }
    at = (far + normal(4, 6, seed=5)).float()
    span, _ = spanned(case, y.float(), at=at, **settings)
    span.fill()
    # Columns of A in units of the noise; y, too, is rounded to float32.
    wanted = (case.matrix.T / NOISE).expand(4, 6, 9)
    torch.testing.assert_close(span.images, wanted, rtol=0, atol=1e-3 / NOISE)


@pytest.mark.parametrize("free_noise", [False, True], ids=["told", "untold"])
def test_corrections_in_a_box_are_weighed_by_what_they_are_worth_there(free_noise, monkeypatch):
    monkeypatch.setattr(boxed_evidence, "BENT", math.inf)
    case = Case(8, 12, share=0.3)
    _, y = case.observe(6)
    with torch.no_grad():
        span, start = spanned(case, y)
        span.fill()
    quadratics, count = span.quadratics(), torch.full((6,), 12.0, dtype=torch.float64)
    ones = torch.ones(6, dtype=torch.float64)
    plain, _ = choose(
        case.corrections,
        quadratics,
        precision=ones,
        count=count,
        free_noise=free_noise,
        complete=True,
    )
    low, high = (side * plain.z.abs().mean(1, keepdim=True).expand(-1, 8) for side in (-0.5, 0.5))
    found = choose_in_box(
        case.corrections,
        quadratics,
        plain,
        low=low,
        high=high,
        count=count,
        free_noise=free_noise,
    )
    jacobian, r = case.matrix / NOISE, (y - start @ case.matrix.T) / NOISE

    def score(row, number, size):
        """By another least squares in the box, and dense determinants."""
        k = (case.corrections.scale * size) ** 2 * case.covariance(number)
        stiff = torch.linalg.inv(k)
        root = torch.linalg.cholesky(stiff).T
        both = torch.cat([jacobian, root]).numpy()
        right = torch.cat([r[row], torch.zeros(8, dtype=torch.float64)]).numpy()
        z = lsq_linear(both, right, (low[row].numpy(), high[row].numpy()), tol=1e-14).x
        value = float(((both @ z - right) ** 2).sum())
        inside = torch.as_tensor(z)
        edge = 1e-6 * high[row]
        free = (inside > low[row] + edge) & (inside < high[row] - edge)
        total = value
        if free_noise and value > 12:
            total = 12 + (12 + PREFERENCE) * math.log(value / 12)
        if bool(free.any()):
            here = jacobian[:, free]
            prior = stiff[free][:, free]
            total += float(torch.logdet(here.T @ here + prior) - torch.logdet(prior))
        return total, inside

    for row in range(6):
        number, size = int(found.member[row]), float(found.size[row])
        wanted, z = score(row, number, size)
        assert float(found.score[row]) == pytest.approx(wanted, rel=1e-5)
        torch.testing.assert_close(found.z[row], z, rtol=0, atol=1e-4 * float(high[row, 0]))
        marks = [score(row, int(plain.member[row]), mark)[0] for mark in SIZE_MARKS]
        assert wanted <= min(marks) + 1e-4 * abs(min(marks))


def test_a_correction_never_ends_worse_than_its_start():
    case = Case(12, 20, share=-1.0)
    _, y = case.observe(5)
    solution = dc.solve(case.pair, 5 * y, noise_std=NOISE)
    before = dc.solve(case.pair, 5 * y, noise_std=NOISE, max_iterations=0)
    assert bool((solution.residual <= before.residual).all())
    assert bool(solution.x.isfinite().all())


def test_without_derivatives_the_residual_at_the_start_is_right_at_the_bounds():
    """The image of the correction so far is measured by a step, which must not leave the box."""
    n = 40
    case = Case(n, 60)
    x, y = case.observe(6)
    settings = {"forward": lambda rows: rows.numpy() @ case.matrix.numpy().T}
    settings |= {"differentiable": False, "bounds": (-0.4, 0.4)}
    at = (3 * x).clamp(-0.4, 0.4)  # most components at a bound
    span, start = spanned(case, y, at=at, **settings)
    so_far = (torch.zeros(6, dtype=torch.int64), torch.full((6,), 0.3, dtype=torch.float64))
    grow(span, so_far, 2)
    expected = (y - start @ case.matrix.T) / NOISE
    torch.testing.assert_close(span.residual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_units_of_x_do_not_matter(unit):
    """Tables of corrections are in units of the family; in those of x their ends were reached."""
    n = 40
    plain, other = Case(n, 60), Case(n, 60, unit=unit)
    _, y = plain.observe(5)
    found, again = (dc.solve(case.pair, y, noise_std=NOISE) for case in (plain, other))
    torch.testing.assert_close(again.x / unit, found.x, rtol=1e-3, atol=1e-4)
    assert torch.equal(again.iterations, found.iterations)


@pytest.mark.parametrize("unknowns", [4, 8])
def test_a_row_goes_on_while_every_linearisation_pays(unknowns):
    """Newton's way down an exponential is one unit a step, and ten units long here; each lowers
    the misfit to a seventh.
    """
    case = Case(unknowns, 3 * unknowns)
    x = 0.1 * normal(12, unknowns, seed=50)
    matrix = case.matrix

    def steep(x):
        return torch.exp(5 * x) @ matrix.T

    y = steep(x) + NOISE * normal(12, 3 * unknowns, seed=60)
    far = linear(torch.zeros(unknowns, 3 * unknowns))
    far.bias = nn.Parameter(torch.full((unknowns,), 1.5, dtype=torch.float64), requires_grad=False)
    known = case.pair.calibration
    shapes = {"x_shape": (unknowns,), "y_shape": (3 * unknowns,)}
    pair = dc.Deceptron(case.pair.f, far, calibration=known, **shapes)
    found = dc.solve(pair, y, forward=steep, noise_std=NOISE)
    assert int(found.iterations.min()) > 6
    assert bool(found.explained.all())
    assert float((found.x - x).square().mean().sqrt()) < 0.05
