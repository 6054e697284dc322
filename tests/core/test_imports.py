"""What a first import loads: a command line that answers at once, names that load when used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import deceptron as dc

SLOW = {"pandas", "pyarrow", "scipy", "matplotlib", "zarr", "xarray", "h5py", "jax", "ray"}


def loaded_after(code: str) -> set[str]:
    report = "import json, sys; print(); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize("words", ["--help", "solve --help"])
def test_help_needs_neither_torch_nor_anything_slow(words: str) -> None:
    code = f"""
import sys
from deceptron.cli import main
sys.argv = ["deceptron", *{words.split()!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""
    assert not loaded_after(code) & (SLOW | {"torch", "numpy"})


def test_the_package_loads_torch_with_the_first_name_and_nothing_slow() -> None:
    assert not loaded_after("import deceptron") & (SLOW | {"torch"})
    everything = "import deceptron as dc\nfor name in dc.__all__: getattr(dc, name)"
    loaded = loaded_after(everything)
    assert "torch" in loaded
    assert not loaded & SLOW


def test_a_pair_of_any_preset_loads_where_nothing_was_trained() -> None:
    code = """
import deceptron as dc
from deceptron.maps import kinds
known = set(kinds())
import deceptron.train
assert set(kinds()) == known, set(kinds()) - known
"""
    loaded_after(code)


def test_every_public_name_is_there() -> None:
    assert set(dc.__all__) <= set(dir(dc))
    assert all(getattr(dc, name) is not None for name in dc.__all__)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = dc.nothing_of_this_name


@pytest.mark.parametrize("room", ["solve", "train"])
def test_functions_keep_their_names_when_rooms_of_that_name_are_imported(room: str) -> None:
    code = f"""
import deceptron.{room}.api
import deceptron as dc
assert dc.{room} is sys.modules["deceptron.{room}"].{room}, dc.{room}
from deceptron import {room}
assert callable({room})
"""
    loaded_after(f"import sys\n{code}")
