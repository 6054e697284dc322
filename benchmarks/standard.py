"""What the default preset reaches: every problem, three seeds, 300 noisy test instances.

Training and measurements live in ``runs/standard`` and are resumable; what is there is not done
again, except that a measurement is repeated when the code that made it has changed. ``python -m
benchmarks.standard heat-1d:7 darcy-2d:8`` does only these.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import sys
from pathlib import Path

import deceptron as dc
from benchmarks.common import publish
from benchmarks.quality import assess
from deceptron.core.files import replacing

SEEDS = (7, 8, 9)
INSTANCES = 300
RUNS = Path(__file__).parent.parent / "runs" / "standard"
# Files of the package that decide what ``assess`` finds for given weights.
ASSESSING = (
    *(f"{room}/**/*.py" for room in ("core", "problems", "maps", "geometry", "solve")),
    "measure.py",
)
# One-shot RMSE to be reached; None: no worse than wiener.
TARGETS = {
    "heat-1d": 0.125,
    "heat-2d": None,
    "heat-3d": 0.0015,
    "darcy-2d": 0.05,
    "advection-diffusion-2d": None,
    "allen-cahn-2d": 0.015,
    "navier-stokes-2d": 0.03,
}


def trained(problem: dc.problems.Problem, seed: int) -> tuple[dc.Deceptron, Path]:
    folder = RUNS / f"{problem.name}-{seed}"
    return dc.train(problem, out=folder, seed=seed), folder


def row(name: str, seed: int) -> dict[str, object]:
    problem = dc.problems.get(name, test_count=INSTANCES)
    pair, folder = trained(problem, seed)
    record = folder / "quality.json"
    found = json.loads(record.read_text()) if record.is_file() else {}
    if found.get("code") != assessing_code():
        found = measured(name, seed, problem, pair, folder)
        with replacing(record) as temporary:
            temporary.write_text(json.dumps(found, indent=1))
    target = TARGETS[name] or found["wiener"]
    shown = {key: value for key, value in found.items() if key != "code"}
    return {**shown, "target": target, "met": found["one_shot"] <= target}


@functools.cache
def assessing_code() -> str:
    """Digest of what solves and measures; comments and layout do not count."""
    package = Path(dc.__file__).parent
    digest = hashlib.sha256()
    found = {path for pattern in ASSESSING for path in package.glob(pattern)}
    for path in (*sorted(found), Path(__file__).with_name("quality.py")):
        digest.update(ast.dump(ast.parse(path.read_text())).encode())
    return digest.hexdigest()[:16]


def measured(
    name: str, seed: int, problem: dc.problems.Problem, pair: dc.Deceptron, folder: Path
) -> dict[str, object]:
    quality = assess(pair, problem, problem.dataset(seed))
    return {
        "problem": name,
        "seed": seed,
        "one_shot": quality.rmse("one-shot"),
        "wiener": quality.rmse("wiener"),
        "d_ipg": quality.rmse("d-ipg"),
        "f_error": quality.surrogate_error,
        "noise": quality.noise_level,
        "rjcp": quality.rjcp,
        "training_s": sum(pair.provenance["seconds"].values()),
        "code": assessing_code(),
        "MB": (folder / "pair.safetensors").stat().st_size / 1e6,
    }


def _parse(chosen: str) -> tuple[str, int]:
    name, _, seed = chosen.rpartition(":")
    return name, int(seed)


def main() -> None:
    rows = [row(name, seed) for name in TARGETS for seed in SEEDS]
    publish("standard", f"preset standard, mean RMSE over {INSTANCES} noisy test instances", rows)


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        print(row(*_parse(chosen)), flush=True)
    if len(sys.argv) == 1:
        main()
