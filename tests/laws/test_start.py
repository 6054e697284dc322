"""The law of the start against regressions by dense least squares."""

import pytest
import torch

from deceptron.core.bases import EigenBasis, GridBasis
from deceptron.laws.law import Laws, Shape
from deceptron.laws.start import RIDGE, fit_start_law
from tests.laws.dense import normal

N, ROWS = 12, 60


def laws_in(kind: str) -> Laws:
    if kind == "waves":
        basis = GridBasis((N,), ("fourier",))
    else:
        basis = EigenBasis(torch.linalg.qr(normal(N, N)).Q)
    ones = torch.ones(N, dtype=torch.float64)
    return Laws((Shape.of("rough", basis, ones),), (0.1, 0.3), 1, 1.0, ones)


def rows(*, noise: float = 0.3):
    """Truths, starts that shrink them, and fits that are off by noise of the same sensors."""
    truth = 2.0 + normal(ROWS, N, seed=1) * torch.linspace(0.2, 2.0, N, dtype=torch.float64)
    shared = noise * normal(ROWS, N, seed=2)
    start = 2.0 + 0.6 * (truth - 2.0) + 0.6 * shared
    fit = start + 0.8 * (truth - start) + 0.8 * shared + 0.05 * normal(ROWS, N, seed=3)
    return truth, start, fit


def groups_of(laws: Laws) -> list[torch.Tensor]:
    basis = laws.shapes[0].basis
    if isinstance(basis, GridBasis):
        length = basis.wavenumbers.round()
        return [(length == k).nonzero().flatten() for k in length.unique()]
    return list(torch.arange(N).split(4))


@pytest.mark.parametrize("kind", ["waves", "directions"])
def test_its_coefficients_are_those_of_least_squares_in_each_group_of_coordinates(kind):
    laws = laws_in(kind)
    truth, start, fit = rows()
    law = fit_start_law(laws, 0, 1, start, fit, truth)
    basis, mean = laws.shapes[0].basis, truth.mean(0)
    a, b, t = (basis.forward(part - mean) for part in (fit, start, truth))
    seen = 0
    for group in groups_of(laws):
        design = torch.stack([a[:, group].flatten(), b[:, group].flatten()], 1)
        # A ridge about the fit as it is: rows of data that say own = 1, first = 0.
        pull = (RIDGE * design.square().sum()).sqrt()
        design = torch.cat([design, pull * torch.eye(2, dtype=torch.float64)])
        right = torch.cat([t[:, group].flatten(), pull * torch.tensor([1.0, 0.0]).double()])
        own, first = torch.linalg.lstsq(design, right[:, None]).solution[:, 0]
        torch.testing.assert_close(law.own[group], own.expand(len(group)))
        torch.testing.assert_close(law.first[group], first.expand(len(group)), atol=1e-9, rtol=1e-6)
        seen += len(group)
    assert seen == N
    assert (law.shape, law.size) == (0, 1)


@pytest.mark.parametrize("kind", ["waves", "directions"])
def test_its_answer_beats_the_fit_on_rows_that_share_their_noise_and_says_by_how_much(kind):
    laws = laws_in(kind)
    truth, start, fit = rows(noise=1.5)
    law = fit_start_law(laws, 0, 1, start, fit, truth)
    answer = law.answer(laws, start, fit)
    error = answer - truth
    assert float(error.square().mean()) < 0.8 * float((fit - truth).square().mean())
    # Each coordinate by hand.
    basis = laws.shapes[0].basis
    c = law.own * basis.forward(fit - law.mean) + law.first * basis.forward(start - law.mean)
    torch.testing.assert_close(answer, law.mean + basis.back(c))
    torch.testing.assert_close(law.std, error.square().mean(0).sqrt())


def test_a_fit_that_is_right_is_left_as_it_is():
    laws = laws_in("waves")
    truth, start, _ = rows()
    law = fit_start_law(laws, 0, 0, start, truth, truth)
    torch.testing.assert_close(law.own, torch.ones(N).double())
    torch.testing.assert_close(law.first, torch.zeros(N).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(law.answer(laws, start, truth), truth)


def test_rows_that_are_all_alike_tell_nothing_and_break_nothing():
    laws = laws_in("waves")
    one = torch.ones(5, N, dtype=torch.float64)
    law = fit_start_law(laws, 0, 0, one, one, one)
    assert bool(law.answer(laws, one, one).isfinite().all())
    torch.testing.assert_close(law.answer(laws, one, one), one)
