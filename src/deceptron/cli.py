"""The command line: parse, call, print; a user's mistake is one sentence, not a traceback."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from deceptron import problems as library
from deceptron.core.errors import DeceptronError

app = typer.Typer(
    help="Solve streams of nonlinear inverse problems with learned local inverse geometry.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    """Keeps commands as commands while there is only one."""


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
    problem = library.get(name)
    if show is None:
        _describe(problem, console)
        return
    from deceptron.report import draw_problem  # matplotlib takes a second to import

    path = draw_problem(problem, show, count=count, seed=seed, family=family)
    console.print(f"{count} samples of {name} ({family}) drawn in {path}", highlight=False)


def main() -> None:
    """Entry point of the ``deceptron`` command."""
    try:
        app()
    except DeceptronError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _overview() -> Table:
    table = Table(show_lines=True)
    for column in ("name", "equation", "latent", "observation", "noise", "paper"):
        table.add_column(column, overflow="fold", no_wrap=column in ("latent", "observation"))
    for name in library.names():
        problem = library.get(name)
        table.add_row(
            name,
            problem.equation,
            _shape(problem.x_shape),
            _shape(problem.y_shape),
            _noise(problem.noise_std),
            problem.paper,
        )
    return table


def _describe(problem: library.Problem, console: Console) -> None:
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
    return f"tensor {_shape(tuple(value.shape))}" if isinstance(value, Tensor) else str(value)


def _noise(value: float | Tensor) -> str:
    return "per component" if isinstance(value, Tensor) else f"{value:g}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


if __name__ == "__main__":
    main()
