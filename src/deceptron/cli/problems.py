"""``deceptron problems``: what ships, one problem in detail, or a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deceptron.cli.printing import say, table

if TYPE_CHECKING:
    from deceptron.problems import Problem


def problems(
    name: Annotated[
        str | None, typer.Argument(help="A problem to describe.  [default: list them all]")
    ] = None,
    show: Annotated[
        Path | None, typer.Option(help="Draw samples into this file (.png, .pdf or .svg).")
    ] = None,
    count: Annotated[int, typer.Option(help="How many samples to draw.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    family: Annotated[
        str, typer.Option(help="Which samples: prior (as in training), shifted or extreme.")
    ] = "prior",
) -> None:
    """List the problems, describe one, or draw samples of it."""
    from deceptron import problems as library

    if name is None:
        if show is not None:
            raise typer.BadParameter("--show needs the name of a problem")
        _list([library.get(known) for known in library.names()])
        return
    problem = library.get(name)
    if show is None:
        _describe(problem)
        return
    from deceptron.plot import plot_problem
    from deceptron.plot.files import check_picture_path, write_figure

    check_picture_path(show)
    path = write_figure(plot_problem(problem, count=count, seed=seed, family=family), show)
    say(f"{count} samples of {name} ({family}) drawn in {path}")


def _list(found: list[Problem]) -> None:
    heads = ("name", "equation", "latent", "observation", "noise", "paper")
    rows = [
        (p.name, p.equation, _shape(p.x_shape), _shape(p.y_shape), _noise(p.noise_std), p.paper)
        for p in found
    ]
    table("", heads, rows, prose=("equation", "paper"))


def _describe(problem: Problem) -> None:
    from dataclasses import fields

    say(f"{problem.name}: {problem.equation}")
    say(f"paper: {problem.paper}")
    say(f"latent {_shape(problem.x_shape)}, observation {_shape(problem.y_shape)}")
    rows = [
        (entry.name, _value(getattr(problem, entry.name)))
        for entry in fields(problem)
        if entry.init and entry.name not in ("name", "equation", "paper")
    ]
    table(
        f'fields, which dc.problems.get("{problem.name}", FIELD=...) changes',
        ("field", "value"),
        rows,
        prose=("value",),
    )


def _value(value: Any) -> str:
    extents = getattr(value, "shape", None)
    return str(value) if extents is None else f"tensor {_shape(tuple(extents))}"


def _shape(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents))


def _noise(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else "per component"
