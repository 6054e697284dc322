"""The words of a study, in the order in which tables and figures show them."""

from __future__ import annotations

PROBLEMS = (
    "heat-1d",
    "heat-2d",
    "heat-3d",
    "darcy-2d",
    "advection-diffusion-2d",
    "allen-cahn-2d",
    "navier-stokes-2d",
)
SETS = ("test", "shifted", "extreme")

# The number of JCP probes in stage 3; varied on allen-cahn-2d.
PROBE_MODELS = {f"paper-probes-{count}": count for count in (1, 2, 4, 8)}
# "-plain" continues the same stage-2 state without JCP.
MODELS = ("standard", "standard-plain", "paper", "paper-plain", *PROBE_MODELS)

# D-IPG's first step size, beside the published 1.0; varied on allen-cahn-2d.
STEP_SIZE_METHODS = {f"d-ipg a={size:g}": size for size in (0.1, 0.3, 1.5)}
# Direct; D-IPG with the paper's tolerance; the same without any tolerance; the classics in the
# paper's settings; everything as this library would run it (stop at the noise level); the true
# simulator in the objective, without and with the prior; the classics with both, from the prior's
# mean.
METHODS = (
    "one-shot",
    "wiener",
    "d-ipg",
    *STEP_SIZE_METHODS,
    "d-ipg-free",
    "gd",
    "gn",
    "lm",
    "l-bfgs",
    "d-ipg-tuned",
    "gn-tuned",
    "lm-tuned",
    "l-bfgs-tuned",
    "guarded",
    "lm-true",
    "guarded-true",
    "gn-prior",
    "guarded-prior",
    "gn-cold",
    "lm-cold",
    "l-bfgs-cold",
)
# A cell of this method holds no solves but the first latents and observations of its set.
TRUTH = "truth"
