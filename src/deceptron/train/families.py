"""The Gaussian laws of a family: of its latents, and of what sensors show of them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from deceptron.core.bases import FLOOR, Basis, DiagonalGaussian, principal
from deceptron.core.corrections import Corrections

# Powers of the family's covariance: vectors of up to so many components, this many directions.
LARGEST_VECTOR, KEPT = 1024, 128
# Samples for each direction that are enough to tell how far a field varies along it.
FEWEST_FOR_EACH = 4


def corrections_of(rows: Float[Tensor, "N *x"]) -> Corrections:
    """What may be added to an answer, by the covariance of the samples."""
    return Corrections.of(rows, largest=LARGEST_VECTOR, kept=KEPT)


def gaussian_of(rows: Float[Tensor, "N *x"], basis: Basis | None) -> DiagonalGaussian | None:
    """Mean and covariance of samples, the latter as far as the basis shows it."""
    if basis is None:
        return None
    flat = rows.double().flatten(1)
    mean = flat.mean(0)
    spectrum = basis.forward(flat - mean).square().mean(0)
    spectrum = spectrum.clamp_min(FLOOR * float(spectrum.max()))
    return DiagonalGaussian(mean.reshape(rows.shape[1:]), basis, spectrum)


def family_of(rows: Float[Tensor, "N *x"], corrections: Corrections) -> DiagonalGaussian | None:
    """The law of samples: in the principal directions of a vector; of a field in waves or in its
    principal directions, whichever gives the samples that were not fitted the larger likelihood. A
    field made of a few shapes is not stationary, and waves know little of it.
    """
    if corrections.eigen is not None:
        return gaussian_of(rows, corrections.eigen)
    waves = gaussian_of(rows, corrections.grid)
    held_out = len(rows) // 4
    if rows[0].numel() > LARGEST_VECTOR or len(rows) - held_out < FEWEST_FOR_EACH * KEPT:
        return waves
    fitted, others = rows[held_out:], rows[:held_out]
    fields = gaussian_of(fitted, corrections.grid)
    if fields is not None and fields.log_likelihood(others) >= _principal_of(fitted).log_likelihood(
        others
    ):
        return waves
    return _principal_of(rows)


def _principal_of(rows: Float[Tensor, "N *x"]) -> DiagonalGaussian:
    basis, spectrum = principal(rows.flatten(1), KEPT)
    return DiagonalGaussian(rows.double().mean(0), basis, spectrum)


def observations_of(y: Float[Tensor, "N *y"]) -> DiagonalGaussian | None:
    """What sensors show, normalised units."""
    return family_of(y, corrections_of(y))
