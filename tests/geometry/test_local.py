import pytest
import torch

import deceptron as dc
from deceptron.geometry import LocalGeometry, first_order_remainder
from deceptron.maps import MLP, cnn_pair


@pytest.fixture
def setting():
    g = torch.Generator().manual_seed(0)
    pair = dc.Deceptron(
        MLP((4, 8, 6), activation="silu", generator=g), MLP((6, 8, 4), generator=g)
    ).double()
    x = torch.randn(3, 4, dtype=torch.float64, generator=g)
    return pair, x, torch.randn(3, 6, dtype=torch.float64, generator=g)


def test_fields_are_the_jacobians_and_the_residual(setting):
    pair, x, target = setting
    geometry = LocalGeometry.at(pair, x, target)
    for row in range(len(x)):
        jacobian = torch.autograd.functional.jacobian(pair.f, x[row : row + 1])[0, :, 0]
        reverse = torch.autograd.functional.jacobian(pair.g, pair.f(x[row : row + 1]))[0, :, 0]
        torch.testing.assert_close(geometry.jacobian[row], jacobian)
        torch.testing.assert_close(geometry.reverse_jacobian[row], reverse)
    torch.testing.assert_close(geometry.residual, (pair.f(x) - target).detach())
    assert not geometry.jacobian.requires_grad


def test_fields_of_fields_are_flat():
    generator = torch.Generator().manual_seed(0)
    pair = cnn_pair((3, 4), (2, 3, 4), dimensions=2, channels=3, blocks=1, generator=generator)
    geometry = LocalGeometry.at(pair, torch.rand(2, 3, 4), torch.rand(2, 2, 3, 4))
    assert geometry.jacobian.shape == (2, 24, 12)
    assert geometry.reverse_jacobian.shape == (2, 12, 24)
    assert geometry.gauss_newton_direction().shape == (2, 12)
    assert first_order_remainder(pair, torch.rand(2, 3, 4), torch.rand(2, 2, 3, 4)).shape == (
        2,
        3,
        4,
    )


def random_geometry(m, n, rows=5, seed=0):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    return LocalGeometry(draw(rows, m, n), draw(rows, n, m), draw(rows, m))


@pytest.mark.parametrize(("m", "n"), [(6, 4), (4, 4), (4, 6)])
def test_gauss_newton_is_the_least_squares_solution_of_least_norm(m, n):
    geometry = random_geometry(m, n)
    expected = -0.5 * torch.linalg.lstsq(
        geometry.jacobian, geometry.residual.unsqueeze(2), driver="gelsd"
    ).solution.squeeze(2)
    torch.testing.assert_close(geometry.gauss_newton_direction(step=0.5), expected)


def test_without_full_column_rank_the_bounds_are_infinite():
    wide = random_geometry(4, 6)
    assert (wide.smallest_singular_value == 0).all()
    assert wide.deviation_bound().isinf().all()
    deficient = random_geometry(6, 4)
    deficient.jacobian[:, :, 3] = deficient.jacobian[:, :, 2]
    assert deficient.full_residual_bound().isinf().all()
    assert deficient.gauss_newton_direction().isfinite().all()


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    geometry, clean = random_geometry(6, 4), random_geometry(6, 4)
    geometry.jacobian[1, 2, 3] = torch.nan
    geometry.reverse_jacobian[3, 0, 0] = torch.inf
    for name in ("deviation", "deviation_bound", "full_residual_bound"):
        value, expected = getattr(geometry, name)(), getattr(clean, name)()
        assert value[1].isnan()
        assert not value[3].isfinite()
        torch.testing.assert_close(value[[0, 2, 4]], expected[[0, 2, 4]])


def test_bad_input_is_named(setting):
    pair, x, target = setting
    with pytest.raises(dc.ShapeError, match=r"target must have shape \(rows, 6\); got \(3, 5\)"):
        LocalGeometry.at(pair, x, target[:, :5])
    with pytest.raises(dc.ShapeError, match="target must have as many rows as x, 3; got 2"):
        LocalGeometry.at(pair, x, target[:2])
    with pytest.raises(dc.ShapeError, match="target must have dtype"):
        LocalGeometry.at(pair, x, target.float())
    with pytest.raises(dc.ConfigError, match="pair must have methods f and g; got int"):
        LocalGeometry.at(3, x, target)
    with pytest.raises(dc.ConfigError, match=r"step must lie in \[0, inf\); got -1"):
        LocalGeometry.at(pair, x, target).deviation(step=-1)
