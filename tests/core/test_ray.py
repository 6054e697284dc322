"""Ray: a cluster of two nodes' worth of processes, and one that is started for the occasion.

Each in a process of its own, because Ray warns, and leaves things behind in the one that uses it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.cluster

START = """
import faulthandler, os, sys
faulthandler.dump_traceback_later(240, exit=True)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 is meant
import torch
from ray.cluster_utils import Cluster
import deceptron as dc
from deceptron.core.work import engine, succeed
from tests.solve.forwards import DiesOnce, softened
from tests.solve.pairs import invertible_pair

place = sys.argv[1]
pair = invertible_pair(6, bias=0.01)
settings = dict(dtype=torch.float64, chunk_rows=4, max_iterations=3, bounds=(-9.0, 9.0))
"""
CLUSTER = r"""
cluster = Cluster()
node = dict(num_cpus=1, object_store_memory=80 * 2**20, node_ip_address="127.0.0.1")
cluster.add_node(include_dashboard=False, **node)
second = cluster.add_node(**node)
cluster.wait_for_nodes()
from pathlib import Path
try:
    summary = dc.solve_file(
        pair, f"{place}/y.npy", f"{place}/ray.zarr", forward=DiesOnce(Path(place)), executor="ray",
        address=cluster.address, **settings,
    )
    print("\nSAYS", summary.rows, sum(summary.statuses.values()), flush=True)
    lost = False

    def lose(done, rows):
        global lost
        if not lost:
            lost = True
            cluster.remove_node(second, allow_graceful=False)

    dc.solve_file(
        pair, f"{place}/y.npy", f"{place}/one.zarr", forward=softened, executor="ray",
        address=cluster.address, on_chunk=lose, **settings,
    )
    print("\nSAYS lost", lost, flush=True)
finally:
    cluster.shutdown()
"""
ALONE = """
from tests.core.test_ray import write_priority
from tests.core.test_work import draw
with engine("ray", workers=1) as crew:
    print(sorted(succeed(crew.run(draw, [(place, 0), (place, 1)]))))
    list(succeed(crew.run(write_priority, [place])))
"""


def write_priority(folder: str) -> None:
    (Path(folder) / "niceness").write_text(str(os.nice(0)))


def run(script: str, folder: Path) -> str:
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", START + script, str(folder)]
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    return found.stdout


def arrays(store: Path) -> dict[str, bytes]:
    files = (p for p in store.rglob("*") if p.is_file() and p.name != "zarr.json")
    return {str(p.relative_to(store)): p.read_bytes() for p in files}


def test_a_cluster_of_two_nodes_that_loses_a_worker_and_then_a_node(tmp_path: Path) -> None:
    import torch

    from deceptron.solve import solve_file
    from tests.solve.forwards import softened
    from tests.solve.pairs import invertible_pair

    source = tmp_path / "y.npy"
    np.save(source, np.random.default_rng(0).random((45, 6)))
    said = [line for line in run(CLUSTER, tmp_path).splitlines() if line.startswith("SAYS")]
    assert said == ["SAYS 45 45", "SAYS lost True"]  # Ray has much to say besides
    assert (tmp_path / "died").exists()
    settings = {"dtype": torch.float64, "chunk_rows": 4, "max_iterations": 3}
    solve_file(
        invertible_pair(6, bias=0.01),
        source,
        tmp_path / "here.zarr",
        forward=softened,
        bounds=(-9.0, 9.0),
        **settings,
    )
    expected = arrays(tmp_path / "here.zarr")
    assert arrays(tmp_path / "ray.zarr") == expected
    assert arrays(tmp_path / "one.zarr") == expected
    assert not list(tmp_path.glob("*.parts"))


def test_ray_on_this_machine_gives_every_job_its_own_seed_and_this_priority(tmp_path: Path) -> None:
    import torch

    from deceptron.core.work import seed_of

    run(ALONE, tmp_path)
    for number in range(2):
        torch.manual_seed(seed_of((str(tmp_path), number)))
        assert (tmp_path / str(number)).read_text() == f"1 {torch.rand(1).item()}"
    assert (tmp_path / "niceness").read_text() == str(os.nice(0))
