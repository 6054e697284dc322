"""What a pair knows about itself besides its weights, as validation data taught it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import html
from deceptron.core.bases import Basis, DiagonalGaussian, EigenBasis, GridBasis, as_kinds
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.data import DataLaws
from deceptron.laws.law import DETERMINANT_NODES, VARIANCE_NODES, Laws, Shape, Tables
from deceptron.laws.odds import Odds
from deceptron.laws.start import StartLaw

# A surrogate that errs by more than this share of the noise is a poor judge of answers.
DOUBTFUL = 0.3


OUTDATED = (
    "calibrated by an older version of deceptron: dc.recalibrate(pair, problem) gives error bars, "
    "corrections and trust"
)


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
        beliefs: what a row may be, and how likely; None: the default takes safeguarded steps.
        rows: how many validation rows it rests on.
        outdated: an older version of the library made it, and little of it is of use.
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
    beliefs: Beliefs | None = None
    rows: int = 0
    outdated: bool = False

    def doubtful(self, noise_level: float | None) -> bool:
        """Whether the surrogate is a poor judge; ``noise_level`` is in normalised units."""
        return self.surrogate_error > DOUBTFUL * (noise_level or math.inf)

    def verdict(self, noise_level: float | None) -> str:
        """Accuracy of f and what to do about it; ``noise_level`` is in normalised units."""
        if self.outdated:
            return OUTDATED
        if not noise_level:
            return "the noise it was trained for is not known: pass noise_std= to dc.solve"
        ratio = self.surrogate_error / noise_level
        words = f"the surrogate f errs by {html.brief(ratio)} times the noise: "
        if self.beliefs is not None and self.beliefs.simulator.keeps_starts:
            return words + (
                "answers are left at g(y), since corrections made validation rows worse "
                "(several x may give the same y)"
            )
        if ratio > 1:
            words += (
                "too much to check answers with it; pass forward= to dc.solve or train on more rows"
            )
        elif self.doubtful(noise_level):
            words += "pass forward= to dc.solve for better answers"
        else:
            words += "on data like the training data dc.solve does as well without forward="
        if self.rows and self.beliefs is None:
            words += (
                "; it has no corrections, so rows that do not fit may end further from the truth "
                "than they start; dc.recalibrate makes them for up to 65536 unknowns"
            )
        return words


def calibration_of(pair: object) -> Calibration:
    """What a pair knows; any object may be one, and most know nothing."""
    found = getattr(pair, "calibration", None)
    return found if isinstance(found, Calibration) else Calibration()


# What a file holds under these names.
_FACTORS = ("interval_factor", "prior_share", "linear_factor", "linear_share")
_START = ("mean", "own", "first", "std")
# Of what is stored besides the weights; a file with another one has to be calibrated again.
VERSION = 2


def to_tensors(calibration: Calibration) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A JSON document and the tensors it refers to, for a file."""
    writer = _Writer()
    tensors = writer.tensors
    names = ("surrogate_error", "start", "rows", *_FACTORS)
    document: dict[str, Any] = {name: getattr(calibration, name) for name in names}
    document["version"] = None if calibration.outdated else VERSION
    if isinstance(calibration.noise_std, Tensor):
        tensors["noise_std"] = calibration.noise_std
    elif calibration.noise_std is not None:
        document["noise_std"] = float(calibration.noise_std)
    if calibration.trust is not None:
        document["trust"] = asdict(calibration.trust)
    for name in ("family", "observations"):
        gaussian = getattr(calibration, name)
        if gaussian is not None:
            document[name] = {"basis": writer.basis(gaussian.basis)}
            tensors |= {f"{name}.mean": gaussian.mean, f"{name}.spectrum": gaussian.spectrum}
    beliefs = calibration.beliefs
    if beliefs is not None:
        document["beliefs"] = {
            "corrections": writer.laws("corrections", beliefs.corrections),
            **{
                name: {key: getattr(odds, key).tolist() for key in ("answer", "open", "seen")}
                for name, odds in (
                    ("surrogate", beliefs.surrogate),
                    ("simulator", beliefs.simulator),
                )
            },
        }
        if beliefs.family is not None:
            document["beliefs"]["roughened"] = writer.laws("roughened", beliefs.family)
        document["beliefs"]["data"] = [writer.basis(law.basis) for law in beliefs.data]
        for place, law in enumerate(beliefs.data):
            tensors |= {f"data.{place}.mean": law.mean.float()}
            tensors |= {f"data.{place}.spectra": law.spectra.float()}
        start = beliefs.start
        if start is not None:
            stated = {name: getattr(start, name) for name in ("shape", "size", "factor")}
            document["beliefs"]["start"] = stated
            tensors |= {f"start.{name}": getattr(start, name).float() for name in _START}
    document["bases"] = writer.described
    return document, tensors


def from_tensors(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Calibration:
    """The inverse; raises KeyError, TypeError or ValueError for what is not one.

    Of a file that older code has calibrated the laws are left out: ``version`` tells.
    """
    trust = None
    if document.get("trust") is not None:
        parts = {k: (float(a), float(b)) for k, (a, b) in document["trust"]["parts"].items()}
        trust = TrustLimits(parts, float(document["trust"]["limit"]))
    if document["start"] not in ("reverse", "wiener"):
        raise ValueError(f"start must be 'reverse' or 'wiener'; got {document['start']!r}")
    current = document.get("version") == VERSION
    stated = {
        name: _positive(name, document[name])
        for name in _FACTORS
        if current and document.get(name) is not None
    }
    reader = _Reader(document.get("bases", []) if current else [], tensors)
    beliefs = document.get("beliefs") if current else None
    return Calibration(
        noise_std=tensors.get("noise_std", document.get("noise_std")),
        surrogate_error=_positive("surrogate_error", document["surrogate_error"]),
        start=document["start"],
        trust=trust,
        beliefs=None if beliefs is None else reader.beliefs(beliefs),
        rows=int(document["rows"]) if current else 0,
        outdated=not current,
        family=reader.gaussian("family", document.get("family") if current else None),
        observations=reader.gaussian(
            "observations", document.get("observations") if current else None
        ),
        interval_factor=stated.get("interval_factor"),
        prior_share=stated.get("prior_share"),
        linear_factor=stated.get("linear_factor"),
        linear_share=stated.get("linear_share"),
    )


class _Writer:
    """Collects tensors; each basis is written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.described: list[dict[str, Any]] = []
        self._bases: list[Basis] = []

    def basis(self, basis: Basis) -> int:
        for place, known in enumerate(self._bases):
            if basis is known or (isinstance(basis, GridBasis) and _alike(basis, known)):
                return place
        self._bases.append(basis)
        place = len(self.described)
        if isinstance(basis, GridBasis):
            self.described.append({"shape": list(basis.shape), "waves": list(basis.kinds)})
        else:
            assert isinstance(basis, EigenBasis)
            self.described.append({})
            self.tensors[f"bases.{place}"] = basis.vectors.float()
        return place

    def laws(self, name: str, laws: Laws) -> dict[str, Any]:
        self.tensors[f"{name}.spectra"] = torch.stack([s.spectrum for s in laws.shapes]).float()
        self.tensors[f"{name}.units"] = laws.units.float()
        if laws.mean is not None:
            self.tensors[f"{name}.mean"] = laws.mean
        if laws.tables is not None:
            self.tensors[f"{name}.log_determinants"] = laws.tables.log_determinants
            # Half precision of a logarithm is a percent or less of the variance.
            self.tensors[f"{name}.log_variances"] = laws.tables.log_variances.half()
        return {
            "shapes": [[shape.name, self.basis(shape.basis)] for shape in laws.shapes],
            "sizes": list(laws.sizes),
            "stride": laws.stride,
            "scale": laws.scale,
            "first": list(laws.first),
            "factor": laws.factor,
            "unit": None if laws.tables is None else laws.tables.unit,
        }


class _Reader:
    """The inverse."""

    def __init__(self, described: list[Any], tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._bases: list[Basis] = []
        for place, stated in enumerate(described):
            if "waves" in stated:
                shape = tuple(int(side) for side in stated["shape"])
                self._bases.append(GridBasis(shape, as_kinds(stated["waves"])))
            else:
                self._bases.append(EigenBasis(_orthonormal(tensors[f"bases.{place}"].double())))

    def gaussian(self, name: str, stated: Any) -> DiagonalGaussian | None:
        if stated is None:
            return None
        basis = self._bases[_place("basis", stated["basis"], self._bases)]
        mean, spectrum = (self._tensors[f"{name}.{part}"] for part in ("mean", "spectrum"))
        return DiagonalGaussian(mean, basis, spectrum.double())

    def beliefs(self, stated: Mapping[str, Any]) -> Beliefs:
        corrections = self._laws("corrections", stated["corrections"])
        family = start = None
        if "roughened" in stated:
            family = self._laws("roughened", stated["roughened"])
        if "start" in stated:
            start = StartLaw(
                shape=_place("start.shape", stated["start"]["shape"], corrections.shapes),
                size=_place("start.size", stated["start"]["size"], corrections.sizes),
                factor=_positive("factor", stated["start"]["factor"]),
                **{name: self._tensors[f"start.{name}"].double() for name in _START},
            )
        data = tuple(
            self._data(f"data.{place}", basis, family)
            for place, basis in enumerate(stated.get("data", []))
        )
        odds = (Odds.of(**stated[name]) for name in ("surrogate", "simulator"))
        return Beliefs(corrections, family, data, start, *odds)

    def _data(self, name: str, basis: int, family: Laws | None) -> DataLaws:
        mean, spectra = (self._tensors[f"{name}.{part}"].double() for part in ("mean", "spectra"))
        rows = 0 if family is None else len(family.shapes)
        if tuple(spectra.shape) != (rows, len(mean)) or not bool((spectra > 0).all()):
            raise ValueError(f"{name}.spectra must have a positive row for each of {rows} shapes")
        return DataLaws(self._bases[_place("basis", basis, self._bases)], mean, spectra)

    def _laws(self, name: str, stated: Mapping[str, Any]) -> Laws:
        spectra = self._tensors[f"{name}.spectra"].double()
        if len(spectra) != len(stated["shapes"]) or not bool((spectra > 0).all()):
            raise ValueError(f"{name}.spectra must have a positive row for each shape")
        shapes = tuple(
            Shape.of(str(word), self._bases[_place("basis", place, self._bases)], spectrum)
            for (word, place), spectrum in zip(stated["shapes"], spectra, strict=True)
        )
        tables = None
        if stated["unit"] is not None:
            determinants, variances = (
                self._tensors[f"{name}.{part}"].double()
                for part in ("log_determinants", "log_variances")
            )
            for table, nodes in ((determinants, DETERMINANT_NODES), (variances, VARIANCE_NODES)):
                if tuple(table.shape[:2]) != (len(shapes), len(nodes)):
                    raise ValueError(f"tables of {name} must be {len(shapes)} by {len(nodes)}")
            tables = Tables(determinants, variances, _positive("unit", stated["unit"]))
        shape, size = stated["first"]
        return Laws(
            shapes=shapes,
            sizes=tuple(_positive("size", size) for size in stated["sizes"]),
            stride=int(stated["stride"]),
            scale=_positive("scale", stated["scale"]),
            units=self._tensors[f"{name}.units"].double(),
            mean=self._tensors.get(f"{name}.mean"),
            first=(_place("first", shape, shapes), _positive("first", size)),
            tables=tables,
            factor=_positive("factor", stated["factor"]),
        )


def _alike(a: GridBasis, b: Basis) -> bool:
    return isinstance(b, GridBasis) and (a.shape, a.kinds) == (b.shape, b.kinds)


def _orthonormal(vectors: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
    """They were stored in single precision; signs stay as they are."""
    q, r = torch.linalg.qr(vectors.T)
    return (q * r.diagonal().sign()).T


def _place(name: str, value: Any, among: Sequence[object]) -> int:
    if not 0 <= int(value) < len(among):
        raise ValueError(f"{name} must be one of {len(among)}; got {value!r}")
    return int(value)


def _positive(name: str, value: Any) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and >= 0; got {value!r}")
    return number
