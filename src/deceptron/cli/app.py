"""The commands put together, and what becomes of their errors."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from deceptron.cli.demo import demo
from deceptron.cli.helping import Command, Group
from deceptron.cli.problems import problems
from deceptron.cli.solve import solve
from deceptron.cli.train import train
from deceptron.cli.view import view

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
EXIT_CODES = """Exit codes: 0, done (the output says how single rows ended); 1, a crash: please
report it; 2, wrong input, a bad file or failed work, explained in one sentence; 130, interrupted:
run most commands again and they continue where they were."""

app = typer.Typer(
    cls=Group,
    help="Solve many inverse problems that share one simulator: train a pair of networks for it, "
    "then solve.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (problems, demo, train, solve, view):
    # Their first line whole; typer would cut it.
    app.command(cls=Command, short_help=str(_command.__doc__).partition("\n")[0])(_command)


def _show_version(asked: bool) -> None:
    if asked:
        import deceptron

        typer.echo(f"deceptron {deceptron.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Solve many inverse problems that share one simulator."""


def main() -> None:
    """Entry point of the ``deceptron`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a log in ASCII gets question marks
    if (name := "".join(sys.argv[1:2])) in ("study", "report"):
        _fail(f"`deceptron {name}` is `python -m deceptron_paper {name}` now: pip install ./paper")
    try:
        app(_default_simulator(sys.argv[1:]), prog_name="deceptron")
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        # The output itself; what is left of it would be a traceback when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write the output: {error.strerror}")
    except Exception as error:
        from deceptron.core.errors import DeceptronError

        if not isinstance(error, DeceptronError):
            raise
        _fail(str(error))


def _fail(words: str) -> NoReturn:
    print(f"error: {words}", file=sys.stderr)
    sys.exit(2)


def _default_simulator(arguments: list[str]) -> list[str]:
    """``--simulator`` alone means the problem's own."""
    filled = []
    for k, word in enumerate(arguments):
        filled.append(word)
        if word == "--simulator" and ".py" not in "".join(arguments[k + 1 : k + 2]):
            filled.append("own")
    return filled
