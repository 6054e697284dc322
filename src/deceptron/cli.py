"""The command line: parse, call, print; a user's mistake is one sentence, not a traceback."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table

# What needs torch is imported by the command that needs it: help takes a fraction of a second.
import deceptron as dc

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(
    help="Solve streams of nonlinear inverse problems with learned local inverse geometry.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_ENGINE = "Who does the work: local (processes of this machine) or ray; docs/clusters.md."
_ADDRESS = "Of a Ray cluster that runs already."
_DEMO = ("heat-1d", "darcy-2d", "navier-stokes-2d")
_SHOWN = 10  # missing parts of a report that are printed


@app.callback()
def _root() -> None:
    """Solve streams of nonlinear inverse problems."""


@app.command()
def problems(
    name: Annotated[str | None, typer.Argument(help="One problem in detail.")] = None,
    show: Annotated[
        Path | None, typer.Option(help="Draw samples into this file (.png, .pdf or .svg).")
    ] = None,
    count: Annotated[int, typer.Option(help="How many samples to draw.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    family: Annotated[str, typer.Option(help="prior, shifted or extreme.")] = "prior",
) -> None:
    """List the problems, describe one, or draw samples of it."""
    console = Console()
    if name is None:
        if show is not None:
            raise typer.BadParameter("--show needs the name of a problem")
        console.print(_overview())
        return
    problem = dc.problems.get(name)
    if show is None:
        _describe(problem, console)
        return
    from deceptron.report import draw_problem  # matplotlib takes a second to import

    path = draw_problem(problem, show, count=count, seed=seed, family=family)
    console.print(f"{count} samples of {name} ({family}) drawn in {path}", highlight=False)


@app.command()
def train(
    problem: Annotated[
        str, typer.Argument(help="Name of a problem, or where one of yours is: mine.py:problem.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Run folder.  [default: runs/PROBLEM]")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="standard, paper, paper-reduced or smoke.")
    ] = "standard",
    seed: Annotated[int, typer.Option(help="Of data, weights and batches.")] = 7,
    jcp: Annotated[bool, typer.Option(help="Include the Jacobian composition penalty.")] = True,
    both: Annotated[bool, typer.Option(help="Train stage 3 with and without JCP.")] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a run whose stages 1 and 2 are taken over.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run that the folder holds.")] = True,
    tensorboard: Annotated[bool, typer.Option(help="Write scalars for TensorBoard.")] = False,
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
) -> None:
    """Train a pair in a run folder; run again to continue after an interruption."""
    from deceptron.core.checks import check_device
    from deceptron.report.curves import draw
    from deceptron.user_code import find_problem, remember

    chosen = find_problem(problem)
    folder = Path("runs") / chosen.name if out is None else out
    pair = dc.train(
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
    if os.environ.get("RANK", "0") != "0":
        return  # one of several processes that torchrun started; the first one speaks
    remember(folder, problem)
    curves = draw(folder)
    seconds = sum(pair.provenance["seconds"].values())
    Console().print(
        f"{problem}, preset {preset}: {seconds:.0f} s of training; pair in "
        f"{folder / 'pair.safetensors'}, curves in {curves}",
        highlight=False,
    )
    Console().print(f"verdict: {pair.verdict}", highlight=False)


@app.command()
def solve(
    model: Annotated[
        str,
        typer.Argument(
            help="A model that ships, named like its problem (see `problems`), or a run folder."
        ),
    ],
    observations: Annotated[
        Path, typer.Argument(help="Rows of observations: .npy, .npz, .h5, .zarr or .nc.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Result: .zarr, .npz, .h5 or .npy.")
    ],
    method: Annotated[
        str, typer.Option(help="Which solver; docs/solving.md lists them.")
    ] = "guarded",
    noise_std: Annotated[
        float | None, typer.Option(help="Noise of the observations; rows stop at its level.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Stop at this RMS residual, normalised units.")
    ] = None,
    relative_tolerance: Annotated[
        float | None, typer.Option(help="Stop at this fraction of the first residual.")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Steps a row may take.")] = None,
    array: Annotated[str, typer.Option(help="Name of the array in files of several.")] = "y",
    error_bars: Annotated[bool, typer.Option(help="Write std, where the pair knows it.")] = True,
    chunk_rows: Annotated[
        int | None, typer.Option(help="Rows in memory at a time.  [default: a mebibyte of y]")
    ] = None,
    engine: Annotated[str, typer.Option(help=_ENGINE)] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes, of one thread each.  [default: this one; all of a Ray cluster]"
        ),
    ] = None,
    address: Annotated[str | None, typer.Option(help=_ADDRESS)] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing result.")] = False,
    simulator: Annotated[
        str | None,
        typer.Option(
            metavar="[FILE.py:NAME]",
            help="Solve on the true simulator: the problem's own, or one of yours.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute.")] = "cpu",
) -> None:
    """Solve a file of observations, in chunks; run again to continue after an interruption.

    The result holds x, std and trust where the pair knows them, status, reason, iterations,
    residual and cost (.npy: x alone).
    """
    from deceptron.core.checks import check_device
    from deceptron.core.status import Reason
    from deceptron.user_code import find_forward

    pair = dc.load(model).to(check_device(device))
    console = Console()
    physics: dict[str, Any] = {}
    if simulator is not None:
        found = find_forward(simulator, model=model, name=pair.name)
        physics = {"forward": found.simulate, "differentiable": found.differentiable}
        console.print(f"solving on the simulator {found.words}", highlight=False, markup=False)
    here = engine == "local" and workers in (None, 1) and address is None
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("solving", total=None)
        summary = dc.solve_file(
            pair,
            observations,
            output,
            executor=None if here else engine,
            workers=None if here else workers,
            address=address,
            array=array,
            error_bars=error_bars,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            device=device,
            on_chunk=lambda done, rows: bar.update(task, completed=done, total=rows),
            method=method,
            noise_std=noise_std,
            tolerance=tolerance,
            relative_tolerance=relative_tolerance,
            max_iterations=max_iterations,
            **physics,
        )
    ends = ", ".join(f"{count} {name}" for name, count in summary.statuses.items())
    earlier = f" ({summary.resumed} from an earlier run)" if summary.resumed else ""
    console.print(f"{summary.rows} rows{earlier}: {ends}; written to {output}", highlight=False)
    for name, count in summary.reasons.items():
        console.print(f"  {count:>8} {Reason[name].words}", highlight=False, markup=False)


@app.command()
def study(
    name: Annotated[
        str | None,
        typer.Argument(
            help="full, quick, guarded, or a TOML file (docs/study.md).  [default: full]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as the name quick.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder of records.  [default: runs/study/NAME]"),
    ] = None,
    problems: Annotated[
        str | None, typer.Option(help="Only these problems, separated by commas.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Only these methods, separated by commas.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Only these seeds, separated by commas.")
    ] = None,
    engine: Annotated[str, typer.Option(help=_ENGINE)] = "local",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes, of one thread each.  [default: 2; all of a Ray cluster]"),
    ] = None,
    address: Annotated[str | None, typer.Option(help=_ADDRESS)] = None,
    runs: Annotated[Path, typer.Option(help="Where trained pairs are looked for.")] = Path("runs"),
    train_missing: Annotated[
        bool, typer.Option("--train", help="Train the pairs that are missing: hours, for some.")
    ] = False,
) -> None:
    """Run a grid of experiments; run again to continue after an interruption.

    The records are for `deceptron report`. Cells that are finished are not done again.
    """
    from deceptron.core.errors import WorkFailed
    from deceptron.study import get_study, run_study

    if quick and name not in (None, "quick"):
        raise typer.BadParameter(f"--quick is a study of its own; leave out {name!r}")
    chosen = get_study("quick" if quick else name or "full").restricted(
        problems=_words(problems),
        methods=_words(methods),
        seeds=None if seeds is None else [_whole("--seeds", word) for word in _words(seeds) or ()],
    )
    if train_missing:
        chosen = replace(chosen, missing_models="train")
    folder = Path("runs") / "study" / chosen.name if out is None else out
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {phase: bar.add_task(phase, total=None) for phase in ("models", "cells")}
        summary = run_study(
            chosen,
            folder,
            runs=runs,
            executor=engine,
            workers=2 if workers is None and address is None else workers,
            address=address,
            watch=lambda phase, done, total: bar.update(tasks[phase], completed=done, total=total),
        )
    earlier = f" ({summary.earlier} from an earlier run)" if summary.earlier else ""
    console.print(
        f"{summary.done} of {summary.planned} cells{earlier} in {folder}", highlight=False
    )
    for why, count in summary.absent.items():
        console.print(f"{count} left out: {why}", highlight=False, markup=False)
    if summary.failed:
        raise WorkFailed(f"{summary.failed} of {summary.planned} cells failed: run this again")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder of records that `study` wrote.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write.  [default: RUN/report]")
    ] = None,
) -> None:
    """Make every table and figure of a study, and a page to read them on, from its records."""
    from deceptron.report.study import report_study  # matplotlib takes a second to import

    written = report_study(run, out)
    console = Console()
    console.print(
        f"{written.tables} tables and {written.figures} figures; read {written.page}",
        highlight=False,
        markup=False,
    )
    for sentence in written.missing[:_SHOWN]:
        console.print(f"missing: {sentence}", highlight=False, markup=False)
    if len(written.missing) > _SHOWN:
        rest = len(written.missing) - _SHOWN
        console.print(f"and {rest} more, named on the page", highlight=False)


@app.command()
def demo(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Problems to show.  [default: {' '.join(_DEMO)}]"),
    ] = None,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture to draw.")] = Path(
        "demo.png"
    ),
    count: Annotated[int, typer.Option(help="Fresh instances of each problem.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the instances.")] = 2026,
) -> None:
    """Solve fresh instances of some problems with the models that ship, and draw the results."""
    from deceptron.report import Example, draw_reconstructions
    from deceptron.report.drawing import check_picture_path
    from deceptron.study import run_demo

    check_picture_path(output)
    console = Console()
    examples = []
    for name in names or _DEMO:
        shown = run_demo(name, count=count, seed=seed)
        title = f"{name}: {count} fresh noisy instances, model that ships"
        console.print(_table(title, [entry.summary() for entry in shown.measurements]))
        first = {e.method: (e.solution.x[0], float(e.rmse[0])) for e in shown.measurements}
        examples.append(Example(shown.problem, shown.x[0], shown.y[0], first))
    draw_reconstructions(examples, output)
    console.print(f"truth, observation and reconstructions drawn in {output}", highlight=False)


def main() -> None:
    """Entry point of the ``deceptron`` command."""
    try:
        app(_default_simulator(sys.argv[1:]))
    except SystemExit:
        raise  # before the next line loads the library to compare
    except dc.DeceptronError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _default_simulator(arguments: list[str]) -> list[str]:
    """``--simulator`` alone means the problem's own."""
    filled = []
    for k, word in enumerate(arguments):
        filled.append(word)
        if word == "--simulator" and ".py:" not in "".join(arguments[k + 1 : k + 2]):
            filled.append("own")
    return filled


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _whole(option: str, word: str) -> int:
    if not word.isdecimal():
        raise typer.BadParameter(f"{option} must be whole numbers; got {word!r}")
    return int(word)


def _table(title: str, rows: list[dict[str, str | float]]) -> Table:
    first, *others = rows[0]
    table = Table(Column(first, no_wrap=True), *others, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else v for v in row.values()))
    return table


def _overview() -> Table:
    table = Table(show_lines=True)
    for column in ("name", "equation", "latent", "observation", "noise", "paper"):
        table.add_column(column, overflow="fold", no_wrap=column in ("latent", "observation"))
    for name in dc.problems.names():
        problem = dc.problems.get(name)
        table.add_row(
            name,
            problem.equation,
            _shape(problem.x_shape),
            _shape(problem.y_shape),
            _noise(problem.noise_std),
            problem.paper,
        )
    return table


def _describe(problem: dc.problems.Problem, console: Console) -> None:
    console.print(f"{problem.name}: {problem.equation}", highlight=False, markup=False)
    console.print(f"paper: {problem.paper}", highlight=False, markup=False)
    console.print(
        f"latent {_shape(problem.x_shape)}, observation {_shape(problem.y_shape)}", highlight=False
    )
    table = Table("field", "value", title="fields, each can be overridden", title_justify="left")
    for entry in fields(problem):
        if entry.init and entry.name not in ("name", "equation", "paper"):
            table.add_row(entry.name, _value(getattr(problem, entry.name)))
    console.print(table)


def _value(value: Any) -> str:
    return str(value) if not hasattr(value, "shape") else f"tensor {_shape(tuple(value.shape))}"


def _noise(value: float | Tensor) -> str:
    return "per component" if hasattr(value, "shape") else f"{value:g}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


if __name__ == "__main__":
    main()
