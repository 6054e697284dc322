"""``deceptron study``: a grid of experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deceptron.cli.options import ADDRESS, ENGINE, whole_numbers, words
from deceptron.cli.printing import say


def study(
    name: Annotated[
        str | None,
        typer.Argument(
            help="quick (minutes), full (an hour), guarded (an hour), or a TOML file.",
            show_default=False,
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
    engine: Annotated[str, typer.Option(help=ENGINE)] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes, of one thread each.  [default: 2; with Ray, the whole cluster]"
        ),
    ] = None,
    address: Annotated[str | None, typer.Option(help=ADDRESS)] = None,
    runs: Annotated[Path, typer.Option(help="Where trained pairs are looked for.")] = Path("runs"),
    train_missing: Annotated[
        bool, typer.Option("--train", help="Train the pairs that are missing; takes hours.")
    ] = False,
) -> None:
    """Compare methods on many problems; run again to continue after an interruption.

    Writes records, from which `deceptron report` makes tables, figures and a page.
    """
    if quick and name not in (None, "quick"):
        raise typer.BadParameter(f"--quick is a study of its own; leave out {name!r}")
    if name is None and not quick:
        raise typer.BadParameter(
            "a study needs a name: `deceptron study quick` takes minutes, `deceptron study full` "
            "and `deceptron study guarded` an hour each; a TOML file describes one of your own"
        )
    from deceptron.core.errors import WorkFailed
    from deceptron.core.progress import progress
    from deceptron.study import get_study, run_study

    chosen = get_study("quick" if quick else str(name)).restricted(
        problems=words(problems),
        methods=words(methods),
        seeds=whole_numbers("--seeds", seeds),
    )
    if train_missing:
        chosen = replace(chosen, missing_models="train")
    folder = Path("runs") / "study" / chosen.name if out is None else out
    with progress(f"study {chosen.name}", unit="done") as show:
        summary = run_study(
            chosen,
            folder,
            runs=runs,
            executor=engine,
            workers=2 if workers is None and engine == "local" else workers,
            address=address,
            watch=lambda phase, done, total: show(done, total, phase),
        )
    earlier = f" ({summary.earlier} from an earlier run)" if summary.earlier else ""
    say(f"{summary.done} of {summary.planned} cells{earlier} in {folder}")
    for why, count in summary.absent.items():
        say(f"{count} left out: {why}")
    if summary.failed:
        raise WorkFailed(f"{summary.failed} of {summary.planned} cells failed: run this again")
