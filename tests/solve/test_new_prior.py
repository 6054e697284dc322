"""A new prior is one function: it makes laws, and all else of a solve follows."""

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import GridBasis
from deceptron.laws.law import Laws, Shape
from tests.laws.dense import covariance
from tests.solve.linear_case import NOISE, Case, tabled_for

N, M = 24, 40


def matern(grid: GridBasis, *, smoothness: float, lengths: tuple[float, ...], scale: float) -> Laws:
    """Whittle-Matern fields, ``(1 / length^2 + k^2)^-(smoothness + 1 / 2)`` on a line."""
    k = grid.wavenumbers
    shapes = [
        Shape.of(f"matern {length:g}", grid, (length**-2 + k.square()) ** -(smoothness + 0.5))
        for length in lengths
    ]
    sizes = (0.1, 0.2, 0.4, 0.8, 1.6)
    return Laws(tuple(shapes), sizes, 1, scale, torch.full_like(k, scale), first=(0, 0.4))


def made(n=N, m=M):
    case = Case(n, m)
    plain = case.laws
    laws = matern(
        GridBasis((n,), ("cosine",)), smoothness=1.5, lengths=(0.1, 0.3, 1.0), scale=plain.scale
    )
    case.pair = case.believing(tabled_for(laws, case.matrix))
    return case


def test_the_shape_is_the_matern_covariance():
    laws = made().laws
    assert [shape.name for shape in laws.shapes] == ["matern 0.1", "matern 0.3", "matern 1"]
    for shape, length in zip(laws.shapes, (0.1, 0.3, 1.0), strict=True):
        dense = covariance(shape)
        waves = shape.basis.forward(torch.eye(N, dtype=torch.float64)).T
        power = (waves @ dense @ waves.T).diagonal()
        k = torch.arange(N, dtype=torch.float64)
        wanted = (length**-2 + k.square()) ** -2.0
        torch.testing.assert_close(power / power.sum(), wanted / wanted.sum())
        assert float(dense.diagonal().mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_solve_answers_by_the_new_prior(differentiable):
    case = made()
    _, y = case.observe(8)
    found = dc.solve(case.pair, y, noise_std=NOISE, **case.by_values(differentiable))
    start = case.pair.g(y)
    moved = found.iterations > 0
    assert int(moved.sum()) > 4
    torch.testing.assert_close(found.x[moved], case.best(y, start)[moved], rtol=0, atol=1e-6)
    # The prior that was there before would have answered otherwise.
    before = dc.solve(Case(N, M).pair, y, noise_std=NOISE)
    assert float((before.x - found.x)[moved].abs().max()) > 0.01


def test_a_solve_grows_its_subspace_by_the_new_prior():
    case = made(60, 80)
    _, y = case.observe(6)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    start = case.pair.g(y)
    moved = found.iterations > 0
    assert int(moved.sum()) > 3
    wanted = case.best(y, start)
    error = (found.x - wanted).norm(dim=1) / (wanted - start).norm(dim=1)
    assert float(error[moved].max()) < 0.15


def test_bars_are_those_of_the_new_prior():
    case = made()
    case.know_family()
    _, y = case.observe(6)
    plan, model = case.planned(y)
    with torch.no_grad():
        notes = plan.run(model, plan.start, plan.target).notes
    found = dc.solve(case.pair, y, noise_std=NOISE)
    at_start = found.error_bars.at_start.complete_std()
    rows = ((found.iterations > 0) & (found.over_noise <= 1)).nonzero().flatten().tolist()
    assert rows
    a = case.matrix / NOISE
    for row in rows:
        shape = case.laws.shapes[int(notes["shape"][row])]
        size = case.laws.sizes[int(notes["size"][row])]
        prior = (case.laws.scale * size) ** 2 * covariance(shape)
        after = torch.linalg.inv(torch.linalg.inv(prior) + a.T @ a).diagonal().sqrt()
        wanted = torch.hypot(after, after / prior.diagonal().sqrt() * at_start[row])
        torch.testing.assert_close(found.std[row], wanted, rtol=1e-5, atol=0)


def test_the_new_prior_survives_a_file(tmp_path):
    case = made()
    _, y = case.observe(4)
    path = dc.save(case.pair, tmp_path / "pair")
    again = dc.load(path, forward=case.pair.f, reverse=case.pair.g)
    names = [shape.name for shape in again.calibration.beliefs.corrections.shapes]
    assert names == ["matern 0.1", "matern 0.3", "matern 1"]
    expected = dc.solve(case.pair, y, noise_std=NOISE).x
    found = dc.solve(again, y, noise_std=NOISE).x
    # Spectra are stored in single precision.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
