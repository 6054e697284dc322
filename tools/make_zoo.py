"""Train the models that ship with the package and write a card for each: ``make zoo``.

Resumable: runs live in ``runs/zoo``; a model that is trained already is only measured again. Name
problems on the command line to make only theirs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

import deceptron as dc
from deceptron.solve import methods
from deceptron.study import measure
from deceptron.study.measure import simulate

SEED = 7
INSTANCES = 300
LIMIT_BYTES = 3 * 2**20
ROOT = Path(__file__).parent.parent
ZOO = ROOT / "src" / "deceptron" / "zoo"


def make(name: str) -> None:
    problem = dc.problems.get(name, test_count=INSTANCES)
    folder = ROOT / "runs" / "zoo" / name
    pair = dc.train(problem, preset="standard", out=folder, seed=SEED, progress=True)
    trained = folder / "pair.safetensors"
    if trained.stat().st_size > LIMIT_BYTES:
        sys.exit(f"{name}: {trained.stat().st_size} bytes are more than a model may have")
    ZOO.mkdir(exist_ok=True)
    shutil.copyfile(trained, ZOO / f"{name}.safetensors")
    (ZOO / f"{name}.md").write_text(card(name, problem, pair))
    print(f"{name}: {ZOO / name}.safetensors, {trained.stat().st_size / 2**20:.2f} MiB")


def card(name: str, problem: dc.problems.Problem, pair: dc.Deceptron) -> str:
    data = problem.dataset(SEED)
    x, y = data.test.x, data.test.y
    scaler = data.scaler
    level = scaler.noise_level(problem.noise_std, problem.y_shape)
    estimate = dc.maps.Wiener.fit(
        data.train.x, scaler.normalise(data.train.y), noise_level=max(level, 1e-4)
    )
    linear = dc.Deceptron(
        pair.f, pair.g, scaler=scaler, bounds=problem.bounds, wiener=estimate, name=name
    )
    rows = [
        measure(linear, problem, x, y, label="wiener", method="wiener"),
        measure(pair, problem, x, y, label="one-shot", method="one-shot"),
        measure(
            pair,
            problem,
            x,
            y,
            label="D-IPG",
            method=methods.d_ipg(),
            noise_std=problem.noise_std,
            max_iterations=80,
        ),
    ]
    with torch.no_grad():
        clean = scaler.normalise(simulate(problem, x))
        surrogate = (torch.cat([pair.f(part) for part in x.split(256)]) - clean).square().mean()
    error = float(surrogate.sqrt())
    composition = float(dc.rjcp(pair, x, generator=torch.Generator().manual_seed(0)).mean())
    made = pair.provenance
    seconds = sum(made["seconds"].values())
    verdict = "below" if error < level else "ABOVE: the surrogate is not to be trusted to the noise"
    lines = [
        f"# {name}",
        "",
        f"Preset `{made['preset']}`, seed {made['seed']}, {problem.train_count} training rows; "
        f"trained in {seconds:.0f} s on {made['environment']['threads']} CPU thread(s) "
        f"(torch {made['environment']['torch']}). Made by `make zoo`, which also wrote this card.",
        "",
        f"Measured on {INSTANCES} noisy test instances (`dataset({SEED}).test`), none of which was "
        "seen in training:",
        "",
        "| method | RMSE | true residual / noise | median iterations |",
        "|---|---|---|---|",
    ]
    for row in rows:
        shown = row.summary()
        lines.append(
            f"| {row.method} | {shown['RMSE']:.5f} | {shown['true residual / noise']:.2f} "
            f"| {shown['iterations']:.0f} |"
        )
    lines += [
        "",
        f"Surrogate f: RMS error {error:.4f} in normalised units, noise level {level:.4f} "
        f"({verdict}). RJCP (Rademacher, mean form): {composition:.3f}.",
        "",
        "Epochs: " + ", ".join(f"{k} {v}" for k, v in made["epochs"].items()) + ". Seconds: "
        "" + ", ".join(f"{k} {v:.0f}" for k, v in made["seconds"].items()) + ".",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or dc.problems.names():
        make(chosen)
