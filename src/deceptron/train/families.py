"""The Gaussian laws of a family: of its latents, and of what sensors show of them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import Bounds
from deceptron.core.bases import FLOOR, Basis, DiagonalGaussian, GridBasis, principal
from deceptron.core.pieces import in_pieces
from deceptron.core.protocols import RowMap
from deceptron.laws.data import DataLaws
from deceptron.laws.law import Laws
from deceptron.laws.shapes import KEPT, LARGEST_VECTOR
from deceptron.train.streams import stream

# Samples for each direction that are enough to tell how far a field varies along it.
FEWEST_FOR_EACH = 4
# Latents of each law that are simulated to see what data they make. Variances of those that are
# alike are averaged.
DRAWS = 64


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


def observations_of(y: Float[Tensor, "N *y"]) -> DiagonalGaussian | None:
    """What sensors show, normalised units."""
    return family_of(y)


def data_laws(
    forward: RowMap,
    laws: Laws,
    observations: DiagonalGaussian,
    bounds: Bounds | None,
    like: Float[Tensor, "N *x"],
) -> tuple[DataLaws, ...]:
    """What each shape of the family's laws makes of data, by draws through a map: in the
    coordinates of the family's data, and in waves where these are others; x is made ``like`` rows
    of it.
    """
    mean = observations.mean.double().flatten()
    assert laws.mean is not None
    images = []
    for number, shape in enumerate(laws.shapes):
        draw = stream(7, "data laws", number)
        white = torch.randn(DRAWS, len(shape.spectrum), dtype=torch.float64, generator=draw)
        x = laws.mean + laws.scale * shape.root(white)
        x = reflected(x.reshape(DRAWS, *like.shape[1:]).to(like), bounds)
        y = in_pieces(forward, x).detach().double()
        images.append(y[y.flatten(1).isfinite().all(1)].cpu())
    grid = GridBasis.fit(images[0])
    bases: list[Basis] = [observations.basis]
    if grid is not None and not isinstance(observations.basis, GridBasis):
        bases.append(grid)
    found = []
    for basis in bases:
        spectra = [basis.forward(y.flatten(1) - mean).square().mean(0) for y in images]
        if basis is observations.basis:
            spectra[0] = observations.spectrum.double()
        least = FLOOR * float(spectra[0].max())
        found.append(DataLaws(basis, mean, torch.stack(spectra).nan_to_num(least).clamp_min(least)))
    return tuple(found)


def reflected(x: Float[Tensor, "N *x"], bounds: Bounds | None) -> Tensor:
    """Folded back at the bounds, once, and cut beyond."""
    if bounds is None:
        return x
    low, high = (torch.as_tensor(side).to(x) for side in bounds)
    x = torch.where(x < low, 2 * low - x, x)
    x = torch.where(x > high, 2 * high - x, x)
    return torch.minimum(torch.maximum(x, low), high)
