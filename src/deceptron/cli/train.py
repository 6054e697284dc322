"""``deceptron train``: a pair in a run folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from deceptron.cli.printing import say


def train(
    problem: Annotated[
        str, typer.Argument(help="Name of a problem, or one of yours as FILE.py:NAME.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Run folder.  [default: runs/PROBLEM]")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="standard, paper, paper-reduced or smoke.")
    ] = "standard",
    seed: Annotated[int, typer.Option(help="Seed of data, weights and batches.")] = 7,
    jcp: Annotated[bool, typer.Option(help="Include the Jacobian composition penalty.")] = True,
    both: Annotated[bool, typer.Option(help="Train with JCP and without, and keep both.")] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(help="Run folder whose first two stages are reused.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue a run that was interrupted.")] = True,
    tensorboard: Annotated[bool, typer.Option(help="Write scalars for TensorBoard.")] = False,
    device: Annotated[str, typer.Option(help="Device to train on.")] = "cpu",
) -> None:
    """Train a pair for a problem; run again to continue after an interruption."""
    from deceptron.core.checks import check_device
    from deceptron.plot import training_curves
    from deceptron.plot.files import write_figure
    from deceptron.train import train as train_pair
    from deceptron.user_code import find_problem, remember

    chosen = find_problem(problem)
    folder = Path("runs") / chosen.name if out is None else out
    pair = train_pair(
        chosen,
        preset,
        folder,
        seed=seed,
        jcp=jcp,
        both=both,
        start_from=start_from,
        resume=resume,
        tensorboard=tensorboard,
        device=check_device(device),
    )
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] != "0":
        return  # one of several processes that torchrun started; the first one speaks
    remember(folder, problem)
    curves = write_figure(training_curves(folder), folder / "curves.png", dpi=110)
    seconds = sum(pair.provenance["seconds"].values())
    say(
        f"{problem}, preset {preset}: {seconds:.0f} s of training; pair in "
        f"{folder / 'pair.safetensors'}, curves in {curves}"
    )
    say(f"verdict: {pair.verdict}")
    asks = chosen.has_simulator and pair.calibration.doubtful(pair.noise_level)
    run, option = shlex.quote(str(folder)), " --simulator" if asks else ""
    say(f"next: deceptron solve {run} y.npy -o x.zarr{option}")
