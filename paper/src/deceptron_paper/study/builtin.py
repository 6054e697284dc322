"""The studies that the library knows by name."""

from __future__ import annotations

from pathlib import Path

from deceptron.core import unknown_name
from deceptron_paper.study.entries import PROBLEMS
from deceptron_paper.study.file import load_study
from deceptron_paper.study.grid import PROBE_PROBLEM, Block, Study
from deceptron_paper.study.names import PROBE_MODELS, SETS, STEP_SIZE_METHODS

_PROBES, _STEP_SIZES = tuple(PROBE_MODELS), tuple(STEP_SIZE_METHODS)
_OTHER_SEEDS = (8, 9)
_SEEDS = (7, *_OTHER_SEEDS)
_OFF = ("shifted", "extreme")
_COLD = ("gn-cold", "lm-cold", "l-bfgs-cold")
_BRANCHES = ("standard-plain", "paper", "paper-plain")


def quick() -> Study:
    """Everything once, on a handful of instances: a check that the whole chain works."""
    few, steps = 4, 10
    return Study(
        name="quick",
        small=True,
        missing_models="smoke",
        blocks=(
            Block(methods=("one-shot",), sets=SETS, instances=8, error_bars=2),
            Block(
                methods=("wiener", "d-ipg", "d-ipg-tuned"),
                sets=SETS,
                instances=8,
                max_iterations=steps,
            ),
            Block(methods=("d-ipg-free",), instances=8, max_iterations=steps),
            Block(
                methods=("one-shot", "d-ipg", "d-ipg-free"),
                models=_BRANCHES,
                instances=8,
                max_iterations=steps,
            ),
            Block(methods=("gd", "l-bfgs", "l-bfgs-tuned"), instances=few, max_iterations=6),
            Block(methods=("guarded",), sets=SETS, instances=few, max_iterations=6, error_bars=2),
            Block(methods=("gd", "l-bfgs"), models=("paper",), instances=few, max_iterations=6),
            # A Newton step is up to sixty evaluations, and an instance alone costs a batch.
            Block(
                methods=("gn", "lm"), models=("standard", "paper"), instances=2, max_iterations=2
            ),
            Block(
                methods=("gn-tuned", "lm-tuned", "lm-true", "guarded-true", "gn-prior"),
                instances=2,
                max_iterations=2,
            ),
            Block(methods=("guarded-prior", *_COLD), instances=2, max_iterations=1),
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
    """The paper's tables and figures and more: seven problems, three sets, three seeds where pairs
    exist.

    Counts follow what an instance costs: milliseconds for the network alone, a second for a
    Newton method on the surrogate, up to ten with the simulator.
    """
    return Study(
        name="full",
        blocks=(
            Block(methods=("one-shot",), sets=SETS, instances=300, error_bars=16),
            Block(methods=("wiener", "d-ipg"), sets=SETS, instances=300),
            Block(methods=("d-ipg-tuned", "l-bfgs-tuned"), sets=SETS, instances=80),
            # Off distribution the surrogate cannot be fitted to the noise: every step is taken.
            Block(methods=("lm-tuned",), instances=80),
            Block(methods=("lm-tuned",), sets=_OFF, instances=24),
            Block(methods=("guarded",), instances=80, error_bars=16),
            Block(methods=("guarded",), sets=_OFF, instances=24, error_bars=16),
            Block(methods=("guarded-true",), sets=SETS, instances=48, error_bars=16),
            Block(methods=("lm-true", "gn-prior"), sets=SETS, instances=16),
            Block(methods=("d-ipg-free", "gd", "l-bfgs"), instances=80),
            Block(methods=("gn", "lm", "gn-tuned"), instances=16),
            # With and without JCP, and the published protocol with its own baselines.
            Block(methods=("one-shot", "wiener", "d-ipg"), models=_BRANCHES, instances=300),
            Block(methods=("d-ipg-free",), models=_BRANCHES, instances=80),
            Block(methods=("gd", "l-bfgs", "l-bfgs-tuned"), models=("paper",), instances=80),
            Block(methods=("gn", "lm", "lm-tuned"), models=("paper",), instances=16),
            # Other seeds: other data, other weights.
            Block(
                methods=("one-shot", "wiener", "d-ipg"),
                models=("standard", "standard-plain"),
                seeds=_OTHER_SEEDS,
                instances=300,
            ),
            Block(methods=("l-bfgs", "guarded"), seeds=_OTHER_SEEDS, instances=40),
            Block(methods=("lm", "lm-tuned"), seeds=_OTHER_SEEDS, instances=12),
            Block(
                problems=("heat-1d",),  # where the published protocol takes a minute
                methods=("one-shot", "wiener", "d-ipg"),
                models=("paper", "paper-plain"),
                seeds=_OTHER_SEEDS,
                instances=300,
            ),
            Block(
                problems=(PROBE_PROBLEM,),
                methods=("one-shot", "d-ipg"),
                models=_PROBES,
                instances=300,
            ),
            Block(
                problems=(PROBE_PROBLEM,),
                methods=_STEP_SIZES,
                models=("standard", "paper"),
                instances=80,
            ),
        ),
    )


def guarded() -> Study:
    """Past the paper: the guarded solver against networks and cold starts, three seeds.

    A cold start takes hundreds of evaluations of the simulator, so it is given fewer instances,
    and LM and L-BFGS compete in distribution only.
    """
    fewer = {"darcy-2d": 32, "allen-cahn-2d": 32, "navier-stokes-2d": 10}
    cheap = tuple(name for name in PROBLEMS if name not in fewer)
    counts = ((cheap, 64), *(((name,), count) for name, count in fewer.items()))
    return Study(
        name="guarded",
        blocks=(
            Block(methods=("one-shot", "guarded-true"), sets=SETS, seeds=_SEEDS, instances=300),
            Block(methods=("wiener", "d-ipg", "guarded"), seeds=_SEEDS, instances=300),
            Block(methods=("wiener", "d-ipg", "guarded"), sets=_OFF, instances=48),
            *(
                Block(problems=p, methods=("gn-cold",), sets=SETS, seeds=_SEEDS, instances=n)
                for p, n in counts
            ),
            *(Block(problems=p, methods=_COLD[1:], seeds=_SEEDS, instances=n) for p, n in counts),
            *(
                Block(problems=p, methods=("guarded-prior",), sets=SETS, instances=n)
                for p, n in counts
            ),
        ),
    )


STUDIES = {"quick": quick, "full": full, "guarded": guarded}


def get_study(name: str) -> Study:
    """A study by its name, or from a TOML file."""
    if name.endswith(".toml"):
        return load_study(Path(name))
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]()
