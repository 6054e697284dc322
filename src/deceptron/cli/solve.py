"""``deceptron solve``: a file of observations in, a file of answers out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deceptron.cli.printing import say

if TYPE_CHECKING:
    from deceptron.solve.stream import FileSummary


def solve(
    model: Annotated[
        str,
        typer.Argument(
            help="A pair that ships, by the name of its problem (see `problems`), a run folder, or "
            "a .safetensors file."
        ),
    ],
    observations: Annotated[
        Path, typer.Argument(help="Rows of observations: .npy, .npz, .h5, .zarr, .nc or .csv.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Result: .zarr, .npz, .h5 or .npy.")
    ],
    method: Annotated[
        str, typer.Option(help="Solver, for example guarded, one-shot or lm.")
    ] = "guarded",
    noise_std: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise.  [default: that of the training]"),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Stop at this residual (RMS, normalised units).")
    ] = None,
    relative_tolerance: Annotated[
        float | None, typer.Option(help="Stop at this share of the initial residual.")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Steps a row may take.")] = None,
    array: Annotated[str, typer.Option(help="Name of the array, if the file has several.")] = "y",
    error_bars: Annotated[
        bool, typer.Option(help="Write std; costs more than most solves.")
    ] = True,
    drop_outliers: Annotated[
        bool, typer.Option("--drop-outliers", help="Leave out sensors that the others contradict.")
    ] = False,
    chunk_rows: Annotated[
        int | None, typer.Option(help="Rows in memory at a time.  [default: a mebibyte of y]")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to run: local (processes on this machine) or ray.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes, of one thread each.  [default: 1; with Ray, the whole cluster]"
        ),
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing result.")] = False,
    simulator: Annotated[
        str | None,
        typer.Option(
            metavar="[FILE.py:NAME]",
            help="Solve on the true simulator: the problem's own, or one of yours.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device to compute on.")] = "cpu",
) -> None:
    """Solve a file of observations; run again to continue after an interruption.

    The result holds the answers x, their error bars std, trust, how each row ended and what it cost
    (.npy: x alone). Large files are solved in chunks.
    """
    from deceptron import maps
    from deceptron.core.checks import check_device
    from deceptron.core.progress import progress
    from deceptron.solve import solve_file
    from deceptron.user_code import find_forward

    pair = maps.load(model).to(check_device(device))
    physics: dict[str, Any] = {}
    if simulator is not None:
        found = find_forward(simulator, model=model, name=pair.name)
        physics = {"forward": found.simulate, "differentiable": found.differentiable}
        say(f"solving on the simulator {found.words}")
    here = engine == "local" and workers in (None, 1) and address is None
    with progress("solving") as show:
        summary = solve_file(
            pair,
            observations,
            output,
            executor=None if here else engine,
            workers=None if here else workers,
            address=address,
            array=array,
            error_bars=error_bars,
            drop_outliers=drop_outliers,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            device=device,
            on_chunk=lambda done, rows: show(done, rows, ""),
            method=method,
            noise_std=noise_std,
            tolerance=tolerance,
            relative_tolerance=relative_tolerance,
            max_iterations=max_iterations,
            **physics,
        )
    _tell(summary, output)


def _tell(summary: FileSummary, output: Path) -> None:
    """How many rows ended how, why, and what to do about those that did not converge."""
    from deceptron.core.status import Reason, Status

    ends = ", ".join(f"{count} {name}" for name, count in summary.statuses.items())
    earlier = f" ({summary.resumed} from an earlier run)" if summary.resumed else ""
    say(f"{summary.rows} rows{earlier}: {ends}; answers in {output}")
    if summary.flagged:
        say(
            f"{summary.flagged} rows flagged by trust as unlike the training data; 1 in 20 is by "
            "chance, many more mean wrong units, noise or sensors"
        )
    if summary.dropped:
        say(f"{summary.dropped} sensor values left out as outliers (column dropped)")
    told = [f"  {count:>8} {Reason[name].words}" for name, count in summary.reasons.items()]
    told += [
        f"{name}: {Status[name].advice}"
        for name in summary.statuses
        if Status[name] is not Status.CONVERGED
    ]
    for sentence in told:
        say(sentence)
    if "forward=" in "".join(told):
        say(
            "(Here forward= is --simulator, noise_std is --noise-std, and over_noise is a column "
            "of the result.)"
        )
    if output.suffix.lower() != ".npy":
        say(f"next: deceptron view {shlex.quote(str(output))}")
