"""Each theorem, lemma, corollary and proposition of the paper, on random nonlinear instances.

The right-hand sides are computed here from pinv, svd and norms, not by the library.
"""

import itertools

import pytest
import torch

from deceptron.core.differentiate import dense_jacobian
from deceptron.geometry import LocalGeometry, draw_probes, first_order_remainder, probe_defects
from deceptron.maps import MLP, Deceptron
from tests.theory.instances import ROWS, Instance, M, N, randn, times

SEEDS = range(0, 50, 10)
norm = torch.linalg.vector_norm


def spectral(matrix):
    return torch.linalg.matrix_norm(matrix, ord=2)


def sigma_min(matrix):
    return torch.linalg.svdvals(matrix)[:, -1]


@pytest.fixture(params=SEEDS)
def instance(request):
    return Instance.random(request.param)


def with_error(instance, size, seed=99):
    """``J_g = J^+ + E``; returns E."""
    error = size * randn(ROWS, N, M, seed=seed)
    instance.reverse = instance.pseudo_inverse + error
    return error


class TestFirstOrderEquivalence:
    """Theorem 4.1."""

    @pytest.mark.parametrize("size", [0.0, 0.1])
    def test_expansion_remainder_falls_by_four_when_the_step_halves(self, instance, size):
        error = with_error(instance, size)
        torch.testing.assert_close(instance.g(instance.y), instance.x)
        torch.testing.assert_close(
            dense_jacobian(instance.g, instance.y), instance.pseudo_inverse + error
        )
        r = randn(ROWS, M, seed=5)

        def remainder(step):
            proposal = instance.g(instance.y - step * r)
            expansion = (
                instance.x - step * times(instance.pseudo_inverse, r) - step * times(error, r)
            )
            return norm(proposal - expansion, dim=1)

        for step in (1e-2, 5e-3, 2.5e-3):
            ratio = remainder(step) / remainder(step / 2)
            assert ((ratio > 3.5) & (ratio < 4.5)).all(), ratio

    def test_remainder_without_the_error_term_is_only_first_order(self, instance):
        error = with_error(instance, 0.1)
        r = randn(ROWS, M, seed=5)

        def discrepancy(step):
            proposal = instance.g(instance.y - step * r)
            return norm(proposal - (instance.x - step * times(instance.pseudo_inverse, r)), dim=1)

        ratio = discrepancy(1e-4) / discrepancy(5e-5)
        assert (ratio < 2.1).all()
        # |E r| is the whole first-order discrepancy
        torch.testing.assert_close(
            discrepancy(1e-6) / 1e-6, norm(times(error, r), dim=1), rtol=1e-3, atol=0
        )

    def test_library_remainder_is_the_one_of_the_theorem(self, instance):
        error = with_error(instance, 0.1)
        r = randn(ROWS, M, seed=5)
        step = 0.3
        gain = instance.pseudo_inverse + error
        expected = instance.g(instance.y - step * r) - (instance.x - step * times(gain, r))
        computed = first_order_remainder(instance, instance.x, instance.y - r, step=step)
        torch.testing.assert_close(computed, expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("activation", ["silu", "softplus", "tanh", "gelu"])
    def test_remainder_is_second_order_for_smooth_networks(self, activation):
        generator = torch.Generator().manual_seed(0)
        f = MLP((5, 9, 7), activation=activation, generator=generator)
        g = MLP((7, 9, 5), activation=activation, generator=generator)
        pair = Deceptron(f, g).double()
        x, target = randn(6, 5, seed=1), randn(6, 7, seed=2)
        for step in (1e-2, 5e-3):
            coarse = first_order_remainder(pair, x, target, step=step)
            fine = first_order_remainder(pair, x, target, step=step / 2)
            ratio = norm(coarse, dim=1) / norm(fine, dim=1)
            assert ((ratio > 3.5) & (ratio < 4.5)).all(), ratio


class TestDeviation:
    """Theorem 4.2 and its corollary."""

    @pytest.mark.parametrize("size", [1e-3, 0.1, 10.0])
    @pytest.mark.parametrize("step", [1.0, 0.25])
    def test_bound_holds_for_residuals_in_the_range(self, instance, size, step):
        with_error(instance, size)
        r = times(instance.jacobian, randn(ROWS, N, seed=6))
        geometry = LocalGeometry.at(instance, instance.x, instance.y - r)
        gain, jacobian, inverse = instance.reverse, instance.jacobian, instance.pseudo_inverse
        deviation = norm(-step * times(gain, r) + step * times(inverse, r), dim=1)
        defect = gain @ jacobian - torch.eye(N, dtype=r.dtype)
        bound = step * spectral(defect) / sigma_min(jacobian) * norm(r, dim=1)
        assert (deviation <= bound * (1 + 1e-12)).all()
        close = {"rtol": 1e-9, "atol": 1e-12}
        torch.testing.assert_close(geometry.deviation(step=step), deviation, **close)
        torch.testing.assert_close(geometry.deviation_bound(step=step), bound, **close)
        torch.testing.assert_close(geometry.defect_spectral, spectral(defect), **close)
        torch.testing.assert_close(geometry.smallest_singular_value, sigma_min(jacobian), **close)

    def test_bound_is_attained(self, instance):
        # With G = (I + A) J^+, A = s v v' and r = J v for the last right singular vector v,
        # deviation = |A v| = s and the bound = s / sigma_min * |J v| = s.
        jacobian = instance.jacobian
        v = torch.linalg.svd(jacobian).Vh[:, -1]
        outer = torch.einsum("bi,bj->bij", v, v)
        instance.reverse = (torch.eye(N, dtype=v.dtype) + 0.7 * outer) @ instance.pseudo_inverse
        geometry = LocalGeometry.at(instance, instance.x, instance.y - times(jacobian, v))
        expected = torch.full((ROWS,), 0.7, dtype=v.dtype)
        torch.testing.assert_close(geometry.deviation(), expected)
        torch.testing.assert_close(geometry.deviation_bound(), expected)

    def test_bound_fails_outside_the_range(self, instance):
        # A left inverse has no defect, yet it moves on what Gauss-Newton cannot see.
        r, left_inverse = orthogonal_residual(instance)
        instance.reverse = left_inverse
        geometry = LocalGeometry.at(instance, instance.x, instance.y - r)
        assert (geometry.deviation_bound() < 1e-10).all()
        assert (geometry.deviation() > 1e-4).all()

    @pytest.mark.parametrize("exact", ["pseudo-inverse", "another left inverse"])
    def test_exact_composition_gives_gauss_newton_on_the_range(self, instance, exact):
        r, left_inverse = orthogonal_residual(instance)
        pseudo = exact == "pseudo-inverse"
        instance.reverse = instance.pseudo_inverse if pseudo else left_inverse
        difference = norm((instance.reverse - instance.pseudo_inverse).flatten(1), dim=1)
        assert (difference == 0 if pseudo else difference > 0.1).all()
        r = times(instance.jacobian, randn(ROWS, N, seed=7))
        geometry = LocalGeometry.at(instance, instance.x, instance.y - r)
        torch.testing.assert_close(
            geometry.dipg_direction(step=0.5),
            geometry.gauss_newton_direction(step=0.5),
            rtol=0,
            atol=1e-11,
        )


def orthogonal_residual(instance):
    """A residual orthogonal to Range(J), and ``J^+ + Z (I - J J^+)``, a left inverse seeing it."""
    projector = torch.eye(M, dtype=torch.float64) - instance.jacobian @ instance.pseudo_inverse
    r = times(projector, randn(ROWS, M, seed=8))
    return r, instance.pseudo_inverse + randn(ROWS, N, M, seed=9) @ projector


class TestFullResidual:
    """The proposition of the appendix."""

    @pytest.mark.parametrize("size", [0.0, 0.1, 10.0])
    def test_bound_holds_for_any_residual(self, instance, size):
        with_error(instance, size)
        jacobian, gain = instance.jacobian, instance.reverse
        r = randn(ROWS, M, seed=10)
        parallel = times(jacobian @ instance.pseudo_inverse, r)
        geometry = LocalGeometry.at(instance, instance.x, instance.y - r)
        for part, expected in zip(geometry.residual_split(), (parallel, r - parallel), strict=True):
            torch.testing.assert_close(part, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(
            torch.einsum("bi,bi->b", *geometry.residual_split()),
            torch.zeros(ROWS, dtype=r.dtype),
            rtol=0,
            atol=1e-12,
        )
        assert norm(times(instance.pseudo_inverse, r - parallel), dim=1).max() < 1e-10
        defect = gain @ jacobian - torch.eye(N, dtype=r.dtype)
        bound = 0.5 * (
            spectral(defect) / sigma_min(jacobian) * norm(parallel, dim=1)
            + spectral(gain) * norm(r - parallel, dim=1)
        )
        torch.testing.assert_close(
            geometry.full_residual_bound(step=0.5), bound, rtol=1e-9, atol=1e-11
        )
        assert (geometry.deviation(step=0.5) <= bound).all()

    def test_bound_is_attained_off_the_range(self, instance):
        # G = J^+ + t u w' with w orthogonal to Range(J), |u| = |w| = 1 and t large: |G| -> t.
        r, _ = orthogonal_residual(instance)
        w = r / norm(r, dim=1, keepdim=True)
        u = torch.nn.functional.normalize(randn(ROWS, N, seed=11), dim=1)
        instance.reverse = instance.pseudo_inverse + 1e6 * torch.einsum("bi,bj->bij", u, w)
        geometry = LocalGeometry.at(instance, instance.x, instance.y - r)
        torch.testing.assert_close(
            geometry.deviation(), geometry.full_residual_bound(), rtol=1e-6, atol=0
        )


class TestLemma:
    """JCP is the squared Frobenius norm of the composition defect, in expectation."""

    def test_all_sign_vectors_give_the_norm_exactly(self, instance):
        with_error(instance, 0.3)
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=N)), dtype=torch.float64)
        squares = probe_defects(instance, instance.x, signs.expand(ROWS, 2**N, N)).square().sum(2)
        defect = instance.reverse @ instance.jacobian - torch.eye(N, dtype=torch.float64)
        frobenius = defect.square().sum((1, 2))
        torch.testing.assert_close(squares.mean(1), frobenius, rtol=1e-10, atol=1e-12)
        geometry = LocalGeometry.at(instance, instance.x, instance.y)
        torch.testing.assert_close(geometry.defect_frobenius.square(), frobenius)

    @pytest.mark.parametrize("kind", ["rademacher", "normal"])
    def test_random_probes_are_unbiased(self, instance, kind):
        with_error(instance, 0.3)
        generator = torch.Generator().manual_seed(3)
        xi = draw_probes(instance.x, probes=4000, kind=kind, generator=generator)
        squares = probe_defects(instance, instance.x, xi).square().sum(2)
        defect = instance.reverse @ instance.jacobian - torch.eye(N, dtype=torch.float64)
        error = squares.mean(1) - defect.square().sum((1, 2))
        standard_error = squares.std(1) / xi.shape[1] ** 0.5
        # 80 comparisons of 4.5 standard errors: one in 2,000 seeds would fail
        assert (error.abs() < 4.5 * standard_error).all(), error / standard_error

    def test_average_spectral_defect_is_below_the_penalty(self, instance):
        with_error(instance, 0.3)
        geometry = LocalGeometry.at(instance, instance.x, instance.y)
        assert (geometry.defect_spectral <= geometry.defect_frobenius).all()
        assert geometry.defect_spectral.square().mean() <= geometry.defect_frobenius.square().mean()
