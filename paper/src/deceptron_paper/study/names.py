"""The words of a study that no entry declares: sets, models and what is varied."""

from __future__ import annotations

SETS = ("test", "shifted", "extreme")

# The number of JCP probes in stage 3; varied on allen-cahn-2d.
PROBE_MODELS = {f"paper-probes-{count}": count for count in (1, 2, 4, 8)}
# "-plain" continues the same stage-2 state without JCP.
MODELS = ("standard", "standard-plain", "paper", "paper-plain", *PROBE_MODELS)

# D-IPG's first step size, beside the published 1.0; varied on allen-cahn-2d.
STEP_SIZE_METHODS = {f"d-ipg a={size:g}": size for size in (0.1, 0.3, 1.5)}
# A cell of this method holds no solves but the first latents and observations of its set.
TRUTH = "truth"
