"""Two processes train what one does: the same losses to round-off, also after a kill."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.train.team import Team
from tests.train.small import quick, tiny

SCRIPT = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import deceptron as dc
from tests.train.test_team import chosen
from tests.train.small import tiny

seen = []

def stop(row):
    seen.append(row)
    if len(seen) == int(sys.argv[2]):
        os._exit(1)

pair = dc.train(tiny(), chosen(), sys.argv[1], callback=stop, checkpoint_seconds=0.0)
# a file each: what two processes print to one pipe may be cut into each other
with open(sys.argv[1] + "-rank" + os.environ["RANK"], "w") as file:
    file.write(f"{type(pair).__name__} {pair.provenance['environment']['processes']}")
# A thread of gloo that outlives its group may abort the process while Python shuts down.
left = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").glob("*")]
assert not [name for name in left if "gloo" in name], left
"""


def chosen():
    """Every kind of draw: cycle noise, noisy pairs, probes with noise; batches that are odd."""
    return quick(probe_law="prior", train_probe_rows=5)


def torchrun(folder: Path, out: Path, last: int) -> None:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, *sys.path]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", "0", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    found = subprocess.run(
        [*command, str(script), str(out), str(last)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0 or last < 100, found.stderr


def numbers(out: Path) -> list[dict[str, float]]:
    with open(out / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    skipped = ("stage", "seconds")
    return [{k: float(v) for k, v in row.items() if v and k not in skipped} for row in rows]


def test_two_processes_and_one_agree_also_after_a_kill(tmp_path: Path) -> None:
    alone, team = tmp_path / "alone", tmp_path / "team"
    expected = dc.train(tiny(), chosen(), alone)
    torchrun(tmp_path, team, last=4)
    assert not (team / "pair.safetensors").exists()
    torchrun(tmp_path, team, last=1000)
    for rank in range(2):
        assert (tmp_path / f"team-rank{rank}").read_text() == "Deceptron 2"
    first, second = numbers(alone), numbers(team)
    assert len(first) == len(second) == 9
    for one, other in zip(first, second, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-7)
    found = dc.load(team / "pair.safetensors").state_dict()
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_parts_make_up_the_whole(count: int, size: int) -> None:
    parts = [Team(rank, size).part(count) for rank in range(size)]
    rows = [row for part, share in parts if share for row in range(count)[part]]
    assert rows == list(range(count))
    assert sum(share for _, share in parts) == pytest.approx(1.0)
    assert all(len(range(count)[part]) > 0 for part, _ in parts)


def test_batch_statistics_are_refused() -> None:
    Team().check(nn.BatchNorm1d(3))
    with pytest.raises(dc.ConfigError, match="without batch statistics; got BatchNorm1d"):
        Team(0, 2).check(nn.Sequential(nn.BatchNorm1d(3)))
