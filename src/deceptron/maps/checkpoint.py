"""Pairs on disk: one safetensors file whose header holds a JSON document, so no code can run.

Tensors are named ``f.*``, ``g.*``, ``scaler.*``, ``units.*`` (if x has any), ``wiener.*``,
``calibration.*``, ``bounds.low`` and ``bounds.high`` (a bound without axes was a number). The
document says what they belong to::

    {"format": "deceptron-pair", "version": 2, "library": "0.2.0", "name": "heat-1d",
     "x_shape": [64], "y_shape": [64], "bounded": true, "provenance": {}, "calibration": {...},
     "modules": {"f": {"kind": "mlp", "config": {...}}, "g": ..., "wiener": ...},
     "sha256": "of the document without this entry, and of the tensors"}

A pair without a ridge estimate has no such entry. NaN is in no weight, of a file or of a pair that
is saved.

A module of a class this library does not know has ``"kind": null`` and the name of its class;
it loads into a module that the caller hands in.
"""

from __future__ import annotations

import hashlib
import json
import os
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from deceptron.core import CheckpointError, ConfigError, DeceptronError, Scaler, unknown_name
from deceptron.core.files import as_path, replacing
from deceptron.core.units import Units
from deceptron.laws.calibration import from_tensors, to_tensors
from deceptron.maps.network import Network, build, described, is_registered
from deceptron.maps.pair import Deceptron

FORMAT = "deceptron-pair"
VERSION = 2
# What a finished training run leaves in its folder.
RUN_RESULT = "pair.safetensors"
_KEY = "deceptron"
_PARTS = ("f", "g", "wiener")
# What building a pair from words that are none of its own may raise.
_UNFIT = (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RuntimeError)


def save(pair: Deceptron, path: str | os.PathLike[str]) -> Path:
    """Write a pair to one file: weights, units, bounds and calibration (safetensors).

    Args:
        pair: a ``dc.Deceptron``.
        path: the file; it appears whole or not at all, and replaces an old one.

    Returns:
        The path.
    """
    if not isinstance(pair, Deceptron):
        raise ConfigError(f"save(pair=...) must be a Deceptron; got {type(pair).__name__}")
    path = as_path("path", path)
    modules = {name: getattr(pair, name) for name in _PARTS if getattr(pair, name) is not None}
    tensors = {f"scaler.{key}": value for key, value in pair.scaler.state_dict().items()}
    if pair.units is not None:
        tensors |= {f"units.{key}": value for key, value in pair.units.state_dict().items()}
    if pair.bounds is not None:
        for side, value in zip(("low", "high"), pair.bounds, strict=True):
            exact = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            tensors[f"bounds.{side}"] = exact
    for prefix, module in modules.items():
        for key, value in module.state_dict().items():
            if not isinstance(value, Tensor):
                raise CheckpointError(
                    f"state of {prefix} must be tensors; {key!r} is a {type(value).__name__}"
                )
            tensors[f"{prefix}.{key}"] = value
    calibration, found = to_tensors(pair.calibration)
    tensors.update({f"calibration.{key}": value for key, value in found.items()})
    document = {
        "format": FORMAT,
        "version": VERSION,
        "library": _library_version(),
        "name": pair.name,
        "x_shape": pair.x_shape,
        "y_shape": pair.y_shape,
        "bounded": pair.bounds is not None,
        "provenance": pair.provenance,
        "calibration": calibration,
        "modules": {prefix: _describe(module) for prefix, module in modules.items()},
    }
    # A clone for each: safetensors takes neither views nor weights that two maps share.
    tensors = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    if broken := _not_finite(tensors, modules):
        raise CheckpointError(f"weights must be finite to be saved; {broken} is not")
    try:
        document["sha256"] = _checksum(document, tensors)
        header = {_KEY: json.dumps(document, sort_keys=True)}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"pair.provenance must be JSON: {error}") from error
    with replacing(path) as temporary:
        temporary.write_bytes(to_bytes(tensors, metadata=header))
    return path


def load(
    source: str | os.PathLike[str],
    *,
    forward: nn.Module | None = None,
    reverse: nn.Module | None = None,
) -> Deceptron:
    """Read a pair; nothing in a file can run code.

    Args:
        source: the name of a pair that ships (``dc.problems.names()``), a file that ``dc.save``
            wrote, or a run folder of ``dc.train``.
        forward: if f was a class of your own, a module of it that receives the weights. Nothing is
            written into it unless the whole file fits.
        reverse: the same for g.

    Returns:
        Deceptron: the pair, in evaluation mode.
    """
    if isinstance(source, str) and source in shipped():
        with resources.as_file(_zoo() / f"{source}.safetensors") as path:
            return _load(path, {"f": forward, "g": reverse}).eval()
    path = as_path("load(source=...)", source)
    if (path / RUN_RESULT).is_file():
        path = path / RUN_RESULT
    if not path.is_file():
        raise _not_found(source, path)
    return _load(path, {"f": forward, "g": reverse}).eval()


def shipped() -> tuple[str, ...]:
    """Names of the models inside the package."""
    zoo = _zoo()
    if not zoo.is_dir():
        return ()
    names = (entry.name for entry in zoo.iterdir())
    return tuple(
        sorted(n.removesuffix(".safetensors") for n in names if n.endswith(".safetensors"))
    )


def _zoo() -> Any:
    return resources.files("deceptron") / "zoo"


def _not_found(source: str | os.PathLike[str], path: Path) -> DeceptronError:
    if path.is_dir():
        return CheckpointError(
            f"load(source=...) must be a file or the folder of a run; {path} is a folder without "
            f"{RUN_RESULT}"
        )
    if not isinstance(source, str) or path.suffix or len(path.parts) > 1:
        return CheckpointError(f"load(source=...): there is no file {path}")
    if not shipped():
        return ConfigError(
            f"unknown model {source!r}: no file has that name, and no model ships with this version"
        )
    return unknown_name("model", source, shipped())


def _library_version() -> str:
    try:
        return metadata.version("deceptron")
    except metadata.PackageNotFoundError:
        return "unknown"


def _describe(module: nn.Module) -> dict[str, Any]:
    if is_registered(module):
        assert isinstance(module, Network)
        return described(module)
    return {"kind": None, "class": f"{type(module).__module__}.{type(module).__qualname__}"}


def _checksum(document: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Of all that the file says but its checksum; one flipped bit changes answers."""
    # Through text and back: keys become strings, tuples lists, as they are after loading.
    plain = json.loads(json.dumps({k: v for k, v in document.items() if k != "sha256"}))
    hashed = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for key in sorted(tensors):
        value = tensors[key]
        hashed.update(f"{key} {value.dtype} {tuple(value.shape)} ".encode())
        hashed.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _not_finite(tensors: dict[str, Tensor], modules: dict[str, nn.Module]) -> str | None:
    """The first tensor with NaN, or parameter with infinity; a buffer or a bound may have that."""
    learned = {f"{name}.{key}" for name, m in modules.items() for key, _ in m.named_parameters()}
    for key, value in tensors.items():
        if value.is_floating_point() or value.is_complex():
            bad = value.isnan() if key not in learned else ~value.isfinite()
            if bool(bad.any()):
                return key
    return None


def _load(path: Path, given: dict[str, nn.Module | None]) -> Deceptron:
    document, tensors = _read(path)
    whole = dict(tensors)
    try:
        _check_fields(document)
        names = ("scaler", "units", "bounds", "calibration")
        parts = {prefix: _part(tensors, prefix) for prefix in names}
        modules = {
            prefix: _module(path, prefix, description, given.get(prefix))
            for prefix, description in document["modules"].items()
        }
        if not {"f", "g"} <= modules.keys() <= set(_PARTS):
            raise CheckpointError(f"{path} names the modules {sorted(modules)}")
        states = {prefix: _part(tensors, prefix) for prefix in modules}
        if tensors:
            raise CheckpointError(f"{path} holds tensors of no module: {_some(tensors)}")
        for prefix, module in modules.items():
            _check_fit(path, prefix, module, states[prefix], exact=given.get(prefix) is not None)
        if broken := _not_finite(whole, modules):
            raise CheckpointError(f"{path}: weights must be finite; {broken} is not")
        pair = Deceptron(
            modules["f"],
            modules["g"],
            scaler=Scaler(parts["scaler"]["shift"], parts["scaler"]["scale"]),
            units=Units(parts["units"]["shift"], parts["units"]["scale"])
            if parts["units"]
            else None,
            bounds=(parts["bounds"]["low"], parts["bounds"]["high"])
            if document["bounded"]
            else None,
            x_shape=document["x_shape"],
            y_shape=document["y_shape"],
            name=document["name"],
            wiener=modules.get("wiener"),
            calibration=from_tensors(document["calibration"], parts["calibration"]),
            provenance=document["provenance"],
        )
        for name, entry in vars(Deceptron).items():
            if isinstance(entry, property):
                getattr(pair, name)  # what it makes of its calibration; later it would be too late
    except CheckpointError:
        raise
    except (DeceptronError, *_UNFIT) as error:
        raise CheckpointError(f"{path} does not describe a pair: {error!r}") from error
    for prefix, module in modules.items():
        # Assigning keeps the file's dtype; a module of the caller's keeps its own parameters.
        module.load_state_dict(states[prefix], assign=given.get(prefix) is None)
    return pair


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            # Cloned, so that the weights outlive changes to the file they were mapped from.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} {_diagnosis(path, error)}") from error
    if _KEY not in header:
        raise CheckpointError(f"{path} is a safetensors file, but not one that deceptron wrote")
    try:
        document = json.loads(header[_KEY])
        known = document["format"] == FORMAT and isinstance(document["version"], int)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{path} has a damaged header: {error!r}") from error
    if not known:
        raise CheckpointError(f"{path} is not a file of format {FORMAT!r}")
    if document["version"] != VERSION:
        raise CheckpointError(
            f"{path} has format version {document['version']}, written by deceptron "
            f"{document.get('library', 'unknown')}; this is deceptron {_library_version()}, which "
            f"reads version {VERSION}"
        )
    if "sha256" in document and document["sha256"] != _checksum(document, tensors):
        raise CheckpointError(
            f"{path} is damaged: its checksum is not that of its content; copy it again"
        )
    return document, tensors


def _check_fields(document: dict[str, Any]) -> None:
    """Types that the pair does not check itself."""
    kinds: dict[str, Any] = {
        "bounded": bool,
        "provenance": dict,
        "modules": dict,
        "name": (str, type(None)),
    }
    for key, kind in kinds.items():
        if not isinstance(document[key], kind):
            raise TypeError(f"{key} is {document[key]!r}")


def _diagnosis(path: Path, error: Exception) -> str:
    try:
        with open(path, "rb") as file:
            start = file.read(16)
        size = path.stat().st_size
    except OSError as failure:
        return f"cannot be read: {failure.strerror or failure}"
    if start[:4] == b"PK\x03\x04":
        return "is a zip archive, as torch.save writes; it holds a pickle, which is never loaded"
    # A safetensors header of 640 bytes starts like a pickle, but has "{" after its length.
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") and start[8:9] != b"{":
        return "is a pickle, which is never loaded because it can run code"
    if size < 8 or (start[8:9] in (b"{", b"") and int.from_bytes(start[:8], "little") < 2**27):
        return f"is truncated or damaged ({size} bytes): {error}"
    return f"is not a safetensors file: {error}"


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    keys = [key for key in tensors if key.startswith(f"{prefix}.")]
    return {key.removeprefix(f"{prefix}."): tensors.pop(key) for key in keys}


def _module(
    path: Path, prefix: str, description: dict[str, Any], given: nn.Module | None
) -> nn.Module:
    if given is not None:
        if not isinstance(given, nn.Module):
            raise CheckpointError(f"{prefix} must load into an nn.Module; got {type(given)}")
        return given
    if description["kind"] is not None:
        return build(description["kind"], description["config"])
    argument = {"f": "forward", "g": "reverse"}.get(prefix)
    remedy = f"pass load(..., {argument}=module)" if argument else "save the pair without it"
    raise CheckpointError(
        f"{path}: {prefix} is a {description['class']}, which this library cannot build: {remedy}"
    )


def _check_fit(
    path: Path, prefix: str, module: nn.Module, state: dict[str, Tensor], *, exact: bool
) -> None:
    wanted = module.state_dict()
    if missing := wanted.keys() - state.keys():
        raise CheckpointError(f"{path} lacks weights of {prefix}: {_some(missing)}")
    if extra := state.keys() - wanted.keys():
        raise CheckpointError(f"{path} has weights that {prefix} does not: {_some(extra)}")
    for key, value in state.items():
        if value.shape != wanted[key].shape:
            raise CheckpointError(
                f"{path}: {prefix}.{key} must have shape {tuple(wanted[key].shape)}; "
                f"got {tuple(value.shape)}"
            )
        if value.is_floating_point() != wanted[key].is_floating_point():
            raise CheckpointError(
                f"{path}: {prefix}.{key} is {value.dtype}; {wanted[key].dtype} is wanted"
            )
        if exact and value.dtype != wanted[key].dtype:
            raise CheckpointError(
                f"{path}: {prefix}.{key} is {value.dtype}, the module's is {wanted[key].dtype}: "
                "bring the module to the file's dtype with .to(...) first"
            )


def _some(keys: Any) -> str:
    names = sorted(keys)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
