"""The Gaussian laws of a family: of its latents, and of what sensors show of them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from deceptron.core.bases import FLOOR, Basis, DiagonalGaussian, GridBasis, principal
from deceptron.laws.shapes import KEPT, LARGEST_VECTOR

# Samples for each direction that are enough to tell how far a field varies along it.
FEWEST_FOR_EACH = 4


def gaussian_of(rows: Float[Tensor, "N *x"], basis: Basis | None) -> DiagonalGaussian | None:
    """Mean and covariance of samples, the latter as far as the basis shows it."""
    if basis is None:
        return None
    flat = rows.double().flatten(1)
    mean = flat.mean(0)
    spectrum = basis.forward(flat - mean).square().mean(0)
    spectrum = spectrum.clamp_min(FLOOR * float(spectrum.max()))
    return DiagonalGaussian(mean.reshape(rows.shape[1:]), basis, spectrum)


def family_of(rows: Float[Tensor, "N *x"]) -> DiagonalGaussian | None:
    """The law of samples: in the principal directions of a vector; of a field in waves or in its
    principal directions, whichever gives the samples that were not fitted the larger likelihood. A
    field made of a few shapes is not stationary, and waves know little of it.
    """
    grid, small = GridBasis.fit(rows.cpu()), rows[0].numel() <= LARGEST_VECTOR
    if small and (rows.ndim == 2 or grid is None):
        return gaussian_of(rows, principal(rows.double().flatten(1), KEPT)[0])
    waves = gaussian_of(rows, grid)
    held_out = len(rows) // 4
    if not small or len(rows) - held_out < FEWEST_FOR_EACH * KEPT:
        return waves
    fitted, others = rows[held_out:], rows[:held_out]
    fields = gaussian_of(fitted, grid)
    if fields is not None and fields.log_likelihood(others) >= _principal_of(fitted).log_likelihood(
        others
    ):
        return waves
    return _principal_of(rows)


def _principal_of(rows: Float[Tensor, "N *x"]) -> DiagonalGaussian:
    basis, spectrum = principal(rows.flatten(1), KEPT)
    return DiagonalGaussian(rows.double().mean(0), basis, spectrum)


def observations_of(
    y: Float[Tensor, "N *y"],
) -> tuple[DiagonalGaussian | None, DiagonalGaussian | None]:
    """What sensors show, normalised units, and the same as far as waves show it where that is
    another law.
    """
    law = family_of(y)
    if law is None or isinstance(law.basis, GridBasis):
        return law, None
    return law, gaussian_of(y, GridBasis.fit(y.cpu()))
