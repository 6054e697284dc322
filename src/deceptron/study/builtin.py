"""The two studies that the library knows by name."""

from __future__ import annotations

from pathlib import Path

from deceptron.core.errors import unknown_name
from deceptron.study.file import load_study
from deceptron.study.grid import PROBE_PROBLEM, Block, Study
from deceptron.study.names import PROBE_COUNTS, SETS, STEP_SIZES

_PROBES = tuple(f"paper-probes-{count}" for count in PROBE_COUNTS)
_STEP_SIZES = tuple(f"d-ipg a={size:g}" for size in STEP_SIZES)
_D_IPG = ("one-shot", "wiener", "d-ipg", "d-ipg-free")
_PAPER_CLASSICS = ("gd", "gn", "lm", "l-bfgs")
_TUNED = ("gn-tuned", "lm-tuned", "l-bfgs-tuned")
_BRANCHES = ("standard-plain", "paper", "paper-plain")


def quick() -> Study:
    """Everything once, on a handful of instances: a check that the whole chain works."""
    few, steps = 4, 12
    return Study(
        name="quick",
        small=True,
        missing_models="smoke",
        blocks=(
            Block(methods=(*_D_IPG, "d-ipg-tuned"), instances=8, sets=SETS, max_iterations=steps),
            Block(methods=_D_IPG, models=_BRANCHES, instances=8, max_iterations=steps),
            Block(methods=(*_PAPER_CLASSICS, *_TUNED, "guarded"), instances=few, max_iterations=6),
            Block(methods=_PAPER_CLASSICS, models=("paper",), instances=few, max_iterations=6),
            Block(methods=("lm-true", "guarded-true", "gn-prior"), instances=2, max_iterations=3),
            Block(
                problems=(PROBE_PROBLEM,),
                models=_PROBES,
                methods=("one-shot", "d-ipg"),
                instances=8,
                max_iterations=steps,
            ),
            Block(
                problems=(PROBE_PROBLEM,),
                models=("standard", "paper"),
                methods=_STEP_SIZES,
                instances=8,
                max_iterations=steps,
            ),
        ),
    )


def full() -> Study:
    """Every table and figure: seven problems, three sets, three seeds where pairs exist."""
    raise NotImplementedError


STUDIES = {"quick": quick, "full": full}


def get_study(name: str) -> Study:
    """A study by its name, or from a TOML file."""
    if name.endswith(".toml"):
        return load_study(Path(name))
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]()
