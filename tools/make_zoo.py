"""Train the models that ship with the package and write a card for each: ``make zoo``.

Resumable: a model that is trained already is only measured again. Name problems on the command
line to make only theirs. With ``--calibrate`` the weights that ship are kept: they are calibrated
and measured again, for example because what a pair knows about itself has changed. With ``--trust``
only their limits of trust are fitted again, which changes no answer and no card.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deceptron as dc
from benchmarks.quality import Quality, assess
from benchmarks.standard import INSTANCES, trained
from deceptron.maps import Wiener
from deceptron.measure import Measurement, measure
from deceptron.train import calibrate
from deceptron.train.calibration import calibrate_trust

SEED = 7
LIMIT_BYTES = 4 * 2**20
ZOO = Path(dc.__file__).parent / "zoo"
DENSE = ", `dense ridge` the full matrix from the same training pairs, which is too large to ship"


def fit_trust_again(name: str) -> None:
    problem = dc.problems.get(name)
    pair = calibrate_trust(dc.load(name), problem, problem.dataset(SEED))
    print(dc.save(pair, ZOO / f"{name}.safetensors").name, pair.calibration.trust)


def make(name: str, *, calibrate_only: bool) -> None:
    problem = dc.problems.get(name, test_count=INSTANCES)
    data = problem.dataset(SEED)
    if calibrate_only:
        pair = calibrate(dc.load(name), problem, data)
    else:
        pair, _ = trained(problem, SEED)
    ZOO.mkdir(exist_ok=True)
    path = dc.save(pair, ZOO / f"{name}.safetensors")
    size = path.stat().st_size
    if size > LIMIT_BYTES:
        sys.exit(f"{name}: {size} bytes are more than a model that ships may have")
    x, y = data.test.x, data.test.y
    linear = measure(pair, problem, x, y, label="wiener", method="wiener")
    guarded = measure(
        pair,
        problem,
        x,
        y,
        label="guarded",
        method="guarded",
        forward=problem.simulate,
        noise_std=problem.noise_std,
    )
    (ZOO / f"{name}.md").write_text(card(pair, assess(pair, problem, data), linear, guarded))
    print(f"{name}: {size / 2**20:.2f} MiB")


def card(pair: dc.Deceptron, quality: Quality, linear: Measurement, guarded: Measurement) -> str:
    made = pair.provenance
    environment = made["environment"]
    verdict = (
        "below it"
        if quality.surrogate_below_noise
        else "above it, which biases answers found with f alone"
    )
    stages = [
        f"{stage} {made['epochs'][stage]} epoch(s) in {made['seconds'][stage]:.0f} s"
        for stage in ("forward", "reverse", "jcp")
    ]
    lines = [
        f"# {pair.name}",
        "",
        f"Preset `{made['preset']}`, seed {made['seed']}, {made['fields']['train_count']} training "
        f"rows. Training: {', '.join(stages)}, on {environment['threads']} CPU thread(s), torch "
        f"{environment['torch']}. Made by `make zoo`, which also measured what follows.",
        "",
        f"On the noisy test instances of `dc.problems.get({pair.name!r}, test_count={INSTANCES})"
        f".dataset({made['seed']})`:",
        "",
        "| method | mean RMSE | true residual / noise | median iterations |",
        "|---|---|---|---|",
    ]
    found = quality.measurements
    dense = isinstance(pair.wiener, Wiener)
    rows = {"wiener": linear} | ({} if dense else {"dense ridge": found["wiener"]})
    rows |= {"one-shot": found["one-shot"], "D-IPG": found["d-ipg"]}
    rows |= {"guarded, true simulator": guarded}
    for label, row in rows.items():
        shown = row.summary()
        lines.append(
            f"| {label} | {shown['RMSE']:.5f} | {shown['true residual / noise']:.2f} "
            f"| {shown['iterations']:.0f} |"
        )
    lines += [
        "",
        f"Surrogate f: RMS error {quality.surrogate_error:.4f} in normalised units; the noise "
        f"level is {quality.noise_level:.4f}, so the error is {verdict}. RJCP (Rademacher, mean "
        f"form): {quality.rjcp:.3f}.",
        "",
        f"**Verdict:** {pair.verdict}.",
        "",
        f"`wiener` is the closed-form linear estimate in the file{'' if dense else DENSE}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    for chosen in names or dc.problems.names():
        if "--trust" in sys.argv:
            fit_trust_again(chosen)
        else:
            make(chosen, calibrate_only="--calibrate" in sys.argv)
