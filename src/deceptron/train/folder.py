"""A run on disk: settings, metrics, checkpoints; each file appears whole or not at all.

::

    config.json                     what was asked: problem, preset, seed, recipe
    environment.json                where it ran, and where it was resumed
    metrics.csv                     a line per epoch
    checkpoints/running.safetensors     the stage under way: weights, best weights, Adam's moments
    checkpoints/<stage>.safetensors     the selected weights of a stage that is done
    pair.safetensors                the result; the other branch, if trained, stands beside it

A stage's metrics also live in its checkpoint, so ``metrics.csv`` can be made again from them: a
run killed between two files resumes with each epoch once.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from deceptron.core.errors import CheckpointError, ConfigError
from deceptron.core.files import replacing, writing
from deceptron.core.folder import Folder, environment
from deceptron.core.identity import digest as core_digest
from deceptron.train.loop import COLUMNS, Row, StageState
from deceptron.train.settings import (
    FORMAT,
    VERSION,
    Config,
    difference,
    digest,
    read_config,
)

_KEY = "deceptron"
# Of a stage's state, what checkpoints hold as JSON, and as tensors.
_NUMBERS = ("epoch", "best_epoch", "best_measured", "rows", "setbacks")
_WEIGHTS = ("current", "optimiser", "best")


class RunFolder:
    """The files of one run; ``opened`` takes them for this process."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self._config = path, config
        self._checkpoints, self._metrics = path / "checkpoints", path / "metrics.csv"
        self._digest = digest(config)

    @contextmanager
    def opened(self, *, resume: bool, device: torch.device) -> Iterator[RunFolder]:
        """Take the folder for this run: new, or one with the same settings."""

        def check(config: Path) -> None:
            if not resume:
                raise ConfigError(
                    f"out={str(self.path)!r} already holds a run: pass resume=True to continue "
                    "it, or choose another folder"
                )
            self._digest = digest(_check_same(config, self._config))

        folder = Folder(self.path, "training process", "config.json", inner=("checkpoints",))
        with folder.taken(self._config, check=check):
            folder.note_environment(environment(device))
            yield self

    def file(self, name: str) -> Path:
        """A path in the folder."""
        return self.path / name

    def finished(self, stage: str) -> StageState | None:
        """The result of a stage that is done."""
        return self._read(stage, stage)

    def running(self, stage: str) -> StageState | None:
        """The last checkpoint, if it is of this stage."""
        return self._read("running", stage)

    def save_running(self, stage: str, state: StageState) -> None:
        """Write a checkpoint of the stage under way."""
        self._save("running", stage, state, _WEIGHTS)

    def save_finished(self, stage: str, state: StageState) -> None:
        """Write the selected weights of a stage; its last checkpoint is then of no use."""
        self._save(stage, stage, state, ("best",))
        self._checkpoint("running").unlink(missing_ok=True)

    def start_metrics(self, rows: list[Row]) -> None:
        """Write the epochs so far."""
        with replacing(self._metrics) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_shown(row) for row in rows)

    def add_metrics(self, row: Row) -> None:
        """Append one epoch."""
        with writing(self._metrics), open(self._metrics, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(_shown(row))

    def _checkpoint(self, name: str) -> Path:
        return self._checkpoints / f"{name}.safetensors"

    def _save(self, name: str, stage: str, state: StageState, weights: tuple[str, ...]) -> None:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "run": self._digest,
            "stage": stage,
            "best_score": state.best_score if state.best_score < float("inf") else None,
            **{key: getattr(state, key) for key in _NUMBERS},
        }
        # A clone for each: safetensors takes neither views nor tensors that share memory.
        tensors = {
            f"{part}.{key}": value.detach().cpu().clone().contiguous()
            for part in weights
            for key, value in getattr(state, part).items()
        }
        document["sha256"] = _checksum(document, tensors)
        with replacing(self._checkpoint(name)) as temporary:
            temporary.write_bytes(to_bytes(tensors, metadata={_KEY: json.dumps(document)}))

    def _read(self, name: str, stage: str) -> StageState | None:
        path = self._checkpoint(name)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                document = json.loads((file.metadata() or {})[_KEY])
                tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
            if document["format"] != FORMAT or document["version"] > VERSION:
                raise CheckpointError(
                    f"{path} is a {document['format']} of version {document['version']}; "
                    f"this library reads {FORMAT} up to version {VERSION}"
                )
            if document["run"] != self._digest:
                raise CheckpointError(
                    f"{path} belongs to a run with other settings: remove it to repeat its stage"
                )
            if document["stage"] != stage:
                return None
            # Files that are older than the checksum have none.
            if document.get("sha256", "") not in ("", _checksum(document, tensors)):
                raise ValueError("its checksum is not that of its content")
            score = document["best_score"]
            document.setdefault("setbacks", 0)  # as in files that are older than their count
            known: dict[str, Any] = {key: document[key] for key in _NUMBERS}
            known |= {part: _part(part, tensors) for part in _WEIGHTS}
            return StageState(best_score=float("inf") if score is None else score, **known)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}): remove it to repeat the work it held"
            ) from error


def early_stages(path: Path, config: Config) -> dict[str, StageState]:
    """Stages 1 and 2 of the run in ``path``, if they are what ``config`` would train."""
    found = read_config(path / "config.json")
    different = difference(found, config, early=True)
    if different is not None:
        name, old, new = different
        raise CheckpointError(
            f"start_from={str(path)!r} must agree in all that stages 1 and 2 depend on; its "
            f"{name} is {old!r}, this call's {new!r}"
        )
    source = RunFolder(path, found)
    states: dict[str, StageState] = {}
    for stage in ("forward", "reverse"):
        state = source.finished(stage)
        if state is None:
            raise CheckpointError(f"start_from={str(path)!r} has not finished stage {stage!r}")
        states[stage] = state
    return states


def _check_same(path: Path, wanted: Config) -> Config:
    """The settings of the run that the folder holds, if they are the wanted ones."""
    found = read_config(path)
    different = difference(found, wanted)
    if different is not None:
        name, old, new = different
        if name.endswith(".sha256"):
            raise CheckpointError(
                f"out={str(path.parent)!r} holds a run with other numbers in "
                f"{name.removesuffix('.sha256')}: other data, or another noise or bounds; choose "
                "another folder"
            )
        raise CheckpointError(
            f"out={str(path.parent)!r} holds a run with another {name}: it has {old!r}, this call "
            f"{new!r}; choose another folder"
        )
    return found


def _checksum(document: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    plain = {key: value for key, value in document.items() if key != "sha256"}
    return core_digest([json.loads(json.dumps(plain)), tensors])


def _shown(row: Row) -> Row:
    return {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}


def _part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
