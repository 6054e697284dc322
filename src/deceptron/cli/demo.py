"""``deceptron demo``: what the models that ship do, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deceptron.cli.printing import say, table

DEMO_PROBLEMS = ("heat-1d", "darcy-2d", "navier-stokes-2d")


def demo(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Problems to show.  [default: {' '.join(DEMO_PROBLEMS)}]"),
    ] = None,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture to draw.")] = Path(
        "demo.png"
    ),
    count: Annotated[int, typer.Option(help="Fresh instances of each problem.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the instances.")] = 2026,
) -> None:
    """Solve fresh instances of some problems with the pairs that ship, and draw the answers."""
    from deceptron.demo import run_demo
    from deceptron.plot.files import check_picture_path, write_figure
    from deceptron.plot.reconstructions import Example, plot_reconstructions

    check_picture_path(output)
    examples = []
    for name in names or DEMO_PROBLEMS:
        shown = run_demo(name, count=count, seed=seed)
        lines = [entry.summary() for entry in shown.measurements]
        cells = [
            [f"{value:.3g}" if isinstance(value, float) else value for value in line.values()]
            for line in lines
        ]
        table(f"{name}: {count} fresh noisy instances", list(lines[0]), cells)
        first = {e.method: (e.solution.x[0], float(e.rmse[0])) for e in shown.measurements}
        examples.append(Example(shown.problem, shown.x[0], shown.y[0], first))
    methods = list(examples[0].reconstructions)
    width = 2.0 * (2.7 + len(methods))
    figure = plot_reconstructions(examples, methods, width=width, font=9, error="RMSE {:.3g}")
    write_figure(figure, output)
    say("RMSE: error of the answer. Residual / noise: near 1, the answer agrees with the data.")
    say(f"truth, observation and answers drawn in {output}")
