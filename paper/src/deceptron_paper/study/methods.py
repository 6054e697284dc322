"""How the study runs each method: the solver, its stopping rules and whose physics it sees.

The paper's settings stop at an absolute residual, tuned ones at the level of the noise in the set;
methods with the prior go on to the most probable latent. Tuned Newton methods truncate their inner
solves, which is cheaper and, on ill-posed problems, better than solving them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from deceptron import ConfigError, methods
from deceptron.core import unknown_name
from deceptron.solve.searches import Armijo
from deceptron_paper.study.entries import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
)
from deceptron_paper.study.method_entry import DASHDOT, DASHDOTDOT, DASHED, DOTTED, MethodEntry
from deceptron_paper.study.names import STEP_SIZE_METHODS, TRUTH

D_IPG_ITERATIONS = 80
FREE_ITERATIONS = 40
TUNED_ITERATIONS = 20
ORACLE_ITERATIONS = 15
# Ten steps beat thirty, which beat solving the system: RMSE of lm-tuned on navier-stokes-2d 0.068
# and 0.149, on advection-diffusion-2d 0.033 and 0.24 (thirty steps to 1e-2).
TRUNCATED: dict[str, Any] = {"linear": "cg", "cg_steps": 10, "cg_tolerance": 0.1}
ORACLE_CG: dict[str, Any] = {"linear": "cg", "cg_steps": 12, "cg_tolerance": 1e-2}
# With the prior every system is well posed, and CG should go on. RMSE of Gauss-Newton from the
# prior's mean with at most 30 steps to 0.1 and with 100: navier-stokes-2d 0.0156 and 0.0127,
# allen-cahn-2d 0.034 and 0.014, darcy-2d (shifted, 8 Newton steps) 0.142 and 0.085.
COLD_CG: dict[str, Any] = {"linear": "cg", "cg_steps": 100, "cg_tolerance": 0.03}
# The projected gradient relative to its start. At 1e-2 allen-cahn-2d stops at 1.6 times the noise;
# 1e-3 is below float32's round-off on heat-1d, where line searches then spend 1600 evaluations.
COLD_GRADIENT = 3e-3
COLD_ITERATIONS, COLD_LBFGS_ITERATIONS = 10, 300


def method_entry(label: str) -> MethodEntry:
    """The entry of this name."""
    if label not in ENTRIES:
        raise unknown_name("method", label, ENTRIES)
    return ENTRIES[label]


def declare_method(label: str, entry: MethodEntry) -> None:
    """Let studies run a method of one's own under a name; declaring it again replaces it.

    ``entry.method`` makes the method; where other processes do the work it must be a function of a
    module. What the method is made of must be dataclasses, so that the records can tell two apart.
    """
    if not label or label in (*METHODS, TRUTH):
        raise ConfigError(f"label must not be that of a method of the library; got {label!r}")
    entry.document()
    ENTRIES[label] = entry


def known_methods() -> tuple[str, ...]:
    """All labels, in the order of display."""
    return tuple(ENTRIES)


def _to_the_mode(
    make: Callable[..., methods.Method], **settings: Any
) -> Callable[[], methods.Method]:
    return lambda: replace(make(**settings), gradient_tolerance=COLD_GRADIENT)


_TUNED: dict[str, Any] = {"dashes": DASHED, "filled": False}
_D_IPG: dict[str, Any] = {"color": BLUE, "operation": "f(x), then g(f(x) - a r); Armijo slope"}
_GD: dict[str, Any] = {"color": SKY, "operation": "J' r"}
_GN: dict[str, Any] = {"color": ORANGE, "operation": "solve J'J d = -J' r"}
_LM: dict[str, Any] = {"color": GREEN, "operation": "solve (J'J + mu I) d = -J' r"}
_LBFGS: dict[str, Any] = {"color": PURPLE, "operation": "gradient, two-loop recursion"}
_GUARDED: dict[str, Any] = {
    "color": VERMILION,
    "operation": "learned step or CG, whichever earns its cost",
}
_POSED = {"operation": "solve (J'J / s^2 + C^-1) d = -gradient"}
_TRUE: dict[str, Any] = {"physics": "true", "dashes": DASHDOT}
_PRIOR: dict[str, Any] = {"stop": "never", "physics": "true", "prior": True, "alone": False}
_COLD: dict[str, Any] = {**_PRIOR, "dashes": DASHDOTDOT, "marker": "D"}
_SHADES = ("#9DC3E6", "#5F86A8", "#03305A")  # of D-IPG's blue, darker for longer first steps

ENTRIES: dict[str, MethodEntry] = {
    "one-shot": MethodEntry(
        methods.one_shot,
        "never",
        "the reverse network alone",
        operation="g(y*), once",
        color=BLACK,
        dashes=DASHED,
        marker="D",
    ),
    "wiener": MethodEntry(
        methods.wiener,
        "never",
        "the closed-form ridge estimate from training pairs",
        operation="K (y* - mean) + m, once",
        color=GREY,
        dashes=DOTTED,
        marker="d",
    ),
    "d-ipg": MethodEntry(
        methods.d_ipg, "paper", "Algorithm 1, the paper's tolerance", width=1.8, **_D_IPG
    ),
    **{
        label: MethodEntry(
            partial(methods.d_ipg, search=Armijo(initial_scale=size, require_descent=False)),
            "paper",
            f"Algorithm 1 with first step size {size:g}",
            **{**_D_IPG, "color": shade},
        )
        for (label, size), shade in zip(STEP_SIZE_METHODS.items(), _SHADES, strict=True)
    },
    "d-ipg-free": MethodEntry(
        methods.d_ipg,
        "never",
        f"Algorithm 1 for {FREE_ITERATIONS} steps",
        limit=FREE_ITERATIONS,
        marker=">",
        width=0.7,
        **_D_IPG,
    ),
    **{
        label: MethodEntry(
            partial(methods.published, label),
            "paper",
            f"{words}, the paper's settings",
            marker=marker,
            **look,
        )
        for label, words, marker, look in (
            ("gd", "gradient descent", "v", _GD),
            ("gn", "Gauss-Newton", "s", _GN),
            ("lm", "Levenberg-Marquardt", "^", _LM),
            ("l-bfgs", "L-BFGS", "p", _LBFGS),
        )
    },
    "d-ipg-tuned": MethodEntry(
        methods.d_ipg,
        "noise",
        "Algorithm 1, stopped at the noise level",
        limit=D_IPG_ITERATIONS,
        marker="<",
        **_TUNED,
        **_D_IPG,
    ),
    "gn-tuned": MethodEntry(
        partial(methods.gauss_newton, **TRUNCATED),
        "noise",
        "Gauss-Newton, CG truncated at 10 steps",
        limit=TUNED_ITERATIONS,
        marker="s",
        **_TUNED,
        **_GN,
    ),
    "lm-tuned": MethodEntry(
        partial(methods.levenberg_marquardt, **TRUNCATED),
        "noise",
        "Levenberg-Marquardt, adaptive damping, CG truncated at 10 steps",
        limit=TUNED_ITERATIONS,
        marker="^",
        **_TUNED,
        **_LM,
    ),
    "l-bfgs-tuned": MethodEntry(
        methods.l_bfgs,
        "noise",
        "L-BFGS, stopped at the noise level",
        limit=200,
        marker="p",
        **_TUNED,
        **_LBFGS,
    ),
    "guarded": MethodEntry(
        methods.guarded,
        "noise",
        "the safeguarded learned step, from g(y)",
        marker="*",
        width=1.6,
        **_GUARDED,
    ),
    "lm-true": MethodEntry(
        partial(methods.levenberg_marquardt, **TRUNCATED),
        "noise",
        "lm-tuned on the true simulator",
        limit=TUNED_ITERATIONS,
        marker="P",
        **_TRUE,
        **_LM,
    ),
    "guarded-true": MethodEntry(
        methods.guarded,
        "noise",
        "guarded on the true simulator",
        marker="*",
        filled=False,
        **_TRUE,
        **_GUARDED,
    ),
    "gn-prior": MethodEntry(
        partial(methods.gauss_newton, **ORACLE_CG),
        words="oracle: Gauss-Newton on the true simulator with the prior, from the wiener estimate",
        limit=ORACLE_ITERATIONS,
        start="wiener",
        dashes=DASHDOT,
        marker="X",
        **{**_PRIOR, **_GN, **_POSED, "alone": True},
    ),
    "guarded-prior": MethodEntry(
        _to_the_mode(methods.guarded),
        words="guarded on the true simulator with the prior",
        limit=COLD_ITERATIONS,
        dashes=DASHDOT,
        marker="X",
        width=0.7,
        **{**_PRIOR, **_GUARDED, "operation": _GUARDED["operation"] + ", with the prior"},
    ),
    "gn-cold": MethodEntry(
        _to_the_mode(methods.gauss_newton, **COLD_CG),
        words="Gauss-Newton on the true simulator with the prior, from the prior's mean",
        limit=COLD_ITERATIONS,
        **{**_COLD, **_GN, **_POSED},
    ),
    "lm-cold": MethodEntry(
        _to_the_mode(methods.levenberg_marquardt, **COLD_CG),
        words="Levenberg-Marquardt on the true simulator with the prior, from the prior's mean",
        limit=COLD_ITERATIONS,
        **{**_COLD, **_LM, "operation": "solve (J'J / s^2 + C^-1 + mu I) d = -gradient"},
    ),
    "l-bfgs-cold": MethodEntry(
        _to_the_mode(methods.l_bfgs),
        words="L-BFGS on the true simulator with the prior, from the prior's mean",
        limit=COLD_LBFGS_ITERATIONS,
        **{**_COLD, **_LBFGS, "operation": _LBFGS["operation"] + ", with the prior"},
    ),
}
METHODS = tuple(ENTRIES)  # the library's own
