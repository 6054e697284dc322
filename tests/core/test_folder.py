"""Files that appear whole, and folders that one process has to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deceptron as dc
from deceptron.core.errors import FileError
from deceptron.core.files import remove_litter, replacing, temporary_for, write_json
from deceptron.core.folder import Folder
from deceptron.maps import mlp_pair


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    real, link = tmp_path / "deep" / "real", tmp_path / "link"
    link.symlink_to(real)
    for _ in range(2):  # at first it leads nowhere
        dc.save(mlp_pair(3), link)
        assert link.is_symlink()
        assert dc.load(real).x_shape == (3,)
    assert os.listdir(tmp_path / "deep") == ["real"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "there"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/null")
    else:
        path.symlink_to(path)
    before = path.lstat()
    with pytest.raises(FileError, match=rf"cannot write .*there: it is a .*{kind}|itself"):
        write_json(path, {})
    after = path.lstat()  # following a link is an access to it, so that time may change
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert os.path.exists("/dev/null")
    assert os.listdir(tmp_path) == ["there"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        with replacing(path), open("/dev/full", "wb") as full:
            full.write(b"much")

    with pytest.raises(FileError, match=r"cannot write .*: No space left on device"):
        fill(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_litter_of_one_file_or_of_a_folder(tmp_path: Path) -> None:
    names = (".x.0123abcd.partial.npz", ".y.0123abcd.partial.npz", ".hidden", "x.partial")
    for name in names:
        (tmp_path / name).touch()
    remove_litter(tmp_path, tmp_path / "x.npz")
    assert set(os.listdir(tmp_path)) == set(names[1:])
    (tmp_path / ".cell.0123abcd.partial").mkdir()
    remove_litter(tmp_path)
    assert set(os.listdir(tmp_path)) == {".hidden", "x.partial"}


def test_litter_is_known_by_its_whole_name(tmp_path: Path) -> None:
    own, other = temporary_for(tmp_path / "run[1].npz"), temporary_for(tmp_path / "run.a.npz")
    for path in (own, other):
        path.touch()
    remove_litter(tmp_path, tmp_path / "run.npz")
    assert own.exists()
    assert other.exists()
    remove_litter(tmp_path, tmp_path / "run[1].npz")
    assert os.listdir(tmp_path) == [other.name]


def refuse(note: Path) -> None:
    raise dc.ConfigError(f"{note.name} is of other work")


def accept(note: Path) -> None:
    assert note.is_file()


HOLD = """
import sys
from pathlib import Path
from deceptron.core.folder import Folder

with Folder(Path(sys.argv[1]), "test", "note.json").taken({}, check=lambda note: None):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_has_one_process_and_the_lock_of_a_dead_one_is_gone(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", "test", "note.json")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(dc.ConfigError, match="in use by another test"),
            folder.taken({}, check=accept),
        ):
            pass
        holder.kill()
        holder.wait()
    with folder.taken({}, check=accept):
        pass
    with pytest.raises(dc.ConfigError, match="other work"), folder.taken({}, check=refuse):
        pass


def test_a_folder_of_strangers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    folder = Folder(tmp_path, "test", "note.json", shared=False)
    with (
        pytest.raises(dc.ConfigError, match=r"it has no note.json, but holds 'thesis.tex'"),
        folder.taken({}, check=accept),
    ):
        pass
    assert os.listdir(tmp_path) == ["thesis.tex"]
