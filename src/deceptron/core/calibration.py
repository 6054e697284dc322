"""What a pair knows about itself besides its weights, as validation data taught it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import html
from deceptron.core.bases import Basis, DiagonalGaussian, EigenBasis, GridBasis, as_kinds
from deceptron.core.corrections import (
    DETERMINANT_NODES,
    VARIANCE_NODES,
    Corrections,
    Regression,
)

# A surrogate that errs by more than this share of the noise is a poor judge of answers.
DOUBTFUL = 0.3


@dataclass(frozen=True)
class TrustLimits:
    """Centre and spread of the log of each sign of ``dc.trust``, and the limit on their worst."""

    parts: Mapping[str, tuple[float, float]]
    limit: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """Everything is optional: a pair made by hand knows nothing.

    Attributes:
        noise_std: of the observations it was trained for, physical units.
        surrogate_error: RMS error of f on validation rows, normalised units.
        start: ``"reverse"`` if answers should start at g(y), ``"wiener"`` where the linear estimate
            was better on validation rows.
        family: mean and covariance of the latents it was trained on.
        observations: the same of their observations, normalised units: what a missing sensor would
            have shown.
        interval_factor: what one-shot error bars are multiplied by, so that 90% intervals hold 90%
            of validation data.
        prior_share: the part of the family's covariance that those bars count.
        linear_factor, linear_share: the same two of bars about the linear estimate, where answers
            start there.
        trust: limits of ``dc.trust``.
        corrections: how far an answer may lie from its start.
        rows: how many validation rows it rests on.
    """

    noise_std: float | Tensor | None = None
    surrogate_error: float = 0.0
    start: str = "reverse"
    family: DiagonalGaussian | None = None
    observations: DiagonalGaussian | None = None
    interval_factor: float | None = None
    prior_share: float | None = None
    linear_factor: float | None = None
    linear_share: float | None = None
    trust: TrustLimits | None = None
    corrections: Corrections | None = None
    rows: int = 0

    def doubtful(self, noise_level: float | None) -> bool:
        """Whether the surrogate is a poor judge; ``noise_level`` is in normalised units."""
        return self.surrogate_error > DOUBTFUL * (noise_level or math.inf)

    def verdict(self, noise_level: float | None) -> str:
        """Accuracy of f and what to do about it; ``noise_level`` is in normalised units."""
        if not noise_level:
            return "the noise it was trained for is not known: pass noise_std= to dc.solve"
        ratio = self.surrogate_error / noise_level
        words = f"the surrogate f errs by {html.brief(ratio)} times the noise: "
        if self.corrections is not None and self.corrections.keep[1]:
            return words + (
                "answers are left at g(y), since corrections made validation rows worse "
                "(several x may give the same y); max_iterations= forces corrections"
            )
        if ratio > 1:
            words += (
                "too much to check answers with it; pass forward= to dc.solve or train on more rows"
            )
        elif self.doubtful(noise_level):
            words += "pass forward= to dc.solve for better answers"
        else:
            words += "on data like the training data dc.solve does as well without forward="
        if self.rows and self.corrections is None:
            words += (
                "; it has no corrections, so rows that do not fit may end further from the truth "
                "than they start; dc.recalibrate makes them for up to 65536 unknowns"
            )
        return words


def calibration_of(pair: object) -> Calibration:
    """What a pair knows; any object may be one, and most know nothing."""
    found = getattr(pair, "calibration", None)
    return found if isinstance(found, Calibration) else Calibration()


# What a file holds under these names, by kind.
_FACTORS = ("interval_factor", "prior_share", "linear_factor", "linear_share")
_SIZES = ("scale", "factor", "family_factor", "table_unit")
_FLAGS = ("eager", "by_family", "keep")
_TABLES = ("eigenvalues", "channels", "log_determinants", "log_variances")
_COEFFICIENTS = ("mean", "own", "start", "std")


def to_tensors(calibration: Calibration) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A JSON document and the tensors it refers to, for a file."""
    tensors: dict[str, Tensor] = {}
    names = ("surrogate_error", "start", "rows", *_FACTORS)
    document: dict[str, Any] = {name: getattr(calibration, name) for name in names}
    if isinstance(calibration.noise_std, Tensor):
        tensors["noise_std"] = calibration.noise_std
    elif calibration.noise_std is not None:
        document["noise_std"] = float(calibration.noise_std)
    if calibration.trust is not None:
        document["trust"] = asdict(calibration.trust)
    corrections = calibration.corrections
    if corrections is not None:
        document["corrections"] = _described(corrections, tensors)
    for name in ("family", "observations"):
        gaussian = getattr(calibration, name)
        if gaussian is not None:
            own: dict[str, Tensor] = {"mean": gaussian.mean, "spectrum": gaussian.spectrum}
            shared = corrections is not None and gaussian.basis in (
                corrections.grid,
                corrections.eigen,
            )
            kind = "grid" if isinstance(gaussian.basis, GridBasis) else "eigen"
            document[name] = {"basis": kind} if shared else _basis_described(gaussian.basis, own)
            tensors.update({f"{name}.{key}": value for key, value in own.items()})
    return document, tensors


def from_tensors(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Calibration:
    """The inverse; raises KeyError, TypeError or ValueError for what is not one."""
    corrections = None
    if document.get("corrections") is not None:
        corrections = _corrections(document["corrections"], tensors)
    trust = None
    if document.get("trust") is not None:
        parts = {k: (float(a), float(b)) for k, (a, b) in document["trust"]["parts"].items()}
        trust = TrustLimits(parts, float(document["trust"]["limit"]))
    if document["start"] not in ("reverse", "wiener"):
        raise ValueError(f"start must be 'reverse' or 'wiener'; got {document['start']!r}")
    stated = {name: document[name] for name in _FACTORS if document.get(name) is not None}
    return Calibration(
        noise_std=tensors.get("noise_std", document.get("noise_std")),
        surrogate_error=_positive("surrogate_error", document["surrogate_error"]),
        start=document["start"],
        family=_gaussian("family", document, tensors, corrections),
        observations=_gaussian("observations", document, tensors, corrections),
        trust=trust,
        corrections=corrections,
        rows=int(document["rows"]),
        **{name: _positive(name, value) for name, value in stated.items()},
    )


def _gaussian(
    name: str,
    document: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    corrections: Corrections | None,
) -> DiagonalGaussian | None:
    stated = document.get(name)
    if stated is None:
        return None
    parts = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
    basis: Basis | None
    if "basis" in stated:
        if corrections is None:
            raise ValueError(f"{name} in the basis of corrections that are not there")
        basis = corrections.grid if stated["basis"] == "grid" else corrections.eigen
    else:
        grid, eigen = _bases(stated, parts)
        basis = grid or eigen
    if basis is None:
        raise ValueError(f"{name} without the basis it is stated in")
    return DiagonalGaussian(parts["mean"], basis, parts["spectrum"].double())


def _described(corrections: Corrections, tensors: dict[str, Tensor]) -> dict[str, Any]:
    document: dict[str, Any] = {name: getattr(corrections, name) for name in _SIZES}
    document |= {name: list(getattr(corrections, name)) for name in _FLAGS}
    if min(corrections.chance) > -math.inf:
        document["chance"] = list(corrections.chance)
    for basis in (corrections.grid, corrections.eigen):
        if basis is not None:
            document |= _basis_described(basis, tensors, "corrections.")
    for name in _TABLES:
        table: Tensor | None = getattr(corrections, name)
        if table is not None:
            # Half precision of a logarithm is a percent or less of the variance.
            kept = table.half() if name == "log_variances" else table
            tensors[f"corrections.{name}"] = kept
    regression = corrections.regression
    if regression is not None:
        names = ("member", "size", "factor")
        document["regression"] = {name: getattr(regression, name) for name in names}
        for name in _COEFFICIENTS:
            tensors[f"regression.{name}"] = getattr(regression, name).float()
    return document


def _corrections(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Corrections:
    grid, eigen = _bases(document, tensors, "corrections.")
    regression = None
    if document.get("regression") is not None:
        stated = document["regression"]
        regression = Regression(
            member=int(stated["member"]),
            size=_positive("size", stated["size"]),
            factor=_positive("factor", stated["factor"]),
            **{name: tensors[f"regression.{name}"].double() for name in _COEFFICIENTS},
        )
    parts: dict[str, Any] = {name: _positive(name, document[name]) for name in _SIZES}
    parts |= {name: _two_flags(name, document[name]) for name in _FLAGS}
    tables = ((name, tensors.get(f"corrections.{name}")) for name in _TABLES)
    parts |= {name: None if table is None else table.double() for name, table in tables}
    chance = _two_odds(document.get("chance"))
    found = Corrections(grid=grid, eigen=eigen, regression=regression, chance=chance, **parts)
    _check_tables(found)
    return found


def _basis_described(basis: Basis, tensors: dict[str, Tensor], prefix: str = "") -> dict[str, Any]:
    if isinstance(basis, GridBasis):
        return {"shape": list(basis.shape), "waves": list(basis.kinds)}
    assert isinstance(basis, EigenBasis)
    tensors[f"{prefix}eigenvectors"] = basis.vectors.float()
    return {}


def _bases(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str = ""
) -> tuple[GridBasis | None, EigenBasis | None]:
    grid = eigen = None
    if "waves" in document:
        shape = tuple(int(side) for side in document["shape"])
        grid = GridBasis(shape, as_kinds(document["waves"]))
    vectors = tensors.get(f"{prefix}eigenvectors")
    if vectors is not None:
        eigen = EigenBasis(_orthonormal(vectors.double()))
    return grid, eigen


def _orthonormal(vectors: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
    """They were stored in single precision; signs stay as they are."""
    q, r = torch.linalg.qr(vectors.T)
    return (q * r.diagonal().sign()).T


def _check_tables(corrections: Corrections) -> None:
    count = len(corrections.members)
    for name, table, nodes in (
        ("log_determinants", corrections.log_determinants, DETERMINANT_NODES),
        ("log_variances", corrections.log_variances, VARIANCE_NODES),
    ):
        if table is not None and tuple(table.shape[:2]) != (count, len(nodes)):
            raise ValueError(f"{name} must have {count} members at {len(nodes)} nodes")
    regression = corrections.regression
    if regression is not None and not 0 <= regression.member < count:
        raise ValueError(f"regression.member must be one of {count}; got {regression.member}")


def _two_flags(name: str, value: Any) -> tuple[bool, bool]:
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is bool for v in value)):
        raise ValueError(f"{name} must be two truth values; got {value!r}")
    return value[0], value[1]


def _two_odds(value: Any) -> tuple[float, float]:
    if value is None:
        return -math.inf, -math.inf
    surrogate, simulator = (float(v) for v in value)
    if not (math.isfinite(surrogate) and math.isfinite(simulator)):
        raise ValueError(f"chance must be two finite numbers; got {value!r}")
    return surrogate, simulator


def _positive(name: str, value: Any) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and >= 0; got {value!r}")
    return number
