"""``python -m deceptron_paper study | report``; a mistake is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

_SHOWN = 10  # missing parts that are printed
_NAMES = (
    "`study quick` takes minutes, `study full` and `study guarded` an hour each; a TOML file "
    "describes one of your own"
)


def study(asked: argparse.Namespace) -> None:
    """Run a study; run it again to continue after an interruption."""
    from deceptron.core import WorkFailed
    from deceptron.work import progress
    from deceptron_paper.study import get_study, run_study

    chosen = get_study(asked.name).restricted(
        problems=asked.problems, methods=asked.methods, seeds=asked.seeds
    )
    if asked.train:
        chosen = replace(chosen, missing_models="train")
    folder = asked.out or Path("runs") / "study" / chosen.name
    with progress(f"study {chosen.name}", unit="done") as show:
        summary = run_study(
            chosen,
            folder,
            runs=asked.runs,
            executor=asked.engine,
            workers=2 if asked.workers is None and asked.engine == "local" else asked.workers,
            address=asked.address,
            watch=lambda phase, done, total: show(done, total, phase),
        )
    earlier = f" ({summary.earlier} from an earlier run)" if summary.earlier else ""
    print(f"{summary.done} of {summary.planned} cells{earlier} in {folder}")
    for why, count in summary.absent.items():
        print(f"{count} left out: {why}")
    if summary.failed:
        raise WorkFailed(f"{summary.failed} of {summary.planned} cells failed: run this again")


def report(asked: argparse.Namespace) -> None:
    """Make every table and figure of a study, and a page to read them on, from its records."""
    from deceptron_paper.report import report_study

    written = report_study(asked.run, asked.out)
    print(f"{written.tables} tables and {written.figures} figures; read {written.page}")
    for sentence in written.missing[:_SHOWN]:
        print(f"missing: {sentence}")
    if len(written.missing) > _SHOWN:
        print(f"and {len(written.missing) - _SHOWN} more, named on the page")


class _Help(argparse.HelpFormatter):
    """Breaks no name: not at its hyphens, and not in a narrow terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=shutil.get_terminal_size().columns - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in self._split_lines(text, width))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    for word in _words(text):
        if not word.isdecimal():
            raise argparse.ArgumentTypeError(f"must be whole numbers; got {word!r}")
    return [int(word) for word in _words(text)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m deceptron_paper", formatter_class=_Help)
    commands = parser.add_subparsers(required=True, metavar="study | report")

    def command(do: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        made = commands.add_parser(
            do.__name__, description=do.__doc__, help=do.__doc__, formatter_class=_Help
        )
        made.set_defaults(do=do)
        return made

    add = command(study).add_argument
    add("name", nargs="?", metavar="NAME", help=_NAMES)
    add("--quick", action="store_true", help="The same as the name quick.")
    add("-o", "--out", type=Path, help="Folder of records; by default runs/study/NAME.")
    add("--problems", type=_words, help="Only these problems, separated by commas.")
    add("--methods", type=_words, help="Only these methods, separated by commas.")
    add("--seeds", type=_numbers, help="Only these seeds, separated by commas.")
    add("--engine", default="local", help="Where to run: local (processes here) or ray.")
    add("--workers", type=int, help="Processes; by default 2, with Ray the whole cluster.")
    add("--address", help="Address of a running Ray cluster.")
    add("--runs", type=Path, default=Path("runs"), help="Where trained pairs are; default runs.")
    add("--train", action="store_true", help="Train the pairs that are missing; takes hours.")

    add = command(report).add_argument
    add("run", type=Path, metavar="RUN", help="A folder of records that a study wrote.")
    add("-o", "--out", type=Path, help="Folder to write; by default RUN/report.")
    return parser


def main() -> None:
    """Parse, call, print."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a log in ASCII gets question marks
    parser = _parser()
    asked = parser.parse_args()
    if asked.do is study:
        if asked.quick and asked.name not in (None, "quick"):
            parser.error(f"--quick is a study of its own; leave out {asked.name!r}")
        asked.name = "quick" if asked.quick else asked.name
        if asked.name is None:
            parser.error(f"a study needs a name: {_NAMES}")
    from deceptron import DeceptronError

    try:
        asked.do(asked)
    except DeceptronError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: run it again to continue", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
