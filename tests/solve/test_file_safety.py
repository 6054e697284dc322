"""What a file solve must survive: rivals, kills, full disks, strangers and hostile files."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from concurrent.futures import ProcessPoolExecutor

import h5py
import numpy as np
import pytest
import torch
import xarray
import zarr

import deceptron as dc
from deceptron.core.errors import FileError
from deceptron.solve import solve_file, stream
from tests.solve.forwards import DiesOnce, softened
from tests.solve.pairs import invertible_pair

SETTINGS = {"dtype": torch.float64, "chunk_rows": 10, "max_iterations": 3, "bounds": (-9.0, 9.0)}


@pytest.fixture
def pair():
    return invertible_pair(6, bias=0.01)


@pytest.fixture
def source(tmp_path):
    y = torch.rand(45, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "y.npy", y.numpy())
    return tmp_path / "y.npy"


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def bytes_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def interrupt(*_, **__):
    raise KeyboardInterrupt


def cut_off(pair, source, result, **more):
    with pytest.raises(KeyboardInterrupt):
        solve_file(pair, source, result, on_chunk=interrupt, **SETTINGS, **more)
    return result.with_name(f"{result.name}.parts")


def test_xarray_finds_names_and_meanings(pair, source, tmp_path):
    solve_file(pair, source, tmp_path / "x.zarr", **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = xarray.open_zarr(tmp_path / "x.zarr")
    assert data["x"].dims == ("row", "x_0")
    assert data["cost"].dims == ("row", "evaluation")
    assert data["cost"].attrs["evaluations"][:2] == ["f", "g"]
    assert data["status"].attrs["flag_meanings"].split()[0] == "CONVERGED"
    assert data.attrs["deceptron"]["method"] == "guarded"
    data.close()


def test_two_solves_of_one_result_do_not_mix(pair, source, tmp_path):
    """One of them waits in its first chunk while the other comes."""
    result = tmp_path / "x.npz"

    def rival(done, rows):
        with pytest.raises(dc.ConfigError, match="in use by another file solve"):
            solve_file(pair, source, result, method="gd", **SETTINGS)

    solve_file(pair, source, result, on_chunk=rival, **SETTINGS)
    assert names(tmp_path) == ["x.npz", "y.npy"]


@pytest.mark.parametrize("kind", [".npz", ".zarr"])
def test_parts_without_their_note_are_not_trusted(pair, source, tmp_path, kind):
    parts = cut_off(pair, source, tmp_path / f"x{kind}")
    (parts / "run.json").unlink()
    before = bytes_of(parts)
    with pytest.raises(dc.ConfigError, match=r"it has no run.json, but holds 'store-"):
        solve_file(pair, source, tmp_path / f"x{kind}", **SETTINGS)
    assert bytes_of(parts) == before


def test_a_folder_that_is_only_named_like_parts_is_left_alone(pair, source, tmp_path):
    stranger = tmp_path / "x.npz.parts"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("years of work")
    with pytest.raises(dc.ConfigError, match=r"holds 'thesis.tex': move it away"):
        solve_file(pair, source, tmp_path / "x.npz", **SETTINGS)
    assert names(stranger) == ["thesis.tex"]


def test_a_folder_that_is_only_named_like_a_store_is_left_alone(pair, source, tmp_path):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "thesis.tex").write_text("years of work")
    with pytest.raises(dc.ConfigError, match="not a store that this library wrote"):
        solve_file(pair, source, tmp_path / "x.zarr", overwrite=True, **SETTINGS)
    assert names(tmp_path / "x.zarr") == ["thesis.tex"]


def test_what_somebody_put_among_the_parts_stays(pair, source, tmp_path):
    parts = cut_off(pair, source, tmp_path / "x.npz")
    (parts / "notes.txt").write_text("mine")
    solve_file(pair, source, tmp_path / "x.npz", **SETTINGS)
    assert names(parts) == ["notes.txt"]


@pytest.mark.parametrize("kind", [".npz", ".zarr"])
def test_a_result_that_is_a_link_stays_one(pair, source, tmp_path, kind):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / f"real{kind}", tmp_path / f"x{kind}"
    link.symlink_to(real)
    for _ in range(2):
        solve_file(pair, source, link, overwrite=True, **SETTINGS)
        assert link.is_symlink()
        assert names(tmp_path / "far") == [real.name]


def test_a_device_is_not_replaced(pair, source, tmp_path):
    (tmp_path / "x.npy").symlink_to("/dev/null")
    with pytest.raises(FileError, match="it is a device"):
        solve_file(pair, source, tmp_path / "x.npy", overwrite=True, **SETTINGS)
    assert (tmp_path / "x.npy").is_symlink()


@pytest.mark.parametrize("kind", [".npz", ".zarr", ".h5"])
@pytest.mark.parametrize("moment", ["in the middle", "after"])
def test_a_kill_while_the_result_is_made(pair, source, tmp_path, kind, moment, monkeypatch):
    result, whole = tmp_path / f"x{kind}", tmp_path / f"whole{kind}"
    with monkeypatch.context() as patch:
        where = "publish" if moment == "in the middle" else "remove"
        patch.setattr(stream.Store if where == "publish" else stream._Parts, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            solve_file(pair, source, result, **SETTINGS)
    (tmp_path / f".x.0123abcd.partial{kind}").write_bytes(b"half a file")
    assert solve_file(pair, source, result, **SETTINGS).resumed == 45
    assert names(tmp_path) == [f"x{kind}", "y.npy"]
    solve_file(pair, source, whole, **SETTINGS)
    if kind == ".zarr":
        assert bytes_of(result) == bytes_of(whole)
    elif kind == ".npz":
        first, second = np.load(result), np.load(whole)
        assert first.files == second.files
        for key in second:
            np.testing.assert_array_equal(first[key], second[key])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "lost", "other lost"])
def test_a_damaged_part_is_solved_again(pair, source, tmp_path, damage):
    parts = tmp_path / "x.zarr.parts"

    def stop(done, rows):
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_file(pair, source, tmp_path / "x.zarr", on_chunk=stop, **SETTINGS)
    (chunk,) = parts.glob("store-*/x/c/1/0")
    content = chunk.read_bytes()
    if damage == "truncated":
        chunk.write_bytes(content[:-5])
    elif damage == "flipped":
        chunk.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    elif damage == "lost":
        chunk.unlink()
    else:
        next(parts.glob("store-*/status/c/1")).unlink()
    assert solve_file(pair, source, tmp_path / "x.zarr", **SETTINGS).resumed == 20
    solve_file(pair, source, tmp_path / "whole.zarr", **SETTINGS)
    assert bytes_of(tmp_path / "x.zarr") == bytes_of(tmp_path / "whole.zarr")


FULL = """
import resource, sys
import numpy as np, torch
import deceptron as dc
from tests.solve.pairs import invertible_pair

pair = invertible_pair(6, bias=0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    dc.solve_file(pair, "y.npy", "x" + sys.argv[1], dtype=torch.float64, method="one-shot")
except dc.DeceptronError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", [".h5", ".npz", ".npy", ".zarr"])
def test_a_full_disk_is_a_sentence(tmp_path, kind):
    """A limit on the size of files stands for the disk: chunks pass, or no chunk does."""
    rows = 400_000 if kind == ".zarr" else 4000
    np.save(tmp_path / "y.npy", np.random.default_rng(0).random((rows, 6)))
    if kind != ".zarr":
        script = FULL.replace('method="one-shot"', 'method="one-shot", chunk_rows=200')
    else:
        script = FULL.replace('method="one-shot"', 'method="one-shot", chunk_rows=4096')
    found = subprocess.run(
        [sys.executable, "-c", script, kind],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "cannot write" in found.stdout
    assert "File too large" in found.stdout
    assert not (tmp_path / f"x{kind}").exists()
    assert names(tmp_path) == [f"x{kind}.parts", "y.npy"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(pair, source, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(FileError, match="Permission denied"):
        solve_file(pair, source, tmp_path / "closed" / "x.npz", **SETTINGS)


class TestEngines:
    """Whoever does the work, the store is the same to the bit."""

    @pytest.fixture
    def expected(self, pair, source, tmp_path):
        solve_file(pair, source, tmp_path / "here.zarr", forward=softened, **SETTINGS)
        return bytes_of(tmp_path / "here.zarr")

    def check(self, pair, source, tmp_path, expected, executor, **more):
        given = {"forward": softened} | more
        solve_file(pair, source, tmp_path / "x.zarr", executor=executor, **given, **SETTINGS)
        assert bytes_of(tmp_path / "x.zarr").keys() == expected.keys()
        found = bytes_of(tmp_path / "x.zarr")
        assert [k for k in found if found[k] != expected[k] and "zarr.json" not in k] == []
        assert not list(tmp_path.glob("*.parts"))

    def test_processes(self, pair, source, tmp_path, expected):
        self.check(pair, source, tmp_path, expected, "local", workers=2)

    def test_a_pool(self, pair, source, tmp_path, expected):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            self.check(pair, source, tmp_path, expected, pool, method=dc.methods.guarded())

    def test_a_worker_that_is_killed(self, pair, source, tmp_path, expected):
        notes = tmp_path / "notes"
        notes.mkdir()
        deadly = DiesOnce(notes)
        self.check(pair, source, tmp_path, expected, "local", workers=2, forward=deadly)
        assert (notes / "died").exists()

    @pytest.mark.fixed_draws
    def test_dask(self, pair, source, tmp_path, expected):
        """In a process of its own, whose warnings are its own affair."""
        pytest.importorskip("distributed")
        script = f"""
import torch
from distributed import Client, LocalCluster
import deceptron as dc
from tests.solve.forwards import softened
from tests.solve.pairs import invertible_pair

if __name__ == "__main__":
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster, Client(cluster) as client:
        dc.solve_file(
            invertible_pair(6, bias=0.01), {str(source)!r}, {str(tmp_path / "x.zarr")!r},
            executor=client.get_executor(), forward=softened, dtype=torch.float64,
            chunk_rows=10, max_iterations=3, bounds=(-9.0, 9.0),
        )
"""
        file = tmp_path / "dask.script.py"
        file.write_text(script)
        paths = os.pathsep.join([os.getcwd(), *sys.path])
        env = {**os.environ, "PYTHONPATH": paths, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)}
        subprocess.run([sys.executable, str(file)], check=True, env=env)
        found = bytes_of(tmp_path / "x.zarr")
        assert [k for k in expected if found[k] != expected[k] and "zarr.json" not in k] == []

    def test_a_closure_cannot_travel(self, pair, source, tmp_path):
        with pytest.raises(dc.ConfigError, match="must be picklable"):
            solve_file(
                pair,
                source,
                tmp_path / "x.npz",
                executor="local",
                workers=1,
                forward=lambda x: x,
                **SETTINGS,
            )


def npy(header: bytes, version: bytes = b"\x01\x00", content: bytes = b"") -> bytes:
    width = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header + content


def described(shape: str, descr: str = "<f8") -> bytes:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()


@pytest.mark.parametrize(
    "content",
    [
        npy(described("(4611686018427387904, 4611686018427387904)")),
        npy(described(f"({2**63}, 6)")),
        npy(described(f"({2**200}, 6)")),
        npy(described("(3, -6)"), content=bytes(144)),
        npy(described("(3, 6)"), content=bytes(143)),
        npy(described("(3, 6")),
        npy(b"(" * 5000),
        npy(b"\xff" * 100),
        npy(b""),
        npy(described("(3, 6)"), version=b"\x09\x00", content=bytes(144)),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01",
        b"",
        npy(described("(3, 6)", "<f99"), content=bytes(144)),
        npy(described("('a', 6)"), content=bytes(144)),
    ],
)
def test_headers_that_lie(pair, tmp_path, content):
    for name in ("y.npy", "y.npz"):
        if name == "y.npz":
            with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("y.npy", content)
        else:
            (tmp_path / name).write_bytes(content)
        with pytest.raises((dc.ConfigError, dc.ShapeError), match="observations"):
            solve_file(pair, tmp_path / name, tmp_path / "x.npz", **SETTINGS)
    assert names(tmp_path) == ["y.npy", "y.npz"]


def test_a_header_that_unpacks_to_gigabytes_is_not_unpacked(pair, tmp_path):
    size = 2**31
    with (
        zipfile.ZipFile(tmp_path / "y.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("y.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little"))
        for _ in range(64):
            member.write(bytes(2**20))
    with pytest.raises(dc.ConfigError, match=r"expected 2147483648 bytes got 9988"):
        solve_file(pair, tmp_path / "y.npz", tmp_path / "x.npz", **SETTINGS)


def test_numbers_that_lie_in_other_files_are_refused(pair, tmp_path):
    y = np.random.default_rng(0).random((5, 6))
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["y"] = y
    (tmp_path / "raw.bin").write_bytes(y.tobytes())
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file["y"] = h5py.ExternalLink("secret.h5", "/y")
    with h5py.File(tmp_path / "soft.h5", "w") as file:
        file["far"] = h5py.ExternalLink("secret.h5", "/")
        file["y"] = h5py.SoftLink("/far/y")
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=y.shape, dtype=y.dtype)
        layout[:] = h5py.VirtualSource("secret.h5", "y", shape=y.shape)
        file.create_virtual_dataset("y", layout)
    with h5py.File(tmp_path / "storage.h5", "w") as file:
        file.create_dataset("y", y.shape, y.dtype, external=[(str(tmp_path / "raw.bin"), 0, 240)])
    for name in ("external", "soft", "virtual", "storage"):
        with pytest.raises(dc.ConfigError, match=r"is a link|lie in other files"):
            solve_file(pair, tmp_path / f"{name}.h5", tmp_path / "x.npz", **SETTINGS)
    os.rename(tmp_path / "virtual.h5", tmp_path / "virtual.nc")
    with pytest.raises(dc.ConfigError, match="lie in other files"):
        solve_file(pair, tmp_path / "virtual.nc", tmp_path / "x.npz", **SETTINGS)


def test_a_store_that_would_unpickle_is_refused(pair, tmp_path):
    store = tmp_path / "y.zarr"
    zarr.create_array(store, shape=(3, 6), chunks=(3, 6), dtype="f8", zarr_format=2, fill_value=0)
    note = json.loads((store / ".zarray").read_text())
    (store / ".zarray").write_text(json.dumps({**note, "filters": [{"id": "pickle"}]}))
    with pytest.raises(dc.ConfigError, match="holds pickles"):
        solve_file(pair, store, tmp_path / "x.npz", **SETTINGS)

    (store / ".zarray").write_text((store / ".zarray").read_text() + " " * 2**24)
    with pytest.raises(dc.ConfigError, match="must be at most 16 MiB"):
        solve_file(pair, store, tmp_path / "x.npz", **SETTINGS)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "encoding",
    [
        {"scale_factor": 0.01, "dtype": "int16", "_FillValue": -1},
        {"_FillValue": -9999.0},
        {"_FillValue": -1.0, "missing_value": -1.0},
    ],
    ids=["scaled", "marked", "twice"],
)
def test_numbers_that_are_packed_are_unpacked(pair, tmp_path, version, encoding):
    y = np.random.default_rng(0).random((5, 6)).round(2)
    y[0, 3] = np.nan
    data = xarray.Dataset({"y": (("time", "sensor"), y)})
    how = {"zarr_format": version, "consolidated": False}
    data.to_zarr(tmp_path / "y.zarr", encoding={"y": encoding}, **how)
    np.save(tmp_path / "y.npy", y)
    for name in ("y.zarr", "y.npy"):
        out = tmp_path / f"{name[2:]}.npz"
        solve_file(pair, tmp_path / name, out, **SETTINGS)
    first, second = np.load(tmp_path / "zarr.npz"), np.load(tmp_path / "npy.npz")
    np.testing.assert_allclose(first["x"], second["x"], atol=1e-9)


@pytest.mark.parametrize("how", [{"scale_factor": 0.01}, {"_FillValue": -1.0}])
def test_packed_numbers_of_hdf5_are_refused(pair, tmp_path, how):
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file.create_dataset("y", data=np.ones((5, 6))).attrs.update(how)
    with pytest.raises(dc.ConfigError, match=f"y in y.h5 is packed .{next(iter(how))}"):
        solve_file(pair, tmp_path / "y.h5", tmp_path / "x.npz", **SETTINGS)


@pytest.mark.parametrize("name", ["x.zarr", "x.npy"])
def test_a_result_within_the_observations_is_refused(pair, tmp_path, name):
    zarr.open_group(tmp_path / "y.zarr", mode="w").create_array("y", data=np.ones((5, 6)))
    before = sorted((tmp_path / "y.zarr").rglob("*"))
    with pytest.raises(dc.ConfigError, match="must not lie within the observations"):
        solve_file(pair, tmp_path / "y.zarr", tmp_path / "y.zarr" / name, **SETTINGS)
    assert sorted((tmp_path / "y.zarr").rglob("*")) == before


def garbage(kind: str, seed: int) -> bytes:
    """The start of a real file, then noise, or a real file with some bytes changed."""
    random = np.random.default_rng(seed)
    buffer = io.BytesIO()
    y = random.random((5, 6))
    if kind == ".npy":
        np.save(buffer, y)
    elif kind == ".npz":
        np.savez_compressed(buffer, y=y)
    else:
        with h5py.File(buffer, "w") as file:
            file.create_dataset("y", data=y, chunks=(2, 6), compression="gzip", fletcher32=True)
    content = bytearray(buffer.getvalue())
    if seed % 2:
        return bytes(content[: random.integers(len(content))])
    for place in random.integers(len(content), size=8):
        content[place] ^= int(random.integers(1, 256))
    return bytes(content)


@pytest.mark.parametrize("kind", [".npy", ".npz", ".h5"])
def test_malformed_files_are_sentences_or_answers(pair, tmp_path, kind):
    refused = 0
    for seed in range(30):
        source, result = tmp_path / f"y{kind}", tmp_path / "x.npy"
        source.write_bytes(garbage(kind, seed))
        try:
            solve_file(pair, source, result, method="one-shot", dtype=torch.float64)
        except dc.DeceptronError:
            refused += 1
        else:
            result.unlink()
        shutil.rmtree(tmp_path / "x.npy.parts", ignore_errors=True)
    assert refused >= 15
