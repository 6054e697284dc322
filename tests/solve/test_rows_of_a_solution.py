"""Some rows of a solution, a solution in a file, in a pickle and in a notebook."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.core import Solution
from deceptron.geometry import fit_trust
from tests.laws.dense import normal
from tests.solve.linear_case import NOISE, Case
from tests.solve.test_solution import mixed

ROWS = [
    (3, [3]),
    (-1, [5]),
    (slice(1, 4), [1, 2, 3]),
    (slice(None, None, -2), [5, 3, 1]),
    ([4, 0, 0], [4, 0, 0]),
    (np.array([True, False, True, False, False, False]), [0, 2]),
    (torch.tensor([5, 1]), [5, 1]),
    ([], []),
]


@pytest.fixture(scope="module")
def barred():
    """Six rows with error bars of both kinds: three at their start, three that were corrected."""
    case = Case(12, 16)
    case.know_family()
    trust = fit_trust(case.pair, case.observe(100, seed=3)[1])
    case.pair = case.pair.replaced(calibration=replace(case.pair.calibration, trust=trust))
    _, y = case.observe(6)
    y[:3] = NOISE * normal(3, 16, seed=5)
    solution = dc.solve(case.pair, y)
    assert (solution.iterations > 0).tolist() == [False] * 3 + [True] * 3
    return solution


@pytest.mark.parametrize(("rows", "expected"), ROWS)
def test_rows_are_chosen_as_numpy_does(rows, expected):
    whole = mixed()
    some = whole[rows]
    assert len(some) == len(expected)
    torch.testing.assert_close(some.x, whole.x[expected], equal_nan=True)
    assert some.status.tolist() == whole.status[expected].tolist()
    assert some.cost.f.tolist() == whole.cost.f[expected].tolist()
    torch.testing.assert_close(
        some.history.residual, whole.history.residual[:, expected], equal_nan=True
    )
    assert f"({len(expected)}, 6)" in repr(some)


@pytest.mark.parametrize("rows", [[4, 0, 5, 5], slice(2, 5), 3, []])
def test_chosen_rows_keep_their_bars_and_trust(barred, rows):
    index = np.atleast_1d(np.arange(6)[rows]) if rows != [] else np.zeros(0, dtype=int)
    some = barred[rows]
    torch.testing.assert_close(some.std, barred.std[index], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        some.interval(0.5)[1], barred.interval(0.5)[1][index], rtol=1e-4, atol=1e-6
    )
    assert some.trust.flag.tolist() == barred.trust.flag[index].tolist()
    assert some.posterior(2).shape == (2, len(index), 12)


def test_rows_that_were_solved_in_parts_are_found_again(barred):
    parts = Solution.joined([barred[:4], barred[4:]])
    some = parts[[5, 0, 4]][[2, 0]]
    torch.testing.assert_close(some.std, barred.std[[4, 5]], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        some.interval()[0], barred.interval()[0][[4, 5]], rtol=1e-4, atol=1e-6
    )
    assert some.posterior(3).shape == (3, 2, 12)


def test_a_loop_over_a_solution_ends():
    assert [row.status.tolist() for row in mixed()] == [[k] for k in mixed().status.tolist()]


def test_mistakes_in_rows_are_named():
    with pytest.raises(IndexError, match="row 6 is asked for, and there are 6"):
        mixed()[6]
    with pytest.raises(dc.ShapeError, match="each of the 6 rows"):
        mixed()[[True, False]]
    with pytest.raises(dc.ShapeError, match="a number, a slice, a mask"):
        mixed()[[0.5]]


@pytest.mark.parametrize("used", [False, True])
def test_a_pickle_has_everything(barred, used):
    solution = barred[:]
    if used:
        solution.interval()
        solution.posterior(2)
        assert solution.trust is not None
    copy = pickle.loads(pickle.dumps(solution))
    torch.testing.assert_close(copy.interval(0.8)[0], barred.interval(0.8)[0], rtol=1e-4, atol=1e-6)
    draws = [s.posterior(2, generator=torch.Generator().manual_seed(1)) for s in (copy, barred)]
    torch.testing.assert_close(*draws, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(copy.trust.score, barred.trust.score)
    torch.testing.assert_close(copy.history.residual, barred.history.residual, equal_nan=True)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.123, "; 0.12 s"), (47.3, "; 47 s"), (99.7, "; 100 s"), (1234.5, "; 1,200 s")],
)
def test_print_has_no_exponents(barred, seconds, words):
    lines = str(replace(barred, seconds=seconds, over_noise=123.0 + 0 * barred.x[:, 0])).split("\n")
    assert lines[-1].endswith(words)
    assert lines[1].endswith("median residual 120 times the noise")


def test_a_time_that_nobody_noted_is_not_printed(barred):
    unknown = replace(barred, seconds=float("nan"))
    assert str(unknown).endswith(f"forward runs {barred.cost.forward.median()}")
    assert "nan" not in unknown._repr_html_()


@pytest.mark.parametrize("kind", [".npz", ".zarr", ".h5"])
def test_a_file_has_every_column(barred, kind, tmp_path):
    path = tmp_path / f"x{kind}"
    barred.save(path)
    barred.save(path)  # over its own
    loaded = dc.Solution.load(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert loaded.frame().equals(barred.frame().astype(loaded.frame().dtypes))
    assert loaded.frame()["trust"].tolist() == barred.trust.score.tolist()
    assert loaded.seconds == barred.seconds
    torch.testing.assert_close(loaded.x, barred.x)
    torch.testing.assert_close(loaded.std, barred.std)
    torch.testing.assert_close(loaded.rule, barred.rule)
    torch.testing.assert_close(loaded.trust.score, barred.trust.score)
    assert repr(loaded.trust) == repr(barred.trust)
    assert loaded[4:].trust.flag.tolist() == barred.trust.flag[4:].tolist()
    low, high = loaded.interval()
    assert bool((low < barred.x).all() & (high > barred.x).all())
    with pytest.raises(dc.ConfigError, match="draws need the pair"):
        loaded.posterior(2)
    assert len(loaded[2:].std) == 4


@pytest.mark.parametrize("kind", [".npz", ".zarr"])
def test_what_a_file_solve_wrote_is_loaded(kind, tmp_path):
    pair = dc.maps.mlp_pair(6, generator=torch.Generator().manual_seed(0))
    y = torch.rand(5, 6, generator=torch.Generator().manual_seed(1))
    np.save(tmp_path / "y.npy", y.numpy())
    dc.solve_file(pair, tmp_path / "y.npy", tmp_path / f"x{kind}", method="lm", max_iterations=3)
    loaded = dc.Solution.load(tmp_path / f"x{kind}")
    expected = dc.solve(pair, y, method="lm", max_iterations=3)
    torch.testing.assert_close(loaded.x, expected.x, rtol=1e-4, atol=1e-5)
    assert loaded.reason.tolist() == expected.reason.tolist()
    assert loaded.loss.isnan().all()
    assert loaded.error_bars is None
    with pytest.raises(dc.ConfigError, match="trust needs a calibrated pair"):
        _ = loaded.trust


def test_other_files_are_refused(barred, tmp_path):
    np.savez(tmp_path / "other.npz", y=np.zeros((2, 3)))
    with pytest.raises(dc.ConfigError, match="result of a solve; it has no x, status"):
        dc.Solution.load(tmp_path / "other.npz")
    with pytest.raises(dc.ConfigError, match="there is no file"):
        dc.Solution.load(tmp_path / "nothing.npz")
    with pytest.raises(dc.ConfigError, match=r"must end in .npz, .zarr"):
        barred.save(tmp_path / "x.txt")
    (tmp_path / "theirs.zarr").mkdir()
    with pytest.raises(dc.ConfigError, match="not a store that this library wrote"):
        barred.save(tmp_path / "theirs.zarr")
    assert (tmp_path / "theirs.zarr").is_dir()


def test_notebooks_are_told_the_same_as_terminals(barred):
    text = mixed()._repr_html_()
    assert "2 the observation" not in text
    assert "1 the observation is not finite; 1 no usable data" in text
    assert (
        "<script>"
        not in dc.Deceptron(torch.nn.Identity(), torch.nn.Identity(), name="<script>")._repr_html_()
    )
    assert f"{int(barred.trust.flag.sum())} of 6 rows" in barred.trust._repr_html_()
    assert "64" in dc.problems.get("heat-1d")._repr_html_()
    assert "none" in mixed()[[]]._repr_html_()


@pytest.mark.parametrize("kind", [".npz", ".zarr", ".h5"])
def test_answers_that_lie_in_memory_by_columns_are_saved_by_rows(tmp_path, kind):
    weight = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    pair = SimpleNamespace(f=lambda x: x @ weight, g=lambda y: (weight @ y.T).T)
    solution = dc.solve(pair, torch.ones(3, 5), method="one-shot")
    assert not solution.x.is_contiguous()
    solution.save(tmp_path / f"x{kind}")
    assert torch.equal(dc.Solution.load(tmp_path / f"x{kind}").x, solution.x)
