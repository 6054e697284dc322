"""Any program that reads and writes ``.npy`` files as a simulator: one run a row, in parallel."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deceptron.core.checks import check_count, check_range
from deceptron.core.errors import ConfigError
from deceptron.simulators.engines import LONGEST, Array, Threads
from deceptron.simulators.simulator import Simulator

# Characters of what a program wrote to standard error that a reason quotes.
QUOTED = 200


def from_command(
    command: Sequence[str | os.PathLike[str]],
    *,
    vjp: Sequence[str | os.PathLike[str]] | None = None,
    jvp: Sequence[str | os.PathLike[str]] | None = None,
    workers: int = 1,
    timeout: float = 60.0,
    environment: Mapping[str, str] | None = None,
    accuracy: float = 1e-14,
    scale: float = 1.0,
) -> Simulator:
    """A simulator from a program, run once a row in a temporary folder of its own.

    A run that ends with another exit code than 0, takes too long, or leaves no whole file is that
    row's failure, with the reason in ``failures``.

    Args:
        command: the program and its arguments, no shell. In them ``{input}`` stands for a file with
            one row of x (float64, ``.npy``) and ``{output}`` for the file to write, one row of y;
            without them the program finds ``input.npy`` in its working folder and leaves
            ``output.npy`` there.
        vjp: a command for ``J(x)' w``, with w in the file ``{vector}`` (``vector.npy``).
        jvp: a command for ``J(x) v``, likewise. As in ``wrap``, one of them is enough.
        workers: runs at a time.
        timeout: seconds a run may take; then it and all that it started is ended.
        environment: variables added to those of this process.
        accuracy: as in ``wrap``; a program that prints few digits needs it.
        scale: as in ``wrap``.
    """
    check_count("workers", workers)
    check_range("timeout", timeout, low=0.0, high=LONGEST, open_low=True)
    if environment is not None and not isinstance(environment, Mapping):
        raise ConfigError(f"environment must be a dictionary of texts; got {environment!r}")
    runs = {
        kind: _Run(_checked(kind, words), timeout, dict(environment or {}))
        for kind, words in (("command", command), ("vjp", vjp), ("jvp", jvp))
        if words is not None or kind == "command"
    }
    return Simulator(
        f"from_command({Path(runs['command'].words[0]).name})",
        Threads(workers),
        value=runs["command"],
        vjp=runs.get("vjp"),
        jvp=runs.get("jvp"),
        accuracy=accuracy,
        scale=scale,
    )


@dataclass(frozen=True)
class _Run:
    """One row through the program."""

    words: tuple[str, ...]
    timeout: float
    environment: dict[str, str]

    def __call__(self, x: Array, vector: Array | None = None) -> Array:
        with tempfile.TemporaryDirectory(prefix="deceptron-") as folder:
            files = {name: Path(folder) / f"{name}.npy" for name in ("input", "vector", "output")}
            np.save(files["input"], x)
            if vector is not None:
                np.save(files["vector"], vector)
            places = {f"{{{name}}}": str(path) for name, path in files.items()}
            self._run([_placed(word, places) for word in self.words], folder)
            return _read(files["output"])

    def _run(self, words: list[str], folder: str) -> None:
        environment = {**os.environ, **self.environment}
        # A file, not a pipe: a grandchild that keeps a pipe open would keep us waiting for it.
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    words,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise RuntimeError(f"cannot be run: {error.strerror or error}") from None
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"ran longer than timeout={self.timeout:g} s") from None
            finally:
                # Only while it is not yet reaped: after that its number may be another's.
                if process.returncode is None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if code:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().replace("\n", " ")
                words_of = f", saying {said[-QUOTED:]!r}" if said else ""
                raise RuntimeError(f"ended with exit code {code}{words_of}")


def _checked(kind: str, words: Sequence[str | os.PathLike[str]] | None) -> tuple[str, ...]:
    if isinstance(words, (str, bytes)) or not words:
        raise ConfigError(
            f"from_command({kind}=...) must be a list such as ['./program', '{{input}}', "
            f"'{{output}}']; got {words!r}"
        )
    try:
        first, *rest = (os.fspath(word) for word in words)
    except TypeError:
        raise ConfigError(f"from_command({kind}=...) must be words; got {words!r}") from None
    # Runs have another working folder; a relative path is meant from here.
    program = str(Path(first).absolute()) if os.sep in first else first
    return (program, *rest)


def _placed(word: str, places: dict[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word


def _read(path: Path) -> Array:
    if not path.is_file():  # a pipe would keep us waiting for ever
        raise RuntimeError(f"ended well but wrote no file {path.name}")
    try:
        found: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise RuntimeError(f"wrote a file that is not a whole .npy array: {error}") from None
    return found
