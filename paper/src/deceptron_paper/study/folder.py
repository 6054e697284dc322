"""The writing side of a study's records: a cell is there whole or not at all.

Beside the records (see ``records``) the folder keeps ``models/``: the pairs that were used, copied
so that a resumed study solves with the same weights, and a JSON file for each.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from deceptron import CheckpointError, ConfigError
from deceptron.work import (
    Folder,
    differing,
    read_json,
    replacing,
    temporary_for,
    write_json,
    writing,
)
from deceptron_paper.study.cell import Cell, ModelKey
from deceptron_paper.study.records import DONE, FORMAT, finished
from deceptron_paper.study.tables import INSTANCES, MODELS, STEPS, Unusable, write_table

FAILED, SKIPPED = "failed", "skipped"


class StudyFolder:
    """Paths and atomic writes; several processes may use one folder at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.cells = self.path / "cells"
        self.models = self.path / "models"

    @contextmanager
    def opened(
        self, study: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> Iterator[StudyFolder]:
        """Take the folder for this study: a new one, or one that holds it already."""
        folder = Folder(self.path, "study", "study.json", inner=("cells", "models"))
        identity = {"format": FORMAT, **study}
        with folder.taken(identity, check=lambda note: self._check_same(note, study)):
            folder.note_environment(environment)
            yield self

    def is_done(self, cell: Cell) -> bool:
        """Whether a cell has been solved and all that it wrote is still there."""
        return _is_done(self.cells / cell.key)

    def absent(self, cell: Cell) -> tuple[str, str]:
        """Outcome and reason of a cell that has no records."""
        return _why(self.cells / cell.key / "cell.json", "it has not been run")

    def write_cell(
        self,
        cell: Cell,
        *,
        instances: pd.DataFrame | None,
        steps: pd.DataFrame | None,
        fields: Mapping[str, NDArray[np.float32]],
        **facts: Any,
    ) -> None:
        """Write a finished cell; ``facts`` go into its cell.json."""
        with _whole(self.cells / cell.key) as place:
            if instances is not None:
                write_table(place / "instances.parquet", INSTANCES, instances)
            if steps is not None:
                write_table(place / "steps.parquet", STEPS, steps)
            with replacing(place / "fields.npz") as temporary:
                np.savez_compressed(temporary, **fields)  # type: ignore[arg-type]
            write_json(place / "cell.json", self._cell(cell, DONE, **facts))

    def write_absent(self, cell: Cell, outcome: str, why: str) -> None:
        """Note why a cell has no records: it failed, or its model could not be had."""
        with _whole(self.cells / cell.key) as place:
            write_json(place / "cell.json", self._cell(cell, outcome, why=why))

    def pair_path(self, model: ModelKey) -> Path:
        """Where the copy of a pair lives."""
        return self.models / f"{model.slug}.safetensors"

    def model(self, model: ModelKey) -> dict[str, Any] | None:
        """What is known of a model that is ready; None if it is not."""
        found = read_json(self.models / f"{model.slug}.json")
        ready = found is not None and "why" not in found and _is_whole(self.pair_path(model))
        return found if ready else None

    def write_model(self, model: ModelKey, row: Mapping[str, Any]) -> None:
        """Note a row of the table of models, or ``outcome`` and ``why`` of one that is not had."""
        write_json(self.models / f"{model.slug}.json", dict(row))

    def no_model(self, model: ModelKey) -> tuple[str, str]:
        """Outcome and reason of a pair that could not be had."""
        return _why(self.models / f"{model.slug}.json", "its model was not prepared")

    def write_models(self, models: Iterable[ModelKey]) -> None:
        """Make ``models.parquet`` from the models that are ready."""
        rows = [row for model in models if (row := self.model(model)) is not None]
        frame = pd.DataFrame(rows, columns=list(MODELS))
        write_table(self.path / "models.parquet", MODELS, frame)

    def _cell(self, cell: Cell, outcome: str, **facts: Any) -> dict[str, Any]:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {
            "format": FORMAT,
            **cell.document(),
            "outcome": outcome,
            "finished": now,
            "library": metadata.version("deceptron"),
            **facts,
        }

    def _check_same(self, path: Path, study: Mapping[str, Any]) -> None:
        found = read_json(path)
        if found is None or "key" not in found:
            raise CheckpointError(f"{path} is damaged: choose another folder, or remove it")
        if found.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} has format {found.get('format')}, this library writes {FORMAT}: "
                "choose another folder"
            )
        if found["key"] != study["key"]:
            raise ConfigError(
                f"out={str(self.path)!r} holds the study {found.get('name')!r} with other "
                f"settings (run key {found['key'][:12]}, this one {study['key'][:12]}): "
                "choose another folder"
            )
        # Folders of version 0.1 do not tell.
        noted = found.get("own", {})
        for name, document in study.get("own", {}).items():
            if name in noted and (different := differing(noted[name], document)):
                setting, old, new = different
                raise ConfigError(
                    f"out={str(self.path)!r} holds cells of another problem called {name!r}: its "
                    f"{setting} was {old!r} and is {new!r}; choose another folder"
                )


@contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A folder filled under another name and then renamed; one that is there and done stays."""
    temporary = temporary_for(place)
    with writing(place):
        temporary.mkdir()
    try:
        yield temporary
        if _is_done(place):
            return  # another process was first; its records are as good
        with writing(place):
            if place.exists():
                aside = temporary_for(place)
                os.replace(place, aside)
                shutil.rmtree(aside, ignore_errors=True)
            os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _why(note: Path, unknown: str) -> tuple[str, str]:
    found = read_json(note) or {}
    return str(found.get("outcome", FAILED)), str(found.get("why", unknown))


def _is_done(place: Path) -> bool:
    try:
        finished(place)
    except Unusable:
        return False
    return is_zipfile(place / "fields.npz")


def _is_whole(pair: Path) -> bool:
    """Whether the file is as long as its header says; the weights are not read."""
    try:
        with safe_open(pair, framework="np"):
            return True
    except (OSError, SafetensorError):
        return False
