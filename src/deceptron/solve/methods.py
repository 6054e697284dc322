"""The methods by name: each is a descent, a search and a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from deceptron.core.checks import check_choice, check_count, check_range
from deceptron.core.errors import ConfigError, unknown_name
from deceptron.solve.conjugate_gradients import ConjugateGradients
from deceptron.solve.dense import Dense
from deceptron.solve.descents.by_values import ByValues
from deceptron.solve.descents.gauss_newton import FixedDamping, SearchedDamping
from deceptron.solve.descents.guarded import Guarded
from deceptron.solve.descents.lbfgs import LBFGS, MEMORY
from deceptron.solve.descents.posterior import LINEARISATIONS, Posterior, ScoreDecrease
from deceptron.solve.descents.reverse import Difference, Published, Tangent
from deceptron.solve.descents.steepest import Steepest
from deceptron.solve.protocols import Descent, LinearSolver, Search
from deceptron.solve.searches import AdaptiveDamping, Armijo, Decrease, Wolfe
from deceptron.solve.span import Directions

Linear = Literal["auto", "cg", "dense"]

# Up to this many unknowns the dense Jacobian takes at most half the time of CG to equal accuracy
# where f is cheap (64 rows; one row: a fifth). Beyond, n products a step are too many of a dear f.
DENSE_LIMIT = 64


@dataclass(frozen=True)
class Method:
    """A named way to solve; pass one to ``dc.solve(method=...)`` to change its settings.

    Attributes:
        name: as ``dc.solve`` knows it.
        descent: which way to go; a function of the number of unknowns, because the best linear
            solver depends on it.
        search: how far, and whether to take the step.
        start: where rows begin unless the caller gives x0: at zero, at g(y*), there where it is
            finite and at zero elsewhere, or at the ridge estimate.
        direct: the start is the answer; there are no steps.
        needs_reverse: whether it asks g.
        assumes_noise: the noise that the pair was trained for is the default.
        max_iterations: accepted steps a row may take, unless the caller says otherwise.
        gradient_tolerance: the default rule; None means the square root of the dtype's precision,
            0 switches it off.
        knows_minima: it has a local model of what is left to gain, and stops by that instead.
        progress: where the noise is known, a step that lowers the misfit by less than this share
            is a row's last.
        secants: directions that it tries where the forward map has no derivatives; without them it
            takes the surrogate's.
        surrogate_margin: how many times the surrogate's RMS error counts as noise: the error
            differs from row to row, and twice its RMS covers most rows.
        corrects: rows are answered by their laws (``solve/descents/posterior.py``) where noise and
            laws are known.
        reverse_price: what a pass through g costs then, in products with the Jacobian.
    """

    name: str
    descent: Callable[[int], Descent[Any]]
    search: Search[Any]
    start: Literal["zero", "reverse", "finite reverse", "wiener"] = "zero"
    direct: bool = False
    needs_reverse: bool = False
    assumes_noise: bool = False
    max_iterations: int = 200
    gradient_tolerance: float | None = None
    knows_minima: bool = False
    progress: float | None = None
    secants: Directions | None = None
    surrogate_margin: float = 1.0
    corrects: bool = False
    reverse_price: float = 0.0


def d_ipg(relaxation: float = 0.4, search: Armijo | None = None) -> Method:
    """D-IPG, Algorithm 1 of the paper, exactly.

    Args:
        relaxation: share of the way to the proposal that a step goes, rho in the paper.
        search: the line search; by default that of the paper.
    """
    descent = Published(relaxation)
    return Method(
        name="d-ipg",
        descent=lambda n: descent,
        search=search or Armijo(require_descent=False),
        needs_reverse=True,
        gradient_tolerance=0.0,
    )


def d_ipg_difference(relaxation: float = 1.0, search: Armijo | None = None) -> Method:
    """D-IPG with steps g(y_t - a r_t) - g(y_t), which vanish with the step size a.

    Args:
        relaxation: share of such a step that is taken.
        search: the line search.
    """
    descent = Difference(relaxation)
    return Method(
        name="d-ipg-difference",
        descent=lambda n: descent,
        search=search or Armijo(),
        needs_reverse=True,
    )


def d_ipg_tangent(search: Armijo | None = None) -> Method:
    """D-IPG with steps -a J_g r: one jvp through g for each accepted point.

    Args:
        search: the line search.
    """
    return Method(
        name="d-ipg-tangent",
        descent=lambda n: Tangent(),
        search=search or Armijo(),
        needs_reverse=True,
    )


def guarded(
    *,
    reverse_price: float = 0.0,
    quality: float = 0.5,
    directions: Directions | None = None,
    cg_steps: int = 20,
    cg_tolerance: float = 0.05,
    progress: float | None = 0.02,
    search: Armijo | None = None,
) -> Method:
    """The default: g(y), or what a law makes of it and the data (``docs/ideas``).

    All settings but the first are those of the safeguarded steps that it takes instead if the noise
    is not known, or if a stopping rule other than the noise, a start or a prior is given. They
    converge for any g (proof in ``solve/descents/guarded.py``).

    Args:
        reverse_price: what a pass through g costs, in products with the simulator's Jacobian
            (``dc.reverse_price`` measures it). By default g is free beside the simulator. Where it
            is not, a direction that the network suggests must gain more to be tried again: faster,
            and somewhat less accurate. For simulators with derivatives, beyond 42 unknowns.
        quality: a learned step is taken alone while it leaves at most this share of the residual.
        directions: how many learned directions a step may combine, and when one more pays.
        cg_steps: most conjugate-gradient steps of an inner solve.
        cg_tolerance: relative residual at which an inner solve stops.
        progress: where the noise is known, a step that lowers the misfit by less than this share is
            a row's last.
        search: the line search.
    """
    linear = ConjugateGradients(check_count("cg_steps", cg_steps), cg_tolerance, to_noise=True)
    directions = directions or Directions()
    descent = Guarded(linear, directions, quality)
    return Method(
        name="guarded",
        descent=lambda n: descent,
        search=search or Armijo(max_backtracks=30),
        start="finite reverse",
        needs_reverse=True,
        assumes_noise=True,
        max_iterations=500,
        progress=progress,
        # Where there is no rung below them, half as much pays.
        secants=replace(directions, pays=directions.pays / 2),
        surrogate_margin=2.0,
        corrects=True,
        reverse_price=check_range("reverse_price", reverse_price, low=0.0),
    )


def believing(method: Method, descent: Posterior) -> Method:
    """The same, rows answered by the law that they are believed to follow."""
    return replace(
        method,
        descent=lambda n: descent,
        search=ScoreDecrease(guesses=descent.beliefs.start is not None),
        max_iterations=LINEARISATIONS,
        gradient_tolerance=0.0,
        progress=None,
    )


def by_values(method: Method) -> Method:
    """The same for a forward map without derivatives, which can tell no stationary point.

    A step costs up to a dozen evaluations, so one that gains little is the last sooner.
    """
    if method.secants is None:
        return replace(method, gradient_tolerance=0.0, knows_minima=False)
    descent = ByValues(method.secants)
    return replace(
        method,
        descent=lambda n: descent,
        search=Decrease(),
        max_iterations=10,
        gradient_tolerance=0.0,
        knows_minima=False,
        progress=0.05,
    )


def gradient_descent(*, of_mean: bool = False, search: Armijo | None = None) -> Method:
    """Projected gradient descent; the step size carries over from step to step.

    Args:
        of_mean: take the gradient of the mean square instead of the sum, as the paper does.
        search: the line search.
    """
    # Where the curvature is L, a step of size a lowers the objective by the share 1 - a L / 2 of
    # its slope. Asking for a quarter keeps a below 1.5 / L; next to 2 / L steps bounce between the
    # walls of a valley, and a decrease of less than round-off is no progress.
    return Method(
        name="gd",
        descent=lambda n: Steepest(of_mean),
        search=search or Armijo(carry=True, max_backtracks=40, sufficient_decrease=0.25),
        max_iterations=1000,
        knows_minima=True,
    )


def gauss_newton(
    *,
    relaxation: float = 1.0,
    linear: Linear = "auto",
    cg_steps: int = 100,
    cg_tolerance: float = 1e-6,
    search: Armijo | None = None,
) -> Method:
    """Undamped Gauss-Newton with backtracking.

    Args:
        relaxation: share of each step that is taken.
        linear: ``"dense"`` forms the Jacobian, ``"cg"`` does not; ``"auto"`` forms it for few
            unknowns.
        cg_steps: most conjugate-gradient steps of an inner solve.
        cg_tolerance: relative residual at which an inner solve stops.
        search: the line search.
    """
    return Method(
        name="gn",
        descent=lambda n: FixedDamping(
            _linear(n, linear, cg_steps, cg_tolerance), damping=0.0, relaxation=relaxation
        ),
        search=search or Armijo(max_backtracks=20),
        knows_minima=True,
    )


def levenberg_marquardt(
    *,
    damping: float | None = None,
    relaxation: float = 1.0,
    linear: Linear = "auto",
    cg_steps: int = 100,
    cg_tolerance: float = 1e-6,
    search: AdaptiveDamping | Armijo | None = None,
) -> Method:
    """Levenberg-Marquardt.

    Args:
        damping: a fixed damping; by default it adapts to how well steps do.
        relaxation: share of each step that is taken, with a fixed damping only.
        linear: ``"dense"`` forms the Jacobian, ``"cg"`` does not; ``"auto"`` forms it for few
            unknowns.
        cg_steps: most conjugate-gradient steps of an inner solve.
        cg_tolerance: relative residual at which an inner solve stops.
        search: rules of the damping, or with a fixed one the line search.
    """
    wanted = AdaptiveDamping if damping is None else Armijo
    if search is not None and not isinstance(search, wanted):
        raise ConfigError(
            f"levenberg_marquardt(search=...) must be {wanted.__name__} when damping is {damping}; "
            f"got {type(search).__name__}"
        )
    if damping is None and relaxation != 1:
        raise ConfigError(
            f"levenberg_marquardt(relaxation=...) needs a fixed damping; got {relaxation}"
        )
    if damping is None:
        return Method(
            name="lm",
            descent=lambda n: SearchedDamping(_linear(n, linear, cg_steps, cg_tolerance)),
            search=search or AdaptiveDamping(),
            knows_minima=True,
        )
    return Method(
        name="lm",
        descent=lambda n: FixedDamping(
            _linear(n, linear, cg_steps, cg_tolerance), damping=damping, relaxation=relaxation
        ),
        search=search or Armijo(),
        knows_minima=True,
    )


def l_bfgs(memory: int = MEMORY, search: Wolfe | Armijo | None = None) -> Method:
    """Limited-memory BFGS; needs f and its gradient only.

    Args:
        memory: steps that the estimate of the curvature remembers.
        search: the line search; by default one by the Wolfe conditions.
    """
    descent = LBFGS(memory)
    return Method(
        name="l-bfgs",
        descent=lambda n: descent,
        search=search or Wolfe(),
        max_iterations=500,
        knows_minima=True,
    )


def one_shot() -> Method:
    """The reverse map alone, x = g(y)."""
    return Method(
        name="one-shot",
        descent=lambda n: Steepest(),
        search=Armijo(),
        start="reverse",
        direct=True,
        needs_reverse=True,
    )


def wiener() -> Method:
    """The best linear estimate from the training data, a ridge regression that the pair carries."""
    return Method(
        name="wiener", descent=lambda n: Steepest(), search=Armijo(), start="wiener", direct=True
    )


def _linear(n: int, kind: Linear, cg_steps: int, cg_tolerance: float) -> LinearSolver:
    check_choice("linear", kind, ("auto", "cg", "dense"))
    if kind == "dense" or (kind == "auto" and n <= DENSE_LIMIT):
        return Dense()
    return ConjugateGradients(check_count("cg_steps", cg_steps), cg_tolerance)


METHODS: dict[str, Callable[[], Method]] = {
    "guarded": guarded,
    "d-ipg": d_ipg,
    "d-ipg-difference": d_ipg_difference,
    "d-ipg-tangent": d_ipg_tangent,
    "gd": gradient_descent,
    "gn": gauss_newton,
    "lm": levenberg_marquardt,
    "l-bfgs": l_bfgs,
    "one-shot": one_shot,
    "wiener": wiener,
}


def published(name: str) -> Method:
    """A method with the settings of the paper's experiments, where they differ from ours.

    GN and LM relax by 0.4 and backtrack at most 8 times from a full step; LM's damping is fixed at
    1e-2, CG makes at most 30 steps. Gradient descent starts each step at 1 along the gradient of
    the mean square. Rows stop by the gradient over that of the start.

    Args:
        name: ``"d-ipg"``, ``"gd"``, ``"gn"``, ``"lm"`` or ``"l-bfgs"``.
    """
    variants: dict[str, Callable[[], Method]] = {
        "d-ipg": d_ipg,
        "gd": lambda: gradient_descent(of_mean=True, search=Armijo()),
        "gn": lambda: gauss_newton(relaxation=0.4, linear="cg", cg_steps=30, search=Armijo()),
        "lm": lambda: levenberg_marquardt(
            damping=1e-2, relaxation=0.4, linear="cg", cg_steps=30, search=Armijo()
        ),
        "l-bfgs": lambda: l_bfgs(memory=20),
    }
    if name not in variants:
        raise unknown_name("published method", name, variants)
    return replace(variants[name](), knows_minima=False)


def get_method(method: str | Method) -> Method:
    """Resolve a name; a ``Method`` passes through."""
    if isinstance(method, Method):
        return method
    name = method.lower() if isinstance(method, str) else None
    if name not in METHODS:
        raise unknown_name("method", method, METHODS)
    return METHODS[name]()
