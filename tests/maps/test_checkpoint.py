import errno
import json
import os
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import deceptron as dc
from deceptron.maps import Wiener, checkpoint, cnn_pair, mlp_pair


def generator():
    return torch.Generator().manual_seed(0)


def full_pair(dtype=torch.float32):
    """Everything a pair can carry."""
    maps = cnn_pair((4, 4), (2, 4, 4), dimensions=2, channels=3, generator=generator())
    x, y = torch.rand(20, 4, 4, generator=generator()), torch.rand(20, 2, 4, 4)
    return dc.Deceptron(
        maps.f,
        maps.g,
        scaler=dc.Scaler.fit(y, per="channel"),
        bounds=(torch.rand(4, 4, generator=generator()), float("inf")),
        name="test-2d",
        wiener=Wiener.fit(x, y, noise_std=0.3),
        provenance={"seed": 7, "losses": [0.5, 0.1], "note": "σ", "stopped": None},
    ).to(dtype)


class Foreign(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x):
        return self.inner(x)


def rewrite(path, target, *, document=None, tensors=None, header=None):
    """Copy a checkpoint with its document or tensors changed by the given functions."""
    with safe_open(path, framework="pt") as file:
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        content = json.loads(file.metadata()["deceptron"])
    content.pop("sha256")  # as files were before there was one: what else is wrong is found too
    if document:
        document(content)
    if tensors:
        tensors(held)
    save_file(held, target, metadata={"deceptron": header or json.dumps(content)})
    return target


def assert_same(a, b):
    first, second = a.state_dict(), b.state_dict()
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value.dtype == second[key].dtype
        assert torch.equal(value, second[key]), key


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_is_exact(tmp_path, dtype):
    pair = full_pair(dtype)
    path = dc.save(pair, tmp_path / "pair.safetensors")
    before = torch.get_rng_state()
    twin = dc.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(pair, twin)
    assert (twin.name, twin.x_shape, twin.y_shape) == (pair.name, pair.x_shape, pair.y_shape)
    assert twin.provenance == pair.provenance
    assert torch.equal(twin.bounds[0], pair.bounds[0])
    assert twin.bounds[1] == float("inf")
    x = torch.rand(3, 4, 4, dtype=dtype)
    assert torch.equal(twin.f(x), pair.f(x))
    assert torch.equal(twin.g(pair.f(x)), pair.g(pair.f(x)))
    assert torch.equal(twin.wiener(pair.f(x)), pair.wiener(pair.f(x)))
    assert all(p.requires_grad for p in twin.parameters())
    assert os.listdir(tmp_path) == ["pair.safetensors"]
    assert dc.save(twin, tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", [None, 3, b"pair"])
def test_what_is_no_path_is_named(path):
    with pytest.raises(dc.ConfigError, match="must be a path; got"):
        dc.load(path)
    with pytest.raises(dc.ConfigError, match="path must be a path; got"):
        dc.save(dc.load("heat-1d"), path)


def test_mlp_and_plain_pairs(tmp_path):
    pair = mlp_pair(generator=generator())
    twin = dc.load(str(dc.save(pair, str(tmp_path / "mlp"))))
    assert_same(pair, twin)
    assert twin.bounds is None
    assert twin.name is None
    assert twin.wiener is None
    pair = dc.Deceptron(pair.f, pair.g, bounds=(-0.1, 1 / 3))
    assert dc.load(dc.save(pair, tmp_path / "mlp")).bounds == (-0.1, 1 / 3)


def test_foreign_modules_are_filled(tmp_path):
    pair = dc.Deceptron(Foreign(), mlp_pair(3).g, x_shape=(3,), y_shape=(3,))
    path = dc.save(pair, tmp_path / "foreign")
    module = Foreign()
    weight = module.inner[0].weight
    twin = dc.load(path, forward=module)
    assert twin.f is module
    assert module.inner[0].weight is weight
    assert_same(pair, twin)
    with pytest.raises(dc.CheckpointError, match=r"f is a .*Foreign.*load\(..., forward=module\)"):
        dc.load(path)
    with pytest.raises(dc.CheckpointError, match=r"bring the module to the file's dtype"):
        dc.load(path, forward=Foreign().double())


def test_a_file_that_does_not_fit_leaves_the_given_modules_alone(tmp_path):
    path = dc.save(dc.Deceptron(nn.Linear(3, 4), nn.Linear(4, 3)), tmp_path / "pair")
    f, g = nn.Linear(3, 4), nn.Linear(5, 3)
    before = f.weight.detach().clone()
    with pytest.raises(
        dc.CheckpointError, match=r"g.weight must have shape \(3, 5\); got \(3, 4\)"
    ):
        dc.load(path, forward=f, reverse=g)
    assert torch.equal(f.weight, before)


def test_an_unregistered_subclass_is_foreign(tmp_path):
    class Doubled(type(mlp_pair(3).f)):
        def forward(self, x):
            return 2 * super().forward(x)

    path = dc.save(dc.Deceptron(Doubled((3, 3)), mlp_pair(3).g), tmp_path / "pair")
    with pytest.raises(dc.CheckpointError, match="Doubled"):
        dc.load(path)


def test_shared_and_strided_weights_are_saved(tmp_path):
    layer = nn.Linear(3, 3)
    layer.weight.data = torch.rand(3, 3).T
    twin = dc.load(
        dc.save(dc.Deceptron(layer, layer), tmp_path / "pair"),
        forward=nn.Linear(3, 3),
        reverse=nn.Linear(3, 3),
    )
    assert torch.equal(twin.f.weight, layer.weight)
    assert torch.equal(twin.g.weight, layer.weight)


def test_headers_that_start_like_a_pickle_load(tmp_path):
    # A header of 0x0280 + 256 k bytes starts with 80 02, 80 03, ... as pickles do.
    pair = mlp_pair(2, generator=generator())
    starts = set()
    for padding in range(0, 1200, 8):
        pair.provenance = {"note": "x" * padding}
        path = dc.save(pair, tmp_path / "pair")
        start = path.read_bytes()[:2]
        if start[:1] == b"\x80":
            starts.add(start)
            assert_same(dc.load(path), pair)
            path.write_bytes(path.read_bytes()[:-1])
            with pytest.raises(dc.CheckpointError, match="truncated"):
                dc.load(path)
    assert starts & {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}


class TestBadFiles:
    @pytest.fixture
    def path(self, tmp_path):
        return dc.save(full_pair(), tmp_path / "good.safetensors")

    @pytest.fixture
    def bad(self, tmp_path):
        return tmp_path / "bad.safetensors"

    def refuse(self, path, message):
        with pytest.raises(dc.CheckpointError, match=message) as caught:
            dc.load(path)
        assert path.name in str(caught.value)

    def test_missing(self, bad, tmp_path):
        self.refuse(bad, "there is no file")
        self.refuse(tmp_path, "is a folder")

    def test_truncated(self, path, bad):
        content = path.read_bytes()
        for length in (0, 5, 8, 9, 200, len(content) // 2, len(content) - 1):
            bad.write_bytes(content[:length])
            self.refuse(bad, "truncated or damaged")

    def test_grown(self, path, bad):
        bad.write_bytes(path.read_bytes() + b"\0")
        self.refuse(bad, "truncated or damaged")

    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_pickle(self, bad, protocol):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("a pickle was loaded",))

        bad.write_bytes(pickle.dumps(Bomb(), protocol=protocol))
        self.refuse(bad, "is a pickle")

    @pytest.mark.parametrize("zipped", [True, False])
    def test_torch_save(self, bad, zipped):
        torch.save(mlp_pair(3).state_dict(), bad, _use_new_zipfile_serialization=zipped)
        self.refuse(bad, "zip archive, as torch.save" if zipped else "is a pickle")

    def test_something_else(self, bad):
        bad.write_text("not a checkpoint at all, only text that is long enough")
        self.refuse(bad, "is not a safetensors file")

    def test_foreign_safetensors(self, bad):
        save_file({"weight": torch.zeros(3)}, bad)
        self.refuse(bad, "is a safetensors file, but not one that deceptron wrote")
        save_file({"weight": torch.zeros(3)}, bad, metadata={"format": "pt"})
        self.refuse(bad, "is a safetensors file, but not one that deceptron wrote")

    @pytest.mark.parametrize("version", [1, 3])
    def test_other_version(self, path, bad, version):
        def other(document):
            document.update(version=version, library="9.1")

        self.refuse(
            rewrite(path, bad, document=other),
            f"format version {version}, written by deceptron 9.1",
        )

    def test_a_calibration_that_makes_no_sense(self, path, bad):
        for change in (
            {"start": "nowhere"},
            {"surrogate_error": -1.0},
            {"prior_share": "much"},
            {"trust": {"parts": {}}},
            {"family": "grid"},
            {"family": {"basis": 0}},
            {"bases": [{"shape": [9], "waves": ["square"]}]},
            {"beliefs": {}},
            {"beliefs": {"corrections": {"scale": 1.0, "factor": 1.0}}},
            {"rows": float("inf")},
        ):
            rewrite(path, bad, document=lambda d, c=change: d["calibration"].update(c))
            self.refuse(bad, "does not describe a pair")

    @pytest.mark.parametrize("header", ["{", "[]", "3", '{"format": "deceptron-pair"}'])
    def test_damaged_document(self, path, bad, header):
        self.refuse(rewrite(path, bad, header=header), "damaged header")

    def test_other_format(self, path, bad):
        rewrite(path, bad, document=lambda d: d.update(format="deceptron-data"))
        self.refuse(bad, "not a file of format 'deceptron-pair'")

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d.pop("modules"),
            lambda d: d.update(modules=[]),
            lambda d: d["modules"].pop("g"),
            lambda d: d["modules"]["f"].update(kind="cnn"),
            lambda d: d["modules"]["f"].update(kind=["mlp"]),
            lambda d: d["modules"]["f"]["config"].update(surprise=1),
            lambda d: d["modules"]["f"]["config"].update(channels=-1),
            lambda d: d["modules"]["f"]["config"].update(channels=10**9),
            lambda d: d.update(x_shape=[5, 5]),
            lambda d: d.update(x_shape="wide"),
            lambda d: d.update(provenance=3),
            lambda d: d.pop("bounded"),
            lambda d: d.update(bounded="no"),
            lambda d: d.update(name=["heat-1d"]),
        ],
    )
    def test_document_that_makes_no_sense(self, path, bad, change):
        rewrite(path, bad, document=change)
        with pytest.raises(dc.CheckpointError, match=r"bad\.safetensors"):
            dc.load(bad)

    def test_weights_that_do_not_fit(self, path, bad):
        def missing(tensors):
            del tensors["g.entry.weight"]

        def extra(tensors):
            tensors["f.more"] = torch.zeros(1)

        def stray(tensors):
            tensors["h.weight"] = torch.zeros(1)

        def reshaped(tensors):
            tensors["f.exit.bias"] = torch.zeros(9)

        def whole(tensors):
            tensors["f.exit.bias"] = torch.zeros(2, dtype=torch.int64)

        def crossed(tensors):
            tensors["bounds.low"] = tensors["bounds.low"] + torch.inf
            tensors["bounds.high"] = torch.zeros(4, 4)

        def scale(tensors):
            tensors["scaler.scale"] = -tensors["scaler.scale"]

        for change, message in (
            (missing, "lacks weights of g: entry.weight"),
            (extra, "has weights that f does not: more"),
            (stray, "tensors of no module: h.weight"),
            (reshaped, r"f.exit.bias must have shape \(2,\); got \(9,\)"),
            (whole, r"f.exit.bias is torch.int64; torch.float32 is wanted"),
            (crossed, "low <= high"),
            (scale, "must be positive"),
        ):
            self.refuse(rewrite(path, bad, tensors=change), message)

    def test_a_flipped_bit_is_found_wherever_it_is(self, path, bad):
        content = path.read_bytes()
        random = torch.Generator().manual_seed(0)
        start = int.from_bytes(content[:8], "little") + 8
        places = torch.randint(start, len(content), (40,), generator=random).tolist()
        note = content.index(b"losses")  # within the document
        for place in (*places, note + 12):
            bad.write_bytes(
                content[:place] + bytes([content[place] ^ 2 ** (place % 8)]) + content[place + 1 :]
            )
            with pytest.raises(dc.CheckpointError, match=r"bad\.safetensors"):
                dc.load(bad)
        bad.write_bytes(content)
        dc.load(bad)

    def test_a_file_older_than_the_checksum_loads(self, path, bad):
        assert_same(dc.load(rewrite(path, bad)), dc.load(path))

    def test_weights_that_are_not_numbers(self, path, bad):
        def nan(tensors):
            tensors["g.exit.bias"][0] = torch.nan

        def infinite(tensors):
            tensors["f.entry.weight"][0] = torch.inf

        self.refuse(rewrite(path, bad, tensors=nan), "weights must be finite; g.exit.bias is not")
        self.refuse(rewrite(path, bad, tensors=infinite), "f.entry.weight is not")

    def test_config_of_another_size(self, path, bad):
        def wider(document):
            document["modules"]["g"]["config"]["channels"] = 5

        self.refuse(rewrite(path, bad, document=wider), "must have shape")


class TestNames:
    def test_unknown_name(self):
        with pytest.raises(dc.ConfigError, match="unknown model 'heet-1d'"):
            dc.load("heet-1d")

    def test_shipped_models(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint, "_zoo", lambda: tmp_path)
        assert checkpoint.shipped() == ()
        with pytest.raises(dc.ConfigError, match="no model ships"):
            dc.load("heat-1d")
        pair = mlp_pair(3, generator=generator())
        dc.save(pair, tmp_path / "heat-1d.safetensors")
        (tmp_path / "README").touch()
        assert checkpoint.shipped() == ("heat-1d",)
        assert_same(dc.load("heat-1d"), pair)
        with pytest.raises(dc.ConfigError, match="Did you mean 'heat-1d'"):
            dc.load("heat1d")

    def test_a_plain_file_name_is_a_path(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        dc.save(mlp_pair(3), "mine")
        assert dc.load("mine").x_shape == (3,)


class TestFailedSave:
    """An existing file stays as it was, and nothing is left beside it."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "pair"
        path.write_bytes(b"old")
        yield path
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["pair"]

    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_disk_failure(self, path, monkeypatch, step):
        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, step, fail)
        with pytest.raises(dc.CheckpointError, match=r"cannot write .*pair: No space left"):
            dc.save(mlp_pair(3), path)

    def test_interrupt(self, path, monkeypatch):
        def fail(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(KeyboardInterrupt):
            dc.save(mlp_pair(3), path)

    def test_weights_that_are_not_numbers(self, path):
        pair = mlp_pair(3)
        with torch.no_grad():
            next(pair.g.parameters())[0] = torch.nan
        with pytest.raises(dc.CheckpointError, match=r"weights must be finite to be saved; g\."):
            dc.save(pair, path)

    def test_provenance_that_is_not_json(self, path):
        pair = mlp_pair(3)
        pair.provenance["when"] = object()
        with pytest.raises(dc.ConfigError, match=r"pair.provenance must be JSON"):
            dc.save(pair, path)

    def test_state_that_is_not_tensors(self, path):
        class Stateful(nn.Linear):
            def get_extra_state(self):
                return "text"

        with pytest.raises(dc.CheckpointError, match="_extra_state"):
            dc.save(dc.Deceptron(Stateful(2, 2), nn.Linear(2, 2)), path)

    def test_not_a_pair(self, path):
        with pytest.raises(dc.ConfigError, match="must be a Deceptron; got Linear"):
            dc.save(nn.Linear(2, 2), path)


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(dc.CheckpointError, match=r"cannot write .*No such file or directory"):
        dc.save(mlp_pair(3), tmp_path / "nowhere" / "pair")
    assert os.listdir(tmp_path) == []
