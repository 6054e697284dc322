"""Files of observations: every format, chunk by chunk, resumed after a kill, refused when wrong."""

import zipfile
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
import xarray
import zarr

import deceptron as dc
from deceptron.solve import solve_file
from deceptron.solve.files import source
from tests.solve.pairs import fitted_mlp_pair

# Few iterations: after many, x_t equals g(y*) to round-off, and round-off decides what stalls.
SOLVE = {"tolerance": 0.02, "bounds": (0.0, 1.0), "max_iterations": 20}
SETTINGS = SOLVE | {"dtype": torch.float64}
WITHOUT_NOISE = {
    "x",
    "status",
    "reason",
    "iterations",
    "residual",
    "over_noise",
    "explained",
    "cost",
}


@pytest.fixture(scope="module")
def instance():
    pair = fitted_mlp_pair()
    generator = torch.Generator().manual_seed(0)
    y = pair.f(torch.rand(53, 8, dtype=torch.float64, generator=generator))
    expected = dc.solve(pair, y, **SOLVE)
    return pair, y.numpy(), expected


def write(path, y):
    if path.suffix == ".npy":
        np.save(path, y)
    elif path.suffix == ".npz":
        np.savez(path, other=y[:2], y=y)
    elif path.suffix in (".zarr", ".nc"):
        dims = ("time", *(f"sensor_{k}" for k in range(1, y.ndim)))
        data = xarray.Dataset({"y": (dims, y), "other": (dims, y[:, :2].repeat(4, 1))})
        if path.suffix == ".nc":
            data.to_netcdf(path, engine="scipy")
        else:
            zarr.create_group(path, zarr_format=3).create_array(
                "y", data=y, chunks=(16, *y.shape[1:]), dimension_names=dims
            )
    else:
        with h5py.File(path, "w") as file:
            file["y"] = y


def read(path):
    if path.suffix == ".npy":
        return {"x": np.load(path)}
    if path.suffix == ".npz":
        columns = dict(np.load(path))
        columns.pop("deceptron", None)  # what it says of itself
        return columns
    if path.suffix == ".zarr":
        with xarray.open_zarr(path) as data:
            return {key: value.values for key, value in data.items()}
    with h5py.File(path) as file:
        return {key: file[key][:] for key in file}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        *((kind, kind) for kind in (".npy", ".npz", ".h5", ".zarr")),
        (".nc", ".zarr"),
        (".zarr", ".npz"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_a_file_gives_what_one_batch_gives(tmp_path, instance, given, kind, chunk_rows):
    pair, y, expected = instance
    source, result = tmp_path / f"y{given}", tmp_path / f"x{kind}"
    write(source, y)
    seen = []
    summary = solve_file(
        pair,
        source,
        result,
        chunk_rows=chunk_rows,
        on_chunk=lambda done, rows: seen.append((done, rows)),
        **SETTINGS,
    )
    columns = read(result)
    np.testing.assert_allclose(columns["x"], expected.x.numpy(), atol=1e-12)
    if kind != ".npy":
        assert columns["status"].tolist() == expected.status.tolist()
        assert columns["iterations"].tolist() == expected.iterations.tolist()
        assert columns["reason"].tolist() == expected.reason.tolist()
        np.testing.assert_allclose(columns["residual"], expected.residual.numpy(), atol=1e-12)
        assert columns["cost"][:, 0].tolist() == expected.cost.f.tolist()
        assert set(columns) == WITHOUT_NOISE
    assert seen[-1] == (53, 53)
    assert summary.rows == sum(summary.statuses.values()) == 53
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([source.name, result.name])


@pytest.mark.parametrize("axes", [1, 8])
def test_noise_of_every_row_goes_with_its_rows(tmp_path, instance, axes):
    pair, y, _ = instance
    write(tmp_path / "y.npy", y)
    noise = 0.01 + 0.2 * np.random.default_rng(0).random((len(y), axes))
    settings = SETTINGS | {"method": "gn", "tolerance": None, "max_iterations": 1}
    solve_file(
        pair, tmp_path / "y.npy", tmp_path / "x.npz", chunk_rows=5, noise_std=noise, **settings
    )
    settings.pop("dtype")
    expected = dc.solve(pair, torch.as_tensor(y), noise_std=torch.as_tensor(noise), **settings)
    np.testing.assert_allclose(
        read(tmp_path / "x.npz")["x"], expected.x.numpy(), rtol=1e-7, atol=1e-9
    )
    solve_file(
        pair,
        tmp_path / "y.npy",
        tmp_path / "again.npz",
        chunk_rows=5,
        noise_std=noise.tolist(),
        **SETTINGS | {"method": "gn", "tolerance": None, "max_iterations": 1},
    )
    assert np.array_equal(read(tmp_path / "again.npz")["x"], read(tmp_path / "x.npz")["x"])
    with pytest.raises(dc.ShapeError, match="noise_std must have 53 rows, or one; got 7"):
        solve_file(pair, tmp_path / "y.npy", tmp_path / "z.npz", noise_std=noise[:7], **SETTINGS)


def test_chunks_do_not_matter_to_a_pair_for_many_noise_levels(tmp_path):
    pair = dc.load("heat-1d")
    y = dc.problems.get("heat-1d").dataset(7).test.y[:6]
    np.save(tmp_path / "y.npy", y.numpy())
    noise = np.array([[0.01], [0.04], [0.02], [0.01], [0.015], [0.04]])
    for rows in (2, 6):
        solve_file(
            pair, tmp_path / "y.npy", tmp_path / f"{rows}.npy", chunk_rows=rows, noise_std=noise
        )
    assert np.abs(np.load(tmp_path / "2.npy") - np.load(tmp_path / "6.npy")).max() < 1e-5


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
def test_a_file_is_solved_in_the_precision_that_was_asked_for(tmp_path, dtype):
    pair = dc.load("heat-1d")
    y = dc.problems.get("heat-1d").dataset(7, dtype=torch.float64).test.y[:3]
    np.save(tmp_path / "y.npy", y.numpy())
    solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npz", dtype=dtype)
    wanted = dtype or torch.float32
    expected = dc.solve(dc.load("heat-1d").to(wanted), y)
    found = read(tmp_path / "x.npz")
    for name in ("x", "std", "residual"):
        assert found[name].dtype == str(wanted).removeprefix("torch.")
    np.testing.assert_allclose(found["x"], expected.x.numpy(), atol=1e-12 if dtype else 1e-6)
    assert next(pair.parameters()).dtype == torch.float32  # the caller's own is left alone


@pytest.mark.parametrize("kind", [".npz", ".zarr", ".h5"])
def test_a_result_says_how_it_was_made(tmp_path, instance, kind):
    pair, y, expected = instance
    write(tmp_path / "y.npy", y)
    solve_file(pair, tmp_path / "y.npy", tmp_path / f"x{kind}", **SETTINGS)
    found = dc.Solution.load(tmp_path / f"x{kind}")
    assert found.method == expected.method
    assert torch.equal(found.iterations, expected.iterations)


def test_compressed_npz_with_one_array_of_any_name(tmp_path, instance):
    pair, y, expected = instance
    np.savez_compressed(tmp_path / "y.npz", measurements=y)
    solve_file(pair, tmp_path / "y.npz", tmp_path / "x.npy", chunk_rows=10, **SETTINGS)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected.x.numpy(), atol=1e-12)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("between", "missing"), [(",", ""), (";", " "), ("\t", "n/a"), (",", "NA"), (" ", "nan")]
)
@pytest.mark.parametrize("row", [0, 3])
def test_rows_of_text_are_numbers_and_an_empty_field_is_missing(
    tmp_path, instance, header, between, missing, row
):
    pair, y, _ = instance
    y = y.copy()
    y[row, 2] = np.nan
    lines = [between.join(missing if np.isnan(v) else repr(float(v)) for v in row) for row in y]
    first = [between.join(f"sensor {k}" for k in range(y.shape[1]))] if header else []
    (tmp_path / "y.csv").write_text("\ufeff" + "\n".join([*first, *lines]) + "\n", "utf-8")
    solve_file(pair, tmp_path / "y.csv", tmp_path / "x.npy", chunk_rows=10, **SETTINGS)
    expected = dc.solve(pair, torch.from_numpy(y), **SOLVE).x.numpy()
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3,x\n", "cannot be read: line 2: field 2 is 'x', which is not a number"),
        ("1,oops\n3,4\n", "line 1 holds numbers and words \\('oops'\\)"),
        ("0,1\n3.5,4.5\n", "line 1 counts 0, 1, 2, .* to_csv\\(header=False, index=False"),
        (",0,1\n0,3.5,4.5\n", "line 1 counts 0, 1, 2"),
        ("1,2\n3\n", "cannot be read: line 2 has 1 fields, those before 2"),
        ("a,b\n", "one or more rows"),
        ("0,5;1,5\n0,7;1,8\n", "cannot be read: line 2: .*'0,7'"),
    ],
)
def test_text_that_is_no_table_is_named(tmp_path, instance, text, words):
    (tmp_path / "y.csv").write_text(text)
    with pytest.raises(dc.DeceptronError, match=words):
        solve_file(instance[0], tmp_path / "y.csv", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("NA,2\n3,4\n", [[np.nan, 2], [3, 4]]),
        ('"left","right, up"\n"1",2\n3,"NA"\n', [[1, 2], [3, np.nan]]),
        ("# by hand\n1;2\n3;4\n\n", [[1, 2], [3, 4]]),
        ("1.0 2.0\n3.0   4.0\n", [[1, 2], [3, 4]]),
        (",\n3,4\n", [[np.nan, np.nan], [3, 4]]),
        ("depth\n\n1\n\n2\n\n", [[np.nan], [1], [np.nan], [2]]),
        ('"depth, m"\n1\n""\n2\n', [[1], [np.nan], [2]]),
    ],
)
def test_no_row_of_text_gets_lost(tmp_path, text, rows):
    (tmp_path / "y.csv").write_text(text)
    with source(tmp_path / "y.csv", "y").opened() as found:
        np.testing.assert_array_equal(found[slice(0, 9)], rows)


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path, instance):
    pair, y, expected = instance
    source, result = tmp_path / "y.npy", tmp_path / "x.npz"
    np.save(source, y)

    def crash(done, rows):
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_file(pair, source, result, chunk_rows=10, on_chunk=crash, **SETTINGS)
    assert not result.exists()
    (chunks,) = (tmp_path / "x.npz.parts").glob("store-*/x/c")
    (chunks / "3.0123abcd.partial").write_bytes(b"half a chunk")
    summary = solve_file(pair, source, result, chunk_rows=10, **SETTINGS)
    assert summary.resumed == 30
    np.testing.assert_allclose(np.load(result)["x"], expected.x.numpy(), atol=1e-12)


@pytest.mark.parametrize("change", ["settings", "method", "observations", "pair"])
def test_parts_of_another_run_are_not_mixed_in(tmp_path, instance, change):
    pair, y, _ = instance
    source, result = tmp_path / "y.npy", tmp_path / "x.npz"
    np.save(source, y)

    def crash(done, rows):
        raise KeyboardInterrupt

    def run(pair, settings, **more):
        return solve_file(pair, source, result, chunk_rows=10, **settings, **more)

    def bounded(high):
        maps = pair.forward_map, pair.reverse_map
        return dc.Deceptron(*maps, x_shape=(8,), y_shape=(8,), bounds=(0.0, high))

    settings = {key: value for key, value in SETTINGS.items() if key != "bounds"}
    with pytest.raises(KeyboardInterrupt):
        run(bounded(1.0), settings | {"method": dc.methods.d_ipg(0.4)}, on_chunk=crash)
    method, other = dc.methods.d_ipg(0.4), bounded(1.0)
    if change == "settings":
        settings = settings | {"tolerance": 0.5}
    elif change == "method":
        method = dc.methods.d_ipg(0.5)
    elif change == "observations":
        y = y.copy()
        y[-1] += 1
        np.save(source, y)
    else:
        other = bounded(0.9)
    with pytest.raises(dc.ConfigError, match=rf"parts of another run \({change} differ\)"):
        run(other, settings | {"method": method})


@pytest.mark.parametrize(
    "change", [{"corrects": False}, {"progress": None}, {"gradient_tolerance": 0.0}], ids=str
)
def test_no_setting_of_a_method_is_overlooked(tmp_path, instance, change):
    pair, y, _ = instance
    source, result = tmp_path / "y.npy", tmp_path / "x.npz"
    np.save(source, y)

    def crash(done, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_file(pair, source, result, on_chunk=crash, **SETTINGS)
    other = replace(dc.methods.guarded(), **change)
    with pytest.raises(dc.ConfigError, match=r"parts of another run \(method differ\)"):
        solve_file(pair, source, result, method=other, **SETTINGS)
    assert solve_file(pair, source, result, method=dc.methods.guarded(), **SETTINGS).resumed == 53


def test_pairs_for_two_noise_levels_are_told_apart(tmp_path):
    pair = dc.load("heat-1d")
    source, result = tmp_path / "y.npy", tmp_path / "x.npz"
    np.save(source, np.zeros((2, 64), dtype=np.float32))

    def crash(done, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_file(pair.at_noise(0.01), source, result, method="one-shot", on_chunk=crash)
    with pytest.raises(dc.ConfigError, match=r"parts of another run \(pair differ\)"):
        solve_file(pair.at_noise(0.03), source, result, method="one-shot")


def test_an_error_of_the_solve_is_not_blamed_on_the_file(tmp_path, instance):
    np.save(tmp_path / "y.npy", instance[1])

    def complain(x):
        raise ValueError("the simulator's own complaint")

    words = "^forward raises ValueError: the simulator's own complaint"
    with pytest.raises(dc.SimulatorError, match=words):
        solve_file(
            instance[0], tmp_path / "y.npy", tmp_path / "x.npy", forward=complain, **SETTINGS
        )


def test_formats_that_need_care(tmp_path, instance):
    pair, y, expected = instance
    np.save(tmp_path / "big.npy", y.astype(">f8"))
    solve_file(pair, tmp_path / "big.npy", tmp_path / "X.NPY", **SETTINGS)
    np.testing.assert_allclose(np.load(tmp_path / "X.NPY"), expected.x.numpy(), atol=1e-12)
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file.create_group("y")
        file["measured"] = y
    solve_file(pair, tmp_path / "group.h5", tmp_path / "x.npy", **SETTINGS)
    assert np.load(tmp_path / "x.npy").shape == (53, 8)


def test_what_is_there_is_not_overwritten_by_accident(tmp_path, instance):
    pair, y, _ = instance
    source, result = tmp_path / "y.npy", tmp_path / "x.npy"
    np.save(source, y)
    result.write_bytes(b"precious")
    with pytest.raises(dc.ConfigError, match=r"exists already: .*overwrite=True \(--overwrite\)"):
        solve_file(pair, source, result, **SETTINGS)
    assert result.read_bytes() == b"precious"
    solve_file(pair, source, result, overwrite=True, **SETTINGS)
    assert np.load(result).shape == (53, 8)
    with pytest.raises(dc.ConfigError, match="must not be the file of the observations"):
        solve_file(pair, source, source, overwrite=True, **SETTINGS)
    with pytest.raises(dc.ConfigError, match="there is no file"):
        solve_file(pair, tmp_path / "absent.npy", result, overwrite=True, **SETTINGS)
    with pytest.raises(dc.ConfigError, match="takes no callback"):
        solve_file(pair, source, tmp_path / "z.npy", callback=print)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: np.save(p / "y.npy", np.zeros((3, 8), dtype=object)), dc.ConfigError, "objects"),
        (lambda p: np.save(p / "y.npy", np.zeros((3, 8), dtype="U2")), dc.ShapeError, "numbers"),
        (lambda p: np.save(p / "y.npy", np.zeros((0, 8))), dc.ShapeError, "one or more rows"),
        (lambda p: (p / "y.npy").write_bytes(b"\x93NUMPY"), dc.ConfigError, "cannot be read"),
        (lambda p: None, dc.ConfigError, "there is no file"),
    ],
)
def test_bad_observations_are_named(tmp_path, instance, make, error, words):
    make(tmp_path)
    with pytest.raises(error, match=words):
        solve_file(instance[0], tmp_path / "y.npy", tmp_path / "x.npy", **SETTINGS)
    assert not (tmp_path / "x.npy").exists()


def test_other_refusals(tmp_path, instance):
    pair, y, _ = instance
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(dc.ConfigError, match=r"observations must end in \.npy"):
        solve_file(pair, tmp_path / "y.mat", tmp_path / "x.npy")
    with pytest.raises(dc.ConfigError, match="result must lie in a folder that exists"):
        solve_file(pair, tmp_path / "y.npy", tmp_path / "no" / "x.npy")
    with zipfile.ZipFile(tmp_path / "two.npz", "w") as archive:
        archive.writestr("a.npy", b"")
        archive.writestr("b.npy", b"")
    with pytest.raises(dc.ConfigError, match=r"has no array 'y'; it holds \['a', 'b'\]"):
        solve_file(pair, tmp_path / "two.npz", tmp_path / "x.npy")
    named = dc.Deceptron(pair.forward_map, pair.reverse_map, x_shape=(8,), y_shape=(8,))
    np.save(tmp_path / "wide.npy", np.zeros((4, 9)))
    with pytest.raises(dc.ShapeError, match=r"shape \(rows, 8\); got \(4, 9\)"):
        solve_file(named, tmp_path / "wide.npy", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observations": 3}, "observations must be a path; got 3"),
        ({"observations": torch.ones(99)}, r"observations must be a path; got .{1,40}$"),
        ({"result": None}, "result must be a path; got None"),
        ({"result": "x" * 300 + ".npy"}, "cannot write x.*: File name too long"),
        ({"array": None}, "array must be the name of an array; got None"),
        ({"dtype": "float32"}, "dtype must be a floating dtype of torch; got 'float32'"),
        ({"dtype": torch.int32}, r"dtype must be a floating dtype of torch; got torch\.int32"),
        ({"device": "warp"}, "device 'warp' cannot be used"),
        ({"on_chunk": 3}, "on_chunk must be a function; got int"),
        ({"noise_std": "0.1"}, "noise_std must be a number or an array"),
    ],
)
def test_mistakes_are_named(tmp_path, monkeypatch, instance, change, words):
    monkeypatch.chdir(tmp_path)
    pair, y, _ = instance
    np.save("y.npy", y)
    with pytest.raises(dc.DeceptronError, match=words):
        solve_file(pair, **{"observations": "y.npy", "result": "x.npy", **change})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["y.npy"]


def test_a_link_that_leads_to_itself_is_no_file(tmp_path, instance):
    (tmp_path / "y.npy").symlink_to(tmp_path / "y.npy")
    with pytest.raises(dc.ConfigError, match="there is no file"):
        solve_file(instance[0], tmp_path / "y.npy", tmp_path / "x.npy")


def test_more_rows_in_a_chunk_than_there_are_take_no_room(tmp_path, instance):
    pair, y, _ = instance
    np.save(tmp_path / "y.npy", y)
    solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npy", chunk_rows=10**12, **SETTINGS)
    assert len(np.load(tmp_path / "x.npy")) == len(y)


def test_outliers_are_left_out_where_asked_and_counted(tmp_path):
    pair, problem = dc.load("heat-1d"), dc.problems.get("heat-1d")
    draw = torch.Generator().manual_seed(5)
    y = problem.simulate(problem.sample(12, generator=draw))
    y = problem.add_noise(y, generator=draw)
    y[3:, 20] += 0.5  # fifty times the noise
    np.save(tmp_path / "y.npy", y.numpy())
    asked = {"error_bars": False, "chunk_rows": 5}
    summary = solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npz", drop_outliers=True, **asked)
    found = read(tmp_path / "x.npz")
    wrong = dc.outliers(pair, y)
    assert wrong[3:, 20].all()
    np.testing.assert_array_equal(found["dropped"], wrong.sum(1).numpy())
    assert summary.dropped == int(wrong.sum())
    expected = dc.solve(pair, y.masked_fill(wrong, torch.nan))
    np.testing.assert_allclose(found["x"], expected.x.numpy(), atol=1e-4)
    with pytest.raises(dc.ConfigError, match="calibrated pair"):
        solve_file(
            fitted_mlp_pair(), tmp_path / "y.npy", tmp_path / "z.npz", drop_outliers=True, **asked
        )
