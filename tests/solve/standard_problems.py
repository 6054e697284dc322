"""The table of standard nonlinear least-squares problems: where each starts and how low it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import OptimizeResult, least_squares, minimize
from torch import Tensor

from tests.solve import standard_residuals as residuals_of


@dataclass(frozen=True)
class LeastSquares:
    """Residuals of rows of unknowns.

    ``minimum`` is the lowest sum of squares known; several problems have other minima. ``factors``
    are the multiples of ``start`` that are starts as well, as in More, Garbow and Hillstrom.
    """

    name: str
    residuals: Callable[[Tensor], Tensor]
    start: tuple[float, ...]
    minimum: float
    factors: tuple[float, ...] = (1, 10, 100)

    @property
    def starts(self) -> Tensor:
        """One row a factor, float64."""
        start = torch.tensor([self.start], dtype=torch.float64)
        return torch.tensor(self.factors, dtype=torch.float64)[:, None] * start

    def squares(self, x: Tensor) -> Tensor:
        """The sum of squares of each row."""
        return self.residuals(x).square().sum(1)

    def reached(self, squares: Tensor) -> Tensor:
        """Which sums of squares are the lowest one, to four digits."""
        return squares <= self.minimum * (1 + 1e-4) + 1e-10

    def least_squares(self, x0: Tensor, method: str, **settings: object) -> OptimizeResult | None:
        """SciPy's answer from one start; None where it refuses the problem."""

        def jacobian(x: np.ndarray) -> np.ndarray:
            # Rows do not meet: residual i of copy i for all i, in one backward pass.
            count = self.residuals(torch.as_tensor(x)[None]).shape[1]
            copies = torch.as_tensor(x).expand(count, -1).clone().requires_grad_()
            self.residuals(copies).diagonal().sum().backward()
            return copies.grad.numpy()

        try:
            with np.errstate(all="ignore"):
                return least_squares(
                    lambda x: self.residuals(torch.as_tensor(x)[None])[0].numpy(),
                    x0.numpy(),
                    jacobian,
                    method=method,
                    **settings,
                )
        except (ValueError, np.linalg.LinAlgError):  # NaN or infinity on the way
            return None

    def l_bfgs_b(
        self, x0: Tensor, bounds: tuple[Tensor, Tensor], **options: object
    ) -> OptimizeResult:
        """SciPy's L-BFGS-B on half the sum of squares, from one start."""

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            leaf = torch.tensor(x)[None].requires_grad_()
            value = 0.5 * self.squares(leaf)[0]
            value.backward()
            return value.item(), leaf.grad[0].numpy()

        with np.errstate(all="ignore"):
            return minimize(
                value_and_gradient,
                x0.numpy(),
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([side.numpy() for side in bounds], 1),
                options=options,
            )

    def boxes(self) -> list[tuple[Tensor, Tensor]]:
        """Boxes about the standard start that end half way to the minimum: in all components, and
        in every other one.
        """
        start = self.starts[0]
        minimum = torch.as_tensor(self.least_squares(start, "trf").x)
        middle, wide = (start + minimum) / 2, 1 + 2 * (start - minimum).abs()
        every = torch.arange(len(start))
        return [
            (
                torch.where(cut & (minimum < start), middle, start - wide),
                torch.where(cut & (minimum > start), middle, start + wide),
            )
            for cut in (every >= 0, every % 2 == 0)
        ]


def _ramp(count: int, make: Callable[[int], float]) -> tuple[float, ...]:
    return tuple(make(j) for j in range(1, count + 1))


def _boundary_start(count: int) -> tuple[float, ...]:
    return _ramp(count, lambda j: j / (count + 1) * (j / (count + 1) - 1))


OSBORNE_2_START = (1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5)
ZERO_TO_ONE = (1,)  # a start at zero has no multiples

PROBLEMS = tuple(
    LeastSquares(name, getattr(residuals_of, function), start, minimum, *factors)
    for name, function, start, minimum, *factors in (
        ("rosenbrock", "rosenbrock", (-1.2, 1.0), 0.0),
        ("freudenstein roth", "freudenstein_roth", (0.5, -2.0), 0.0),
        ("powell badly scaled", "powell_badly_scaled", (0.0, 1.0), 0.0),
        ("brown badly scaled", "brown_badly_scaled", (1.0, 1.0), 0.0),
        ("beale", "beale", (1.0, 1.0), 0.0),
        ("jennrich sampson", "jennrich_sampson", (0.3, 0.4), 124.36218236, (1, 10)),
        ("helical valley", "helical_valley", (-1.0, 0.0, 0.0), 0.0),
        ("bard", "bard", (1.0, 1.0, 1.0), 8.2148773e-3),
        ("gaussian", "gaussian", (0.4, 1.0, 0.0), 1.1279328e-8),
        ("meyer", "meyer", (0.02, 4000.0, 250.0), 87.945855, (1, 10)),
        ("gulf", "gulf", (5.0, 2.5, 0.15), 0.0, (1,)),
        ("box", "box_three_dimensional", (0.0, 10.0, 20.0), 0.0),
        ("powell singular", "powell_singular", (3.0, -1.0, 0.0, 1.0), 0.0),
        ("wood", "wood", (-3.0, -1.0, -3.0, -1.0), 0.0),
        ("kowalik osborne", "kowalik_osborne", (0.25, 0.39, 0.415, 0.39), 3.0750561e-4),
        ("brown dennis", "brown_dennis", (25.0, 5.0, -5.0, -1.0), 85822.201626),
        ("osborne 1", "osborne_1", (0.5, 1.5, -1.0, 0.01, 0.02), 5.4648947e-5),
        ("biggs exp6", "biggs_exp6", (1.0, 2.0, 1.0, 1.0, 1.0, 1.0), 0.0),
        ("osborne 2", "osborne_2", OSBORNE_2_START, 4.0137736e-2),
        ("watson 6", "watson", (0.0,) * 6, 2.2876701e-3, ZERO_TO_ONE),
        ("watson 9", "watson", (0.0,) * 9, 1.3997601e-6, ZERO_TO_ONE),
        ("watson 12", "watson", (0.0,) * 12, 4.7223811e-10, ZERO_TO_ONE),
        ("rosenbrock 10", "rosenbrock", (-1.2, 1.0) * 5, 0.0),
        ("powell singular 12", "powell_singular", (3.0, -1.0, 0.0, 1.0) * 3, 0.0),
        ("penalty 1", "penalty_1", (1.0, 2.0, 3.0, 4.0), 2.2499775e-5),
        ("penalty 2", "penalty_2", (0.5,) * 4, 9.3762932e-6),
        ("variably dimensioned", "variably_dimensioned", _ramp(10, lambda j: 1 - j / 10), 0.0),
        ("trigonometric", "trigonometric", (0.1,) * 10, 0.0),
        ("brown almost linear", "brown_almost_linear", (0.5,) * 10, 0.0),
        ("boundary value", "discrete_boundary_value", _boundary_start(10), 0.0),
        ("integral", "discrete_integral", _boundary_start(10), 0.0),
        ("broyden tridiagonal", "broyden_tridiagonal", (-1.0,) * 10, 0.0),
        ("broyden banded", "broyden_banded", (-1.0,) * 10, 0.0),
        ("linear full rank", "linear_full_rank", (1.0,) * 9, 9.0),
        ("linear rank 1", "linear_rank_1", (1.0,) * 7, 14 * 13 / 58),
        ("linear rank 1 zeros", "linear_rank_1_with_zeros", (1.0,) * 7, 232 / 50),
        ("chebyquad 8", "chebyquad", _ramp(8, lambda j: j / 9), 3.5168737e-3, (1, 10)),
        ("bdqrtic", "bdqrtic", (1.0,) * 8, 10.238973),
        ("cube", "cube", (0.5,) * 5, 0.0),
        ("bratu 24", "bratu", (0.0,) * 24, 0.0, ZERO_TO_ONE),
        ("bratu 60", "bratu", (0.0,) * 60, 0.0, ZERO_TO_ONE),
    )
)
BY_NAME = {problem.name: problem for problem in PROBLEMS}
