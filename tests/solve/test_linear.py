"""Batched linear least squares against dense LAPACK, row by row."""

from dataclasses import replace

import pytest
import torch

from deceptron.core import Box
from deceptron.solve.conjugate_gradients import ConjugateGradients
from deceptron.solve.dense import Dense
from deceptron.solve.model import KINDS, Model, Tally
from deceptron.solve.objective import LeastSquares


def linear_model(rows: int, m: int, n: int, *, condition: float = 30.0, seed: int = 0):
    """Rows with a matrix each: x has n numbers, followed by the index of its own matrix."""
    generator = torch.Generator().manual_seed(seed)
    u, _ = torch.linalg.qr(torch.randn(rows, m, n, dtype=torch.float64, generator=generator))
    v, _ = torch.linalg.qr(torch.randn(rows, n, n, dtype=torch.float64, generator=generator))
    singular = torch.logspace(0, -torch.tensor(condition).log10().item(), n, dtype=torch.float64)
    matrices = u * singular @ v.mT
    target = torch.randn(rows, m, dtype=torch.float64, generator=generator)
    return matrices, target


def point_at_zero(matrices, target, rows=None):
    """The model f(x) = A x + tanh-free constant, evaluated at x = 0."""
    count, m, n = matrices.shape

    def f(x):
        # Rows that left the batch are recognised by their position in the probe column.
        which = x[:, -1].detach().round().to(torch.int64)
        return torch.einsum("bmn,bn->bm", matrices[which], x[:, :-1])

    objective = LeastSquares(torch.tensor([float(m)], dtype=torch.float64))
    model = Model(
        f,
        None,
        x_shape=(n + 1,),
        y_shape=(m,),
        tally=Tally(count, target.device),
        objective=objective,
    )
    x = torch.zeros(count, n + 1, dtype=torch.float64)
    x[:, -1] = torch.arange(count)
    trial = model.evaluate(x, target)
    gradient = model.gradient(trial)
    point = replace(trial.point, known_gradient=gradient)
    return model, point


def reference(matrices, target, damping):
    steps = []
    for a, b, lam in zip(matrices, target, damping, strict=True):
        n = a.shape[1]
        stacked = torch.cat([a, lam.sqrt() * torch.eye(n, dtype=a.dtype)])
        right = torch.cat([b, torch.zeros(n, dtype=a.dtype)])
        steps.append(torch.linalg.lstsq(stacked, right[:, None]).solution[:, 0])
    return torch.stack(steps)


@pytest.mark.parametrize("solver", [ConjugateGradients(200, 1e-13), Dense()])
def test_damped_least_squares(solver):
    matrices, target = linear_model(7, 12, 8)
    damping = torch.tensor([0.0, 1e-6, 1e-4, 1e-3, 1e-2, 1.0, 100.0], dtype=torch.float64)
    model, point = point_at_zero(matrices, target)
    factors = solver.factor(model, point, None)
    step = solver.solve(model, point, factors, damping)
    expected = reference(matrices, target, damping)
    torch.testing.assert_close(step[:, :-1], expected, atol=1e-9, rtol=1e-7)


def test_rows_stop_on_their_own_and_pay_for_themselves():
    matrices, target = linear_model(6, 12, 8)
    damping = torch.tensor([1e4, 0.0, 1e4, 1e4, 1e4, 1e4], dtype=torch.float64)
    solver = ConjugateGradients(200, 1e-12)
    model, point = point_at_zero(matrices, target)
    step = solver.solve(model, point, solver.factor(model, point, None), damping)
    counts = dict(zip(KINDS, model.tally.table().T.tolist(), strict=True))
    steps = counts["linear_steps"]
    assert steps[1] >= 8  # as many as unknowns
    assert max(steps[:1] + steps[2:]) <= 4  # strongly damped rows end almost at once
    assert counts["jvp"] == steps
    # One for the gradient at the point, one for the graph, one a step.
    assert counts["vjp"] == [2 + count for count in steps]
    alone_model, alone_point = point_at_zero(matrices[:2], target[:2])
    alone = solver.solve(
        alone_model, alone_point, solver.factor(alone_model, alone_point, None), damping[:2]
    )
    torch.testing.assert_close(step[:2], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("solver", [ConjugateGradients(50, 1e-12), Dense()])
def test_a_row_of_nan_leaves_the_others_alone(solver):
    matrices, target = linear_model(3, 6, 4)
    clean_model, clean_point = point_at_zero(matrices, target)
    damping = torch.zeros(3, dtype=torch.float64)
    clean = solver.solve(
        clean_model, clean_point, solver.factor(clean_model, clean_point, None), damping
    )
    matrices[1, 2, 2] = torch.nan
    model, point = point_at_zero(matrices, target)
    step = solver.solve(model, point, solver.factor(model, point, None), damping)
    torch.testing.assert_close(step[[0, 2]], clean[[0, 2]], atol=1e-12, rtol=0)


@pytest.mark.parametrize("solver", [ConjugateGradients(100, 1e-13), Dense()])
def test_components_held_at_a_bound_do_not_move(solver):
    matrices, target = linear_model(4, 9, 5)
    model, point = point_at_zero(matrices, target)
    box = Box(0.0, 10.0)  # x = 0 is its corner
    held = point.gradient[:, :-1] > 0
    assert bool(held.any())
    assert not bool(held.all())
    step = solver.solve(
        model, point, solver.factor(model, point, box), torch.zeros(4, dtype=torch.float64)
    )
    assert bool((step[:, :-1][held] == 0).all())
    for row in range(4):
        free = ~held[row]
        expected = torch.linalg.lstsq(matrices[row][:, free], target[row][:, None]).solution[:, 0]
        torch.testing.assert_close(step[row, :-1][free], expected, atol=1e-9, rtol=0)


def test_rank_deficient_rows_get_the_shortest_step():
    matrices, target = linear_model(3, 6, 4)
    matrices[1, :, 3] = matrices[1, :, 2]
    model, point = point_at_zero(matrices, target)
    solver = Dense()
    damping = torch.zeros(3, dtype=torch.float64)
    step = solver.solve(model, point, solver.factor(model, point, None), damping)
    expected = torch.linalg.pinv(matrices[1]) @ target[1]
    torch.testing.assert_close(step[1, :-1], expected, atol=1e-9, rtol=0)
