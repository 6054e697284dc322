"""Pairs without a simulator: they train and are solved; what cannot be had is said plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.problems.measured import FEWEST_ROWS

MATRIX = np.random.default_rng(1).normal(size=(6, 3))
NOISE = 0.05


def pairs(count: int = 400, noise: float = NOISE) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.uniform(size=(count, 3))
    return x, np.tanh(x @ MATRIX.T) + noise * random.normal(size=(count, 6))


def test_every_row_is_in_one_split_and_keeps_its_partner() -> None:
    x, y = pairs()
    problem = dc.problems.from_data(x, y, bounds=(0.0, 1.0), noise_std=NOISE)
    assert (problem.x_shape, problem.y_shape) == ((3,), (6,))
    data = problem.dataset(seed=7, dtype=torch.float64)
    splits = [data.train, data.val, data.test]
    assert [len(split) for split in splits] == [320, 40, 40]
    order = {tuple(row): k for k, row in enumerate(x.tolist())}
    found = [order[tuple(row)] for split in splits for row in split.x.tolist()]
    assert sorted(found) == list(range(400))
    # Measured rows get no second noise.
    together = torch.cat([split.y for split in splits])
    torch.testing.assert_close(together, torch.as_tensor(y)[found])
    again = problem.dataset(seed=8, dtype=torch.float64)
    assert torch.equal(again.test.x, data.test.x)
    other = dc.problems.from_data(x, y, bounds=(0.0, 1.0), noise_std=NOISE, seed=1)
    assert not torch.equal(other.dataset(seed=7, dtype=torch.float64).test.x, data.test.x)


@pytest.mark.parametrize("often", [2, 5])
def test_a_latent_that_was_measured_more_than_once_is_in_one_split(often: int) -> None:
    x, y = pairs(400 // often)
    x, y = np.tile(x, (often, 1)), np.tile(y, (often, 1))
    problem = dc.problems.from_data(x, y, bounds=(0.0, 1.0), noise_std=NOISE)
    data = problem.dataset(seed=7, dtype=torch.float64)
    splits = [data.train, data.val, data.test]
    assert [len(split) for split in splits] == [320, 40, 40]
    latents = [{tuple(row) for row in split.x.tolist()} for split in splits]
    assert sum(map(len, latents)) == len(set.union(*latents)) == 400 // often


def test_latents_that_fill_a_split_alone_are_trained_on() -> None:
    x, y = pairs(400)
    x[100:] = x[100]
    data = dc.problems.from_data(x, y, noise_std=NOISE).dataset(seed=7, dtype=torch.float64)
    assert [len(split) for split in (data.train, data.val, data.test)] == [320, 40, 40]
    # So few different ones that rows to come can only be more of the same.
    x = x[np.arange(400) % 5]
    few = dc.problems.from_data(x, y, noise_std=NOISE).dataset(seed=7, dtype=torch.float64)
    assert len(few.train.x.unique(dim=0)) == len(few.test.x.unique(dim=0)) == 5


def test_measuring_twice_tells_the_noise() -> None:
    """Of a function that no smooth one is near. Copies of rows tell nothing about it."""
    random = np.random.default_rng(0)
    x = np.tile(random.uniform(size=(800, 3)), (2, 1))
    y = np.sin(1e4 * x @ MATRIX.T) + NOISE * random.normal(size=(1600, 6))
    noise = dc.problems.from_data(x, y).noise_std
    # From 640 differences, to 2.8%.
    np.testing.assert_allclose(np.asarray(noise), NOISE, rtol=0.15)
    x, y = pairs(200)
    once = dc.problems.from_data(x, y).noise_std
    copied = dc.problems.from_data(np.tile(x, (3, 1)), np.tile(y, (3, 1))).noise_std
    np.testing.assert_allclose(np.asarray(copied), np.asarray(once), rtol=0.3)


def test_noise_free_pairs_get_noise_where_others_do() -> None:
    x, y = pairs(noise=0.0)
    problem = dc.problems.from_data(x, y, noise_std=0.1, noisy=False)
    data = problem.dataset(seed=1, dtype=torch.float64)
    clean = torch.as_tensor(np.tanh(data.test.x.numpy() @ MATRIX.T))
    assert float((data.test.y - clean).std()) == pytest.approx(0.1, rel=0.3)
    torch.testing.assert_close(data.train.y, torch.tanh(data.train.x @ torch.as_tensor(MATRIX).T))


def test_ratio_adds_what_a_row_lacks() -> None:
    x, y = pairs()
    problem = dc.problems.from_data(x, y, noise_std=NOISE)
    rows = torch.zeros(4000, 6)
    ratio = torch.full((4000,), 2.0)
    ratio[:2000] = 1.0
    seen = problem.add_noise(rows, ratio=ratio)
    assert not seen[:2000].any()
    assert float(seen[2000:].std()) == pytest.approx(NOISE * 3**0.5, rel=0.1)


def test_the_noise_is_estimated_if_nobody_knows_it() -> None:
    problem = dc.problems.from_data(*pairs(1000))
    assert isinstance(problem.noise_std, torch.Tensor)
    assert problem.noise_std.shape == (6,)
    ratio = problem.noise_std / NOISE
    assert 0.8 < float(ratio.min()) <= float(ratio.max()) < 1.3


def test_bounds_come_from_the_data_if_not_given() -> None:
    low, high = dc.problems.from_data(*pairs(), noise_std=NOISE).bounds
    assert bool((torch.as_tensor(low) < 0).all())
    assert bool((torch.as_tensor(high) > 1).all())
    assert bool((torch.as_tensor(high) < 1.2).all())


def test_it_trains_and_solves_on_the_surrogate() -> None:
    x, y = pairs(1200)
    problem = dc.problems.from_data(x, y, bounds=(0.0, 1.0), noise_std=NOISE, name="bench")
    pair = dc.train(problem, preset="standard", progress=False)
    test = problem.dataset(seed=7).test
    spread = float((test.x - test.x.mean(0)).square().mean().sqrt())
    for method in ("one-shot", "wiener", "guarded"):
        solution = dc.solve(pair, test.y, method=method)
        assert float((solution.x - test.x).square().mean().sqrt()) < 0.8 * spread
    assert float(dc.trust(pair, test.y).flag.double().mean()) < 0.3
    # The surrogate's own error, not the noise of the rows it was judged on.
    noise = float((NOISE / pair.scaler.scale).square().mean().sqrt())
    assert pair.surrogate_error < 0.7 * noise
    bars = dc.solve(pair, test.y, prior=problem.prior, noise_std=NOISE)
    low, high = bars.interval(0.9)
    held = ((test.x >= low) & (test.x <= high)).double().mean()
    assert 0.75 < float(held) <= 1.0


def test_a_folder_of_other_data_says_so(tmp_path: Any) -> None:
    x, y = pairs(60)
    dc.train(dc.problems.from_data(x, y), "smoke", tmp_path / "run", progress=False)
    other = dc.problems.from_data(x[:50], y[:50])
    with pytest.raises(dc.CheckpointError, match=r"holds a run with other numbers in .*other data"):
        dc.train(other, "smoke", tmp_path / "run", progress=False)


def test_what_needs_a_simulator_says_so() -> None:
    problem = dc.problems.from_data(*pairs(), noise_std=NOISE)
    with pytest.raises(dc.ConfigError, match="made from data and has no simulator"):
        problem.simulate(problem.sample(2))
    with pytest.raises(dc.ConfigError, match="no 'shifted' family, because nothing can simulate"):
        _ = problem.dataset(seed=1).shifted
    report = dc.problems.verify(problem, quiet=True)
    assert report.ok, str(report)
    assert any("made from data" in text for text in report.skipped)
    drawn = {tuple(row) for row in problem.sample(50, dtype=torch.float64).tolist()}
    known = {tuple(row) for row in problem.dataset(1, dtype=torch.float64).train.x.tolist()}
    assert drawn <= known


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: {"y": y[:-1]}, "as many rows as each other; got 400 and 399"),
        (lambda x, y: {"x": x[:5], "y": y[:5]}, f"needs {FEWEST_ROWS} rows or more; got 5"),
        (lambda x, y: {"x": x[:, 0]}, r"x must be rows of numbers.*\(400,\): .* x\[:, None\]"),
        (lambda x, y: {"x": np.ones_like(x)}, "x must vary from row to row; all 400 are the same"),
        (lambda x, y: {"y": np.ones_like(y)}, "y must vary from row to row"),
        (lambda x, y: {"y": np.where(y == y[3, 2], np.nan, y)}, "y must be finite.*row 3 holds 1"),
        (lambda x, y: {"y": [["a"]]}, "y must be a number or an array of numbers"),
        (lambda x, y: {"y": y[:, :0]}, "y must be rows of numbers"),
        (lambda x, y: {"y": np.ma.masked_array(y, mask=y == y[3, 2])}, "y must be finite.*row 3"),
        (lambda x, y: {"noise_std": "0.1"}, "noise_std must be a number .*; got '0.1'"),
        (lambda x, y: {"bounds": (0.0, 0.5)}, "x must lie within bounds; .* of 400 rows do not"),
        (lambda x, y: {"name": "heat-1d"}, "name must not be that of a built-in"),
        (lambda x, y: {"name": ""}, "name must be a non-empty text"),
        (lambda x, y: {"val_share": 0.9}, "val_share must lie in"),
        (lambda x, y: {"noise_std": -1.0}, "noise_std must lie in"),
    ],
)
def test_bad_data_are_named(change: Any, words: str) -> None:
    x, y = pairs()
    with pytest.raises(dc.DeceptronError, match=words):
        dc.problems.from_data(**{"x": x, "y": y, "noise_std": NOISE, **change(x, y)})


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ((0.0, 0.0), (1.0, 1.0), "0 to 1"),
        ((-1.0, -300.0), (3.0, 500.0), "-1 to 3, -300 to 500"),
        (tuple(float(-k) for k in range(9)), (2.0,) * 9, "low -8 to 0, by component; high 2"),
    ],
)
def test_print_says_bounds_by_component(low: Any, high: Any, words: str) -> None:
    x = torch.rand(30, len(low), generator=torch.Generator().manual_seed(0))
    bounds = (torch.tensor(low), torch.tensor(high))
    problem = dc.problems.from_data(x, x, bounds=bounds, noise_std=0.1)
    assert f"  bounds of x: {words}" in str(problem).splitlines()
