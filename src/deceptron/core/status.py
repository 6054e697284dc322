"""How a row of a solve ended, in words that tell the user what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


def _with_members(kind: type[IntEnum], words: Mapping[Any, str]) -> str:
    """The docstring with a line for each member, from the words that the program uses."""
    lines = "\n".join(f"        {member.name}: {words[member]}" for member in kind)
    return f"{kind.__doc__}\n\n    Attributes:\n{lines}\n    "


class Status(IntEnum):
    """How a row ended: ``dc.Status(int(solution.status[0]))``; ``advice`` says what to do."""

    CONVERGED = 0
    STEP_LIMIT = 1
    STALLED = 2
    NONFINITE = 3
    INTERRUPTED = 4

    @property
    def advice(self) -> str:
        """One or two sentences: what happened and what usually helps."""
        return _STATUS_ADVICE[self]


_STATUS_ADVICE = {
    Status.CONVERGED: "A stopping rule was met; solution.reason says which.",
    Status.STEP_LIMIT: (
        "The step limit was reached before a stopping rule was met. Raise max_iterations, loosen "
        "the tolerance, or state noise_std so that rows stop at the noise level. The answers of "
        "one-shot and wiener, which take no steps, do not meet the rule."
    ),
    Status.STALLED: (
        "No further step helped. If solution.over_noise is near 1, the answer fits the data as "
        "well as the noise allows. If it is far above 1, check noise_std, pass forward=simulator "
        "if the solve was on the surrogate, or try method='lm' from this x (x0=)."
    ),
    Status.NONFINITE: (
        "Every sensor is missing, or the observation, the start or every trial step gave NaN or "
        "infinity. Check the row's data, the bounds and the simulator at this x; the last finite "
        "x is returned."
    ),
    Status.INTERRUPTED: "The callback ended the run before this row was done.",
}
Status.__doc__ = _with_members(Status, _STATUS_ADVICE)


class Reason(IntEnum):
    """Why a row stopped, finer than its status: ``dc.Reason(int(solution.reason[0])).words``."""

    TOLERANCE = 0
    RELATIVE_TOLERANCE = 1
    DISCREPANCY = 2
    GRADIENT = 3
    DIRECT = 4
    STEP_LIMIT = 5
    NO_ACCEPTED_TRIAL = 6
    NONFINITE_OBSERVATION = 7
    NONFINITE_START = 8
    NONFINITE_TRIALS = 9
    CALLBACK = 10
    NO_PROGRESS = 11
    SMALL_DECREASE = 12
    SMALL_STEP = 13
    SURROGATE_LIMIT = 14
    NO_DATA = 15
    NOISIER = 16
    START_IS_BETTER = 17

    @property
    def status(self) -> Status:
        """The status this reason belongs to."""
        return _ABOUT[self][0]

    @property
    def words(self) -> str:
        """What it means, in a few words."""
        return _ABOUT[self][1]


_ABOUT: dict[Reason, tuple[Status, str]] = {
    Reason.TOLERANCE: (Status.CONVERGED, "residual down to the tolerance"),
    Reason.RELATIVE_TOLERANCE: (Status.CONVERGED, "residual down to relative_tolerance"),
    Reason.DISCREPANCY: (Status.CONVERGED, "explained to the noise"),
    Reason.GRADIENT: (Status.CONVERGED, "stationary: the gradient has vanished"),
    Reason.DIRECT: (Status.CONVERGED, "a direct method, without a stopping rule"),
    Reason.STEP_LIMIT: (Status.STEP_LIMIT, "the step limit was reached"),
    Reason.NO_ACCEPTED_TRIAL: (Status.STALLED, "no trial step was accepted"),
    Reason.NONFINITE_OBSERVATION: (Status.NONFINITE, "the observation is not finite"),
    Reason.NONFINITE_START: (Status.NONFINITE, "the start, or the prediction there, is not finite"),
    Reason.NONFINITE_TRIALS: (Status.NONFINITE, "every trial step gave NaN or infinity"),
    Reason.CALLBACK: (Status.INTERRUPTED, "ended by the callback"),
    Reason.NO_PROGRESS: (
        Status.STALLED,
        "steps no longer help, and the residual is above the noise",
    ),
    Reason.SMALL_DECREASE: (
        Status.CONVERGED,
        "stationary: further steps would not lower the misfit",
    ),
    Reason.SMALL_STEP: (Status.CONVERGED, "stationary: further steps would not move x"),
    Reason.SURROGATE_LIMIT: (
        Status.STALLED,
        "fits to the accuracy of the surrogate, but not to the noise: pass forward=",
    ),
    Reason.NO_DATA: (Status.NONFINITE, "no usable data: every sensor is missing"),
    Reason.NOISIER: (
        Status.STALLED,
        "explained only if the noise is larger than assumed: check noise_std, and look for wrong "
        "sensors with dc.outliers; if both are right, the answer is not",
    ),
    Reason.START_IS_BETTER: (
        Status.STALLED,
        "left at its start, which does not explain the data: other answers were less plausible, or "
        "did not help on validation rows (several x give the same y, or the surrogate is "
        "inaccurate: pass forward=)",
    ),
}
Reason.__doc__ = _with_members(Reason, {reason: reason.words for reason in Reason})
