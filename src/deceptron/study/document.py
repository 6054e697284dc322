"""Settings as JSON values, read from the objects themselves, and a hash that tells two apart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any


def as_json(thing: Any) -> Any:
    """A dataclass as its kind and fields, all the way down; TypeError where something has none.

    Refusing is the point: a setting that cannot be written down would be missing from a key.
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        own = {entry.name: as_json(getattr(thing, entry.name)) for entry in fields(thing)}
        return {"kind": type(thing).__name__, **own}
    if isinstance(thing, dict):
        return {str(name): as_json(value) for name, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [as_json(value) for value in thing]
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    raise TypeError(f"a setting must be a dataclass or a JSON value; got {thing!r}")


def digest(document: Any) -> str:
    """Hash of the canonical JSON."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
