"""What every method promises, whatever it is made of."""

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.solve.methods import METHODS, published
from tests.solve.pairs import fitted_cnn_pair, fitted_mlp_pair, invertible_pair

ITERATIVE = [name for name in METHODS if name not in ("one-shot", "wiener")]
VARIANTS = (
    {name: METHODS[name] for name in METHODS}
    | {f"{name}, as published": lambda name=name: published(name) for name in ("gd", "gn", "lm")}
    | {
        "gn, dense": lambda: dc.methods.gauss_newton(linear="dense"),
        "lm, cg": lambda: dc.methods.levenberg_marquardt(linear="cg"),
    }
)


class WithWiener:
    """A pair that carries a (here arbitrary) linear estimate."""

    def __init__(self, pair, estimate):
        self.f, self.g, self.wiener = pair.f, pair.g, estimate


def instances(count: int = 9):
    pair = fitted_mlp_pair()
    generator = torch.Generator().manual_seed(5)
    x = 1.4 * torch.rand(count, 8, dtype=torch.float64, generator=generator) - 0.2
    y = pair.f(x)
    return WithWiener(pair, lambda y: 0.5 * y), y


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_together_equal_rows_alone(name):
    pair, y = instances()
    x0 = None
    solved_row = 4
    if name not in ("one-shot", "wiener"):
        x0 = torch.full_like(y, 0.5)
        y[solved_row] = pair.f(x0[solved_row : solved_row + 1])[0]
    y[1] = torch.nan
    y[2, 5] = y[8, 0] = torch.nan  # sensors that failed
    y[6, 3] = torch.inf
    settings = {
        "method": VARIANTS[name](),
        "bounds": (0.0, 1.0),
        "tolerance": 1e-3,
        "max_iterations": 12,
    }
    together = dc.solve(pair, y, x0=x0, **settings)
    for row in range(len(y)):
        rows = slice(row, row + 1)
        alone = dc.solve(pair, y[rows], x0=None if x0 is None else x0[rows], **settings)
        assert together.reason[row] == alone.reason[0]
        assert together.iterations[row] == alone.iterations[0]
        torch.testing.assert_close(together.x[rows], alone.x, atol=1e-8, rtol=0, equal_nan=True)
        torch.testing.assert_close(
            together.residual[rows], alone.residual, atol=1e-8, rtol=0, equal_nan=True
        )
        for kind in ("f", "g", "jvp", "vjp", "linear_steps"):
            # Round-off may ask an inner solve for one step more.
            difference = getattr(together.cost, kind)[row] - getattr(alone.cost, kind)[0]
            assert abs(int(difference)) <= 1, kind
        taken = alone.history.residual.shape[0]
        torch.testing.assert_close(
            together.history.residual[:taken, row], alone.history.residual[:, 0], atol=1e-8, rtol=0
        )
        assert bool(together.history.residual[taken:, row].isnan().all())
    assert together.reason[1] == Reason.NO_DATA
    assert together.reason[6] == Reason.NONFINITE_OBSERVATION
    assert bool(together.x[[2, 8]].isfinite().all())
    if x0 is not None:
        assert together.reason[solved_row] == Reason.TOLERANCE
        assert together.iterations[solved_row] == 0


@pytest.mark.parametrize("name", ITERATIVE)
def test_stays_in_the_box_and_never_raises_the_loss(name):
    pair, y = instances(30)
    low, high = torch.full((8,), 0.1, dtype=torch.float64), 0.8
    solution = dc.solve(pair, y, method=name, bounds=(low, high), max_iterations=30)
    assert bool((solution.x >= 0.1).all() & (solution.x <= 0.8).all())
    losses = solution.history.loss
    steps_down = losses[1:] <= losses[:-1] * (1 + 1e-15)
    if name != "d-ipg":  # Algorithm 1 may accept a rise of up to c <grad, p>
        assert bool((steps_down | losses[1:].isnan()).all())
    assert bool(
        (
            solution.loss
            <= dc.solve(pair, y, method=name, bounds=(low, high), max_iterations=0).loss + 1e-12
        ).all()
    )


@pytest.mark.parametrize("name", [n for n in ITERATIVE if n not in ("d-ipg", "gd")])
def test_reaches_a_stationary_point_of_the_box(name):
    pair = invertible_pair()
    generator = torch.Generator().manual_seed(2)
    x_true = 0.7 * torch.randn(12, 6, dtype=torch.float64, generator=generator)
    x_true[:4] = x_true[:4].clamp(-0.9, 0.9)
    x_true[4:, 0] = 1.3
    y = pair.f(x_true)
    solution = dc.solve(pair, y, method=name, bounds=(-1.0, 1.0), max_iterations=300)
    inside = torch.arange(12) < 4
    torch.testing.assert_close(solution.x[inside], x_true[inside], atol=1e-6, rtol=0)
    if not name.startswith("d-ipg"):  # a learned step has no reason to respect the box
        leaf = solution.x.clone().requires_grad_()
        loss = 0.5 * (pair.f(leaf) - y).square().mean(1).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        projected = solution.x - (solution.x - gradient).clamp(-1, 1)
        assert float(projected.abs().max()) < 1e-6


@pytest.mark.parametrize("name", ["d-ipg-difference", "d-ipg-tangent"])
def test_the_step_vanishes_with_its_scale(name):
    pair, y = instances()
    method = dc.methods.get_method(name)
    lengths = []
    for scale in (1e-3, 5e-4):
        search = dc.methods.Armijo(initial_scale=scale, max_backtracks=0)
        maker = {
            "d-ipg-difference": dc.methods.d_ipg_difference,
            "d-ipg-tangent": dc.methods.d_ipg_tangent,
        }[name]
        solution = dc.solve(pair, y, method=maker(search=search), max_iterations=1)
        lengths.append(solution.history.step_norm[0])
    assert method.name == name
    torch.testing.assert_close(
        lengths[0] / lengths[1], torch.full_like(lengths[0], 2.0), rtol=1e-2, atol=0
    )


def test_shapes_are_those_of_the_maps():
    pair = fitted_cnn_pair()
    x = torch.rand(3, 1, 6, 6, dtype=torch.float64)
    for name in ("d-ipg", "gn", "one-shot"):
        solution = dc.solve(pair, pair.f(x), method=name, max_iterations=2)
        assert solution.x.shape == x.shape


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["d-ipg", "d-ipg-difference", "d-ipg-tangent"])
def test_a_reverse_map_that_breaks_on_a_row_ends_only_that_row(name, poison):
    """The simulator refuses anything that is not finite, as those of this library do."""
    pair = invertible_pair()
    generator = torch.Generator().manual_seed(3)
    y = pair.f(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    x0 = torch.zeros(6, 6, dtype=torch.float64)
    x0[2] = 7.0  # g breaks between f(x0) and y* of this row, where all of its proposals lie
    first = pair.f(x0[2:3])[0]
    way = y[2] - first

    class Broken:
        @staticmethod
        def f(x):
            assert bool(x.isfinite().all())
            return pair.f(x)

        @staticmethod
        def g(rows):
            along = (rows - first) @ way / (way @ way)
            sick = (rows - first - along[:, None] * way).norm(dim=1) < 1e-6 * way.norm()
            return pair.g(rows) * torch.where(sick, poison, 1.0)[:, None]

    solution = dc.solve(Broken(), y, x0=x0, method=name, tolerance=1e-2)
    assert solution.reason[2] == Reason.NONFINITE_TRIALS
    torch.testing.assert_close(solution.x[2], x0[2])
    others = torch.arange(6) != 2
    assert bool(solution.converged[others].all())


def test_a_start_that_is_not_finite_is_said_so():
    pair = invertible_pair()
    y = pair.f(torch.randn(3, 6, dtype=torch.float64))
    x0 = torch.zeros(3, 6, dtype=torch.float64)
    x0[1, 0] = torch.nan
    solution = dc.solve(pair, y, x0=x0, tolerance=1e-2)
    assert solution.reason.tolist()[1] == Reason.NONFINITE_START
    assert solution.converged.tolist() == [True, False, True]


def test_batch_statistics_and_dropout_are_switched_off_and_left_as_they_were():
    torch.manual_seed(0)
    f = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).double()
    g = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout()).double()

    class Plain:  # not a module itself: its maps are found all the same
        def __init__(self):
            self.f, self.g = f, g

    f[0].eval()  # frozen by its owner
    y = torch.randn(4, 8, dtype=torch.float64)
    x0 = torch.randn(4, 8, dtype=torch.float64)
    first = dc.solve(Plain(), y, x0=x0, max_iterations=3)
    x0[1:] += 1.0
    second = dc.solve(Plain(), y, x0=x0, max_iterations=3)
    torch.testing.assert_close(first.x[0], second.x[0], atol=1e-12, rtol=1e-7)
    assert not f[0].training
    assert f[1].training
    assert g[1].training


def test_gradients_of_the_weights_and_training_mode_are_left_alone():
    pair, y = fitted_mlp_pair(), torch.rand(2, 8, dtype=torch.float64)
    pair.requires_grad_(True).train().zero_grad()
    with torch.inference_mode():
        solution = dc.solve(pair, y, max_iterations=2)
    assert pair.training
    assert not solution.x.requires_grad
    assert all(p.grad is None for p in pair.parameters())
