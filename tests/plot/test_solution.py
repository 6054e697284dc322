"""Pictures of solutions: what is drawn is what was solved, in every dimension."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import deceptron as dc
from deceptron.plot import training_curves
from deceptron.plot.planes import parts


def solved(shape, rows=5, **settings):
    """Answers to x + noise by a pair of identities, one row of which is infinite."""
    pair = dc.Deceptron(torch.nn.Identity(), torch.nn.Identity(), x_shape=shape, y_shape=shape)
    x = torch.rand(rows, *shape, generator=torch.Generator().manual_seed(0))
    y = x + 0.1
    y[1] = torch.inf
    return dc.solve(pair, y, method="gd", max_iterations=3, **settings), x


@pytest.fixture(scope="module")
def heat():
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    generator = torch.Generator().manual_seed(0)
    x = problem.sample(4, generator=generator)
    y = problem.add_noise(problem.simulate(x), generator=generator)
    return dc.solve(pair, y), x


@pytest.mark.parametrize(
    ("shape", "panels"), [((5,), 2), ((40,), 2), ((1, 6, 6), 4), ((2, 6, 6), 8), ((1, 7, 8, 9), 12)]
)
def test_every_dimension_has_a_picture(shape, panels, tmp_path):
    solution, truth = solved(shape)
    figure = solution.plot(rows=[0, 3])
    assert isinstance(figure, Figure)
    images = [axis for axis in figure.axes if axis.images]
    with_truth = solution.plot(truth, rows=[0, 3])
    drawn = [axis for axis in with_truth.axes if axis.images or axis.lines]
    if len(shape) > 1:
        assert len(images) == panels // 2
        assert len([axis for axis in drawn if axis.images]) == 3 * panels // 2
        first = images[0].images[0].get_array()
        np.testing.assert_allclose(first, parts(solution.x[0].numpy())[0][1], rtol=1e-6)
    else:
        assert len(drawn) == panels
    with_truth.savefig(tmp_path / "a.png", dpi=30)
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_line_its_interval_and_the_truth(heat):
    solution, truth = heat
    axis = solution.plot(truth, rows=2).axes[0]
    line, dashed = axis.lines
    np.testing.assert_allclose(line.get_ydata(), solution.x[2].numpy(), rtol=1e-6)
    np.testing.assert_allclose(dashed.get_ydata(), truth[2].numpy(), rtol=1e-6)
    low, high = (end[2].numpy() for end in solution.interval())
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(low.min())
    assert band.max() == pytest.approx(high.max())
    assert "row 2" in axis.get_title()
    assert f"{float(solution.over_noise[2]):.2f} × noise" in axis.get_title()


def test_numbers_of_different_units_are_drawn_in_units_of_their_bars():
    units = torch.tensor([1e-3, 500.0])

    def draw(count, generator):
        return units * (1 + torch.rand(count, 2, generator=generator))

    problem = dc.problems.define(
        "two-units",
        simulate=lambda x: x / units.to(x),
        sample=draw,
        bounds=(torch.zeros(2), 3 * units),
        noise_std=0.05,
        train_count=200,
    )
    test = problem.dataset(1).test
    solution = dc.solve(dc.train(problem, "smoke", progress=False), test.y[:3], forward=problem)
    axis = solution.plot(test.x[:3], rows=2).axes[0]
    low, high = (end[2].numpy() for end in solution.interval())
    x, true = solution.x[2].numpy(), test.x[2].numpy()
    unit = np.maximum(x - low, high - x)
    drawn = [line.get_ydata() for line in axis.lines]
    assert any(np.array_equal(line, np.zeros(2)) for line in drawn)
    wanted = (true - x) / unit
    assert any(np.allclose(line, wanted, rtol=1e-4) for line in drawn if len(line) == 2)
    assert [label.get_text() for label in axis.get_xticklabels()] == [f"{v:.4g}" for v in x]


def test_the_residual_of_all_rows_is_counted(heat):
    solution, _ = heat
    axis = solution.plot(kind="residual").axes[0]
    assert sum(bar.get_height() for bar in axis.patches) == len(solution)
    assert "over noise" in axis.get_xlabel()
    other, _ = solved((5,))
    axis = other.plot(kind="residual").axes[0]
    assert sum(bar.get_height() for bar in axis.patches) == 4  # the fifth is not finite
    assert "normalised" in axis.get_xlabel()


def test_history_has_a_line_for_each_row_that_moved():
    solution, _ = solved((5,))
    axis = solution.plot(kind="history").axes[0]
    assert [line.get_label() for line in axis.lines] == ["0", "2", "3", "4"]
    residual = solution.history.residual[:, 2]
    np.testing.assert_allclose(axis.lines[1].get_ydata(), residual[residual.isfinite()].numpy())
    without, _ = solved((5,), history=False)
    with pytest.raises(dc.ConfigError, match="history=True"):
        without.plot(kind="history")


def test_mistakes_are_named():
    solution, truth = solved((5,))
    with pytest.raises(dc.ConfigError, match="kind must be one of 'answers'"):
        solution.plot(kind="anwers")
    with pytest.raises(dc.ShapeError, match=r"truth must have the shape.*\(5, 5\); got \(4, 5\)"):
        solution.plot(truth[:4])
    with pytest.raises(IndexError, match="row 9"):
        solution.plot(rows=[9])
    with pytest.raises(dc.ConfigError, match="at most 32 rows to draw; got 40"):
        solution.plot(rows=[0] * 40)
    with pytest.raises(dc.ConfigError, match="at least one row"):
        solution.plot(rows=solution.status < 0)


def test_notebooks_get_a_png_without_pyplot():
    solution, _ = solved((5,))
    assert solution.plot(rows=0)._repr_png_().startswith(b"\x89PNG")


def test_training_curves_of_a_run(tmp_path):
    lines = ["stage,epoch,task,val_task,val_reconstruction,val_pairs,rjcp"]
    lines += ["forward,1,0.25,0.16,,,", "forward,2,0.09,0.04,,,", "reverse,1,,,0.04,0.09,0.5"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines))
    errors = training_curves(tmp_path).axes[0]
    assert sorted(line.get_ydata()[-1] for line in errors.lines) == pytest.approx([0.2, 0.3])
    with pytest.raises(dc.CheckpointError, match="cannot read"):
        training_curves(tmp_path / "nowhere")
