"""What people pass: any array, any precision, any thread, any number of rows."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.geometry import fit_trust
from deceptron.laws.calibration import Calibration
from deceptron.laws.shapes import corrections_of
from tests.laws.dense import believed, gaussian_of, normal
from tests.solve.linear_case import tabled_for
from tests.solve.pairs import TestPair

N, M, NOISE = 6, 10, 0.05


def calibrated(dtype=torch.float64, *, share=0.7):
    """A linear pair that knows its noise, its family, its trust and its corrections."""
    matrix = normal(M, N)
    pair = dc.Deceptron(
        nn.Linear(N, M, bias=False), nn.Linear(M, N, bias=False), x_shape=(N,), y_shape=(M,)
    ).requires_grad_(False)
    pair.f.weight.copy_(matrix)
    pair.g.weight.copy_(share * torch.linalg.pinv(matrix))
    pair = pair.to(dtype)
    family = normal(200, N, seed=1)
    laws = tabled_for(corrections_of(family), matrix, NOISE)
    pair.calibration = Calibration(
        noise_std=NOISE,
        family=gaussian_of(family, laws.shapes[0]),
        beliefs=believed(laws),
        interval_factor=1.0,
        prior_share=1.0,
    )
    _, y = observations(pair, 200, seed=9)
    pair.calibration = replace(pair.calibration, trust=fit_trust(pair, y.to(dtype)))
    return pair


def observations(pair, rows=5, seed=3):
    x = normal(rows, N, seed=seed)
    return x, x @ pair.f.weight.double().T + NOISE * normal(rows, M, seed=seed + 1)


@pytest.mark.parametrize(
    "as_what",
    [
        lambda y: y.numpy(),
        lambda y: y.tolist(),
        lambda y: y.numpy()[:, ::-1][:, ::-1].copy(),
        lambda y: [row.numpy() for row in y],
        lambda y: y.clone().requires_grad_(),
    ],
    ids=["numpy", "list", "strided", "list of arrays", "with gradient"],
)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
def test_observations_may_be_any_array(as_what):
    pair = calibrated()
    _, y = observations(pair)
    solution = dc.solve(pair, as_what(y))
    assert torch.equal(solution.x, dc.solve(pair, y).x)
    assert not solution.x.requires_grad


def test_integers_are_numbers():
    pair = calibrated()
    counts = torch.arange(2 * M).reshape(2, M)
    assert torch.equal(dc.solve(pair, counts).x, dc.solve(pair, counts.double()).x)


def test_double_observations_go_to_a_single_precision_pair():
    pair = calibrated(torch.float32)
    _, y = observations(pair)
    solution = dc.solve(pair, y)
    assert solution.x.dtype == torch.float32
    assert torch.equal(solution.x, dc.solve(pair, y.float()).x)
    exact = dc.solve(calibrated(), y)
    torch.testing.assert_close(solution.x.double(), exact.x, rtol=0, atol=1e-3)
    # And a start and a noise of any precision.
    start = np.zeros((5, N))
    a = dc.solve(pair, y, method="gn", x0=start, noise_std=np.float64(NOISE))
    b = dc.solve(pair, y, method="gn", x0=torch.zeros(5, N), noise_std=NOISE)
    assert torch.equal(a.x, b.x)


def test_a_single_row_is_a_batch_of_one():
    pair = calibrated()
    _, y = observations(pair)
    assert torch.equal(dc.solve(pair, y[2]).x, dc.solve(pair, y[2:3]).x)
    start = normal(N, seed=5)
    alone = dc.solve(pair, y[2], method="lm", x0=start)
    assert torch.equal(alone.x, dc.solve(pair, y[2:3], method="lm", x0=start[None]).x)


@pytest.mark.parametrize("shape", [(5,), (5, 0)])
def test_rows_without_components_are_named(shape):
    """Of a bare callable nobody knows whether five numbers are one row or five."""
    with pytest.raises(dc.ShapeError, match="y must have rows of one or more components"):
        dc.solve(lambda x: x, torch.ones(shape), method="gn", x0=torch.ones(shape))


@pytest.mark.parametrize("method", ["guarded", "one-shot", "lm"])
def test_a_latent_may_be_a_number_without_an_axis(method):
    pair = SimpleNamespace(f=lambda x: torch.stack([x, 2 * x], 1), g=lambda y: 0.9 * y[:, 0])
    y = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    solution = dc.solve(pair, y, method=method)
    assert solution.x.shape == (2,)
    right = 0.9 if method == "one-shot" else 1.0
    torch.testing.assert_close(solution.x, right * y[:, 0], rtol=1e-3, atol=0)


@pytest.mark.parametrize("as_array", [torch.tensor, np.array, list])
def test_bounds_may_be_an_array_of_two(as_array):
    pair = calibrated()
    _, y = observations(pair)
    settings = {"method": "one-shot", "noise_std": NOISE}
    pairs = [
        dc.solve(pair, y, bounds=b, **settings) for b in (as_array([-0.5, 0.25]), (-0.5, 0.25))
    ]
    draws = [s.posterior(3, generator=torch.Generator().manual_seed(0)) for s in pairs]
    assert torch.equal(*draws)
    assert float(draws[0].min()) == -0.5


@pytest.mark.parametrize("name", ["LM", "Guarded", "One-Shot", "L-BFGS"])
def test_method_names_may_be_written_in_capitals(name):
    pair = calibrated()
    _, y = observations(pair)
    assert torch.equal(dc.solve(pair, y, method=name).x, dc.solve(pair, y, method=name.lower()).x)


def test_a_problem_stands_for_its_simulator(monkeypatch):
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    pair = calibrated()
    problem = dc.problems.define(
        "bent-6",
        simulate=lambda x: pair.f(x.double()) + 0.1 * torch.tanh(pair.f(x.double())),
        sample=lambda count, g: torch.randn(count, N, generator=g, dtype=torch.float64),
        noise_std=NOISE,
        bounds=(-9.0, 9.0),
    )
    _, y = observations(pair)
    a, b = (dc.solve(pair, y, forward=f) for f in (problem, problem.simulate))
    assert torch.equal(a.x, b.x)
    assert not torch.equal(a.x, dc.solve(pair, y).x)


@pytest.mark.parametrize("date", ["2024-01-01", pd.Timestamp("2024-01-01")])
def test_the_columns_of_a_table_that_are_no_numbers_are_named(date):
    table = pd.DataFrame(np.zeros((5, M)))
    table.insert(0, "date", date)
    with pytest.raises(dc.ConfigError, match=r"5 rows and 11 columns: .* no numbers: \['date'\]"):
        dc.solve(calibrated(), table)
    with pytest.raises(dc.ConfigError, match="y must be a number"):
        dc.solve(calibrated(), table["date"])


@pytest.mark.parametrize(
    ("shape", "got", "words"),
    [
        ((10,), (10, 5), "rows seem to lie along the last axis"),
        ((2, 5), (2, 5, 7), "rows seem to lie along the last axis"),
        ((2, 5), (7, 5, 2), "the axes of a row are in another order"),
        ((2, 5), (7, 10), "as many numbers a row, so reshape it"),
        ((10,), (7, 11), "one column too many; is it a date or a row number"),
    ],
)
def test_a_wrong_shape_names_the_likely_mistake(shape, got, words, tmp_path):
    pair = SimpleNamespace(f=lambda x: x, g=lambda y: y, y_shape=shape)
    with pytest.raises(dc.ShapeError, match=words):
        dc.solve(pair, np.zeros(got))
    np.save(tmp_path / "y.npy", np.zeros(got))
    with pytest.raises(dc.ShapeError, match=words):
        dc.solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npz")


def test_a_wrong_shape_without_a_likely_mistake_is_only_stated():
    with pytest.raises(dc.ShapeError, match=r"got shape \(5, 13\)$"):
        dc.solve(calibrated(), torch.zeros(5, M + 3))


@pytest.mark.parametrize("noise", [None, 0.1, torch.ones(M), torch.ones(5, M)])
def test_a_wrong_width_of_y_is_named_before_the_noise(noise):
    pair = calibrated()
    with pytest.raises(dc.ShapeError, match=r"y must have rows of shape \(10,\).* got .*\(5, 9\)"):
        dc.solve(pair, torch.zeros(5, M - 1, dtype=torch.float64), noise_std=noise)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"noise_std": "0.1"}, dc.ConfigError, "noise_std must be a number or an array of numbers"),
        ({"noise_std": [0.1, "a"]}, dc.ConfigError, "noise_std must be a number or an array"),
        ({"noise_std": True}, dc.ConfigError, "noise_std must be a number .*; got True"),
        ({"noise_std": np.full(M, 1j)}, dc.ConfigError, "noise_std must be .* ndarray of complex"),
        ({"x0": "zero", "method": "gn"}, dc.ConfigError, "x0 must be a number .*; got 'zero'"),
        ({"x0": np.full((5, 6), 1j), "method": "gn"}, dc.ConfigError, "x0 must be .* complex128"),
        ({"bounds": ("0", "1")}, dc.ConfigError, "bounds must be a number .*; got '0'"),
        ({"callback": 3}, dc.ConfigError, "callback must be a function; got int"),
        ({"history": "no"}, dc.ConfigError, "history must be True or False; got 'no'"),
        ({"differentiable": 0}, dc.ConfigError, "differentiable must be True or False; got 0"),
        ({"tolerance": True}, dc.ConfigError, "tolerance must lie in .*; got True"),
        ({"method": []}, dc.ConfigError, r"unknown method \[\]"),
        ({"y": None}, dc.ConfigError, "y must be a number or an array of numbers; got None"),
        ({"y": torch.ones(5, M).to_sparse()}, dc.ConfigError, "y must be a dense tensor"),
        ({"y": torch.ones(5, M, device="meta")}, dc.ConfigError, "holds its numbers; .* on meta"),
        ({"noise_std": float("nan")}, dc.ConfigError, "noise_std must be >= 0"),
        ({"noise_std": torch.ones(4, M)}, dc.ShapeError, "a row for each of its 5 rows"),
        ({"noise_std": [0.0] + [1.0] * 9}, dc.ConfigError, "must be > 0 in every component, or 0"),
        ({"forward": lambda x: None}, dc.ConfigError, "it returned NoneType"),
        (
            {"forward": lambda x: np.zeros((len(x), M))},
            dc.ConfigError,
            r"forward=dc\.simulators\.wrap",
        ),
        (
            {"forward": lambda x: np.tanh(x[:, [0] * M].numpy())},
            dc.ConfigError,
            r"forward=dc\.simulators\.wrap",
        ),
        ({"forward": lambda x: x[:, :1]}, dc.ShapeError, r"to \(5, 10\); it returned \(5, 1\)"),
        ({"forward": lambda x: x.new_zeros(1, 10)}, dc.ShapeError, r"it returned \(1, 10\)"),
        (
            {"forward": lambda x: 1j * x[:, [0] * M]},
            dc.ConfigError,
            "real numbers; got torch.complex",
        ),
        ({"forward": lambda x: 1 / 0}, dc.SimulatorError, "forward raises ZeroDivisionError: div"),
        ({"forward": lambda x: x.detach().new_zeros(5, 10)}, dc.ConfigError, "carries no graph"),
        ({"forward": 3}, dc.ConfigError, "forward must be a function .* or a problem; got int"),
        ({"forward": "heat-1d"}, dc.ConfigError, "or a problem; got str"),
        (
            {"forward": lambda x: None, "differentiable": False},
            dc.ConfigError,
            "what forward returns must be a number or an array of numbers; got None",
        ),
        (
            {"forward": lambda x: np.zeros((len(x), 1)), "differentiable": False},
            dc.ShapeError,
            r"to \(5, 10\); it returned \(5, 1\)",
        ),
    ],
)
def test_mistakes_are_named(change, error, words):
    pair = calibrated()
    _, y = observations(pair)
    with pytest.raises(error, match=words):
        dc.solve(pair, **{"y": y, **change})


@pytest.mark.parametrize("noise", ["0.1", {"std": 0.1}, [[0.1], [0.1, 0.2]]])
def test_mistakes_in_many_rows_are_named(noise, monkeypatch):
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 3)
    pair = calibrated()
    _, y = observations(pair)
    with pytest.raises(dc.ConfigError, match="noise_std must be a number or an array of numbers"):
        dc.solve(pair, y, noise_std=noise)


def test_a_pair_for_many_noise_levels_names_mistakes_alike():
    pair = dc.load("heat-1d")
    with pytest.raises(dc.ConfigError, match=r"noise_std must be a number .*; got '0\.1'"):
        dc.solve(pair, torch.zeros(2, 64), noise_std="0.1")
    with pytest.raises(dc.ShapeError, match=r"y must have rows of shape \(64,\)"):
        dc.solve(pair, torch.zeros(2, 63), noise_std=torch.ones(63))


def test_what_a_masked_array_or_a_frame_lacks_is_a_missing_sensor():
    pair = calibrated()
    _, y = observations(pair)
    gaps = y.clone()
    gaps[0, 3] = torch.nan
    hidden = torch.zeros_like(y, dtype=torch.bool)
    hidden[0, 3] = True
    frame = pd.DataFrame(y.numpy()).convert_dtypes()
    frame.iloc[0, 3] = pd.NA
    expected = dc.solve(pair, gaps).x
    for given in (np.ma.masked_array(y.numpy(), mask=hidden.numpy()), frame):
        assert torch.equal(dc.solve(pair, given).x, expected)


def test_numbers_of_another_machine_are_numbers():
    pair = calibrated()
    _, y = observations(pair)
    x0 = normal(5, N, seed=8).numpy()
    bounds = (np.full(N, -1.0), [1.0] * N)
    told = {"method": "gn", "noise_std": 0.1, "max_iterations": 1}
    expected = dc.solve(pair, y, x0=x0, bounds=(-1.0, 1.0), **told).x
    strange = [part.astype(">f8") for part in (y.numpy(), x0)]
    told["noise_std"] = np.full(M, 0.1, dtype=">f8")
    backwards = strange[1][:, ::-1].copy()[:, ::-1]
    found = dc.solve(pair, strange[0], x0=backwards, bounds=bounds, **told)
    assert torch.equal(found.x, expected)


def test_a_forward_that_writes_to_its_input_does_not_write_to_the_answer():
    pair = calibrated()
    _, y = observations(pair)
    matrix = pair.f.weight.clone()

    def clean(x):
        return x @ matrix.T + 0.3

    def careless(x):
        found = clean(x.clone())
        x.detach().zero_()
        return found

    assert torch.equal(dc.solve(pair, y, forward=careless).x, dc.solve(pair, y, forward=clean).x)


@pytest.mark.parametrize("shape", ["number", "row", "column", "all"])
def test_noise_may_be_said_of_everything_or_of_each(shape):
    pair = calibrated()
    _, y = observations(pair)
    told = {
        "number": 0.1,
        "row": np.full(M, 0.1),
        "column": [[0.1]] * 5,
        "all": torch.full((5, M), 0.1),
    }[shape]
    solution = dc.solve(pair, y, method="gn", noise_std=told)
    expected = dc.solve(pair, y, method="gn", noise_std=0.1)
    torch.testing.assert_close(solution.x, expected.x)
    torch.testing.assert_close(solution.over_noise, expected.over_noise)


@pytest.mark.parametrize("method", ["guarded", "gn", "one-shot"])
def test_autocast_around_a_solve_changes_nothing(method):
    pair = calibrated(torch.float32)
    _, y = observations(pair)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = dc.solve(pair, y, method=method)
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(solution.x, dc.solve(pair, y, method=method).x)


def test_autocast_around_error_bars_and_trust_changes_nothing():
    pair = dc.load("heat-1d")
    y = dc.problems.get("heat-1d").dataset(seed=7).test.y[:4]
    plain, half = (dc.solve(pair, y) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = half.std, half.interval()[0], half.trust.score, dc.trust(pair, y).score
        drawn = half.posterior(2, generator=torch.Generator().manual_seed(0))
    expected = plain.std, plain.interval()[0], plain.trust.score, plain.trust.score
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    again = plain.posterior(2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn, again)


@pytest.mark.parametrize("method", ["guarded", "lm", "l-bfgs"])
def test_inference_mode_around_a_solve_changes_nothing(method):
    pair = calibrated()
    _, y = observations(pair)
    expected = dc.solve(pair, y, method=method).x
    with torch.inference_mode():
        assert torch.equal(dc.solve(pair, y.clone(), method=method).x, expected)


@pytest.mark.parametrize("method", ["guarded", "lm", "l-bfgs", "one-shot"])
def test_a_pair_made_under_inference_mode_can_be_solved_with(method):
    _, y = observations(calibrated())
    expected = dc.solve(calibrated(), y, method=method)
    with torch.inference_mode():
        pair = calibrated()
    assert pair.f.weight.is_inference()
    solution = dc.solve(pair, y, method=method)
    assert torch.equal(solution.x, expected.x)


class Rough(nn.Module):
    """Linear, batch statistics, dropout: in training mode rows disturb each other."""

    def __init__(self, inner, width):
        super().__init__()
        self.inner, self.norm, self.drop = inner, nn.BatchNorm1d(width), nn.Dropout(0.5)

    def forward(self, rows):
        return self.drop(self.norm(self.inner(rows)))


def rough_pair():
    pair = calibrated()
    maps = Rough(pair.f, M).double(), Rough(pair.g, N).double()
    return dc.Deceptron(
        *maps, x_shape=(N,), y_shape=(M,), calibration=pair.calibration
    ).requires_grad_(False)


@pytest.mark.parametrize("method", ["guarded", "gn", "one-shot"])
def test_eight_threads_share_a_pair_in_training_mode(method):
    pair = rough_pair()
    sets = [observations(calibrated(), seed=10 * k)[1] for k in range(8)]
    pair.eval()
    expected = [dc.solve(pair, y, method=method).x for y in sets]
    pair.train()
    before = {key: value.clone() for key, value in pair.state_dict().items()}
    barrier = threading.Barrier(8)

    def work(y):
        barrier.wait()
        return dc.solve(pair, y, method=method).x

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, sets))
    for answer, wanted in zip(answers, expected, strict=True):
        assert torch.equal(answer, wanted)
    assert all(module.training for module in pair.modules())
    for key, value in pair.state_dict().items():
        assert torch.equal(value, before[key]), key


class Locked(nn.Module):
    """Holds what cannot be copied: a lock, and an activation with its graph."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.drop = inner, nn.Dropout(0.5)
        self.lock, self.last = threading.Lock(), None

    def forward(self, rows):
        self.last = self.inner(rows)
        return self.drop(self.last)


def test_modules_that_cannot_be_copied_are_solved_with_in_training_mode():
    plain = calibrated().requires_grad_(True)
    _, y = observations(plain)
    pair = dc.Deceptron(Locked(plain.f), Locked(plain.g), calibration=plain.calibration).train()
    pair.g(pair.f(torch.zeros(2, N, dtype=torch.float64)))
    kept = pair.f.last
    assert torch.equal(dc.solve(pair, y).x, dc.solve(plain, y).x)
    assert pair.f.last is kept


def test_maps_that_are_methods_of_a_module_are_in_evaluation_mode():
    plain = calibrated()
    _, y = observations(plain)
    pair = TestPair(
        nn.Sequential(plain.f, nn.Dropout(0.5)), nn.Sequential(plain.g, nn.Dropout(0.5))
    ).train()
    solution = dc.solve(pair, y, noise_std=NOISE, forward=pair.f)
    torch.testing.assert_close(solution.x, dc.solve(pair.eval(), y, noise_std=NOISE).x)


@pytest.mark.parametrize("method", ["guarded", "lm", "one-shot"])
def test_many_rows_are_solved_in_parts_as_they_would_be_at_once(method, monkeypatch):
    pair = calibrated()
    _, y = observations(pair, 11)
    y[3, 2] = y[9, 0] = torch.nan
    y[5] += 4.0
    noise = torch.linspace(0.5, 2.0, 11, dtype=torch.float64)[:, None] * NOISE
    settings = {"method": method, "noise_std": noise, "bounds": (-2.0, 2.0)}
    if method == "lm":
        settings["x0"] = normal(11, N, seed=8)
    seen = {}

    def watch(number, snapshot):
        for row, reason in zip(snapshot.rows.tolist(), snapshot.reason.tolist(), strict=True):
            if reason >= 0:
                seen[row] = number

    whole = dc.solve(pair, y, **settings)
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 4)
    parts = dc.solve(pair, y, callback=watch, **settings)
    assert len(parts) == len(whole) == 11
    assert sorted(seen) == list(range(11))
    for name in ("x", "residual", "relative_residual", "over_noise", "loss"):
        torch.testing.assert_close(
            getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-9, equal_nan=True
        )
    for name in ("status", "reason", "iterations", "explained", "rule"):
        assert torch.equal(getattr(parts, name), getattr(whole, name)), name
    for kind in ("f", "g", "jvp", "vjp", "surrogate", "linear_steps"):
        assert torch.equal(getattr(parts.cost, kind), getattr(whole.cost, kind)), kind
    assert parts.history.rules == whole.history.rules
    for name in ("residual", "step_norm", "accepted", "trials", "rule"):
        a, b = getattr(parts.history, name), getattr(whole.history, name)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(parts.std, whole.std, equal_nan=True)
    for a, b in zip(parts.interval(), whole.interval(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    draws = [s.posterior(5, generator=torch.Generator().manual_seed(1)) for s in (parts, whole)]
    assert draws[0].shape == (5, 11, N)
    torch.testing.assert_close(*draws, equal_nan=True)
    assert not torch.equal(parts.posterior(2), parts.posterior(2))
    torch.testing.assert_close(parts.trust.score, whole.trust.score)
    assert parts.trust.worst == whole.trust.worst
    assert repr(parts).rpartition("; ")[0] == repr(whole).rpartition("; ")[0]


@pytest.mark.parametrize("method", ["guarded", "one-shot"])
def test_fewer_rows_of_a_finer_grid_are_solved_together(method):
    """What a network keeps of each number counts, not how many rows they are in."""
    largest = 0

    def same(rows):
        nonlocal largest
        largest = max(largest, rows.numel())
        return rows.clone()

    pair = SimpleNamespace(f=same, g=same, x_shape=(1, 64, 64), y_shape=(1, 64, 64))
    y = torch.randn(600, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    solution = dc.solve(pair, y, method=method, history=False)
    assert torch.equal(solution.x, y)
    assert largest <= 2**19 < y.numel()


def test_noise_of_one_row_is_not_cut_with_the_observations(monkeypatch):
    """Eleven sensors and eleven rows: the shapes alone do not tell."""
    matrix = normal(11, N)
    pair = dc.Deceptron(nn.Linear(N, 11), nn.Linear(11, N)).double().requires_grad_(False)
    pair.f.weight.copy_(matrix)
    y = normal(11, 11, seed=2)
    noise = torch.linspace(0.1, 1.0, 11, dtype=torch.float64)
    whole = dc.solve(pair, y, method="gn", noise_std=noise)
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 4)
    parts = dc.solve(pair, y, method="gn", noise_std=noise)
    torch.testing.assert_close(parts.x, whole.x, rtol=0, atol=1e-9)
    torch.testing.assert_close(parts.over_noise, whole.over_noise)


@pytest.mark.parametrize("method", ["one-shot", "guarded"])
def test_the_reverse_map_of_a_row_is_that_of_its_own_noise(method):
    """A pair for a range of noise levels has another g for each of them."""
    pair = dc.load("heat-1d").double()
    problem = dc.problems.get("heat-1d")
    y = problem.dataset(7, dtype=torch.float64).test.y[:4]
    noise = problem.noise_std * torch.tensor([[1.0], [4.0], [1.0], [2.9]], dtype=torch.float64)
    seen = []
    together = dc.solve(
        pair, y, method=method, noise_std=noise, callback=lambda k, s: seen.extend(s.rows.tolist())
    )
    assert set(seen) == {0, 1, 2, 3}
    low, _ = together.interval()
    for row in range(4):
        alone = dc.solve(pair, y[[row]], method=method, noise_std=float(noise[row]))
        torch.testing.assert_close(together.x[row], alone.x[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(together.std[row], alone.std[0], rtol=1e-8, atol=0)
        torch.testing.assert_close(low[row], alone.interval()[0][0], rtol=0, atol=1e-8)
        assert together.reason[row] == alone.reason[0]
        assert together.trust.score[row] == pytest.approx(float(alone.trust.score[0]))
    everywhere = dc.solve(pair, y, method=method, noise_std=noise.expand(4, 64))
    torch.testing.assert_close(everywhere.x, together.x)


def test_a_callback_that_ends_a_run_of_many_rows_ends_all_of_them(monkeypatch):
    pair = calibrated()
    _, y = observations(pair, 11)
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 4)
    calls = []

    def enough(number, snapshot):
        calls.append((number, snapshot.rows.tolist()))
        return len(calls) == 3

    solution = dc.solve(pair, y, method="gd", gradient_tolerance=1e-12, callback=enough)
    assert calls == [(number, [0, 1, 2, 3]) for number in range(3)]
    assert bool((solution.reason == dc.Reason.CALLBACK).all())
    assert solution.cost.f.tolist() == [3] * 4 + [1] * 7
    assert bool(solution.residual.isfinite().all())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"callback": 3}, dc.ConfigError, "callback must be a function; got int"),
        ({"noise_std": torch.ones(4, M)}, dc.ShapeError, "a row for each of its 8 rows"),
        ({"x0": torch.zeros(9, N)}, dc.ShapeError, "x0 must have as many rows as y, 8; got 9"),
        ({"x0": torch.zeros(4, N)}, dc.ShapeError, "x0 must have as many rows as y, 8; got 4"),
    ],
)
def test_what_does_not_fit_many_rows_is_named(change, error, words, monkeypatch):
    monkeypatch.setattr(sys.modules["deceptron.solve.request"], "ROWS", 4)
    pair = calibrated()
    _, y = observations(pair, 8)
    with pytest.raises(error, match=words):
        dc.solve(pair, y, **change)
