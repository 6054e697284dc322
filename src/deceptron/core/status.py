"""How a row of a solve ended, in words that tell the user what to do next."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """The outcome of one row; ``status.advice`` is what a user needs to hear about it."""

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
    Status.CONVERGED: "A stopping rule was met.",
    Status.STEP_LIMIT: (
        "The step limit came before any stopping rule. Raise max_iterations, loosen the "
        "tolerance, or state noise_std so that the solve stops at the noise level. A direct "
        "method takes no steps: its one answer missed the rule."
    ),
    Status.STALLED: (
        "No trial step was accepted, or steps no longer helped. The row is at a minimum of its "
        "loss, or the learned step no longer descends there: compare its residual with the "
        "noise. If it is above, pass forward=simulator (the surrogate may not reach this row), "
        "or try method='guarded' or 'lm' started from this x."
    ),
    Status.NONFINITE: (
        "The observation, the starting point or every trial gave NaN or infinity. Check the "
        "row's data, the bounds and the maps at this x; the last finite x is returned."
    ),
    Status.INTERRUPTED: "The callback ended the run before this row was done.",
}


class Reason(IntEnum):
    """Why a row stopped, finer than its status: the rule that fired."""

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
        return _STATUS_OF_REASON[self]

    @property
    def words(self) -> str:
        """What it means, in a few words."""
        return _WORDS[self]


_STATUS_OF_REASON = {
    Reason.TOLERANCE: Status.CONVERGED,
    Reason.RELATIVE_TOLERANCE: Status.CONVERGED,
    Reason.DISCREPANCY: Status.CONVERGED,
    Reason.GRADIENT: Status.CONVERGED,
    Reason.DIRECT: Status.CONVERGED,
    Reason.STEP_LIMIT: Status.STEP_LIMIT,
    Reason.NO_ACCEPTED_TRIAL: Status.STALLED,
    Reason.NONFINITE_OBSERVATION: Status.NONFINITE,
    Reason.NONFINITE_START: Status.NONFINITE,
    Reason.NONFINITE_TRIALS: Status.NONFINITE,
    Reason.CALLBACK: Status.INTERRUPTED,
    Reason.NO_PROGRESS: Status.STALLED,
    Reason.SMALL_DECREASE: Status.CONVERGED,
    Reason.SMALL_STEP: Status.CONVERGED,
    Reason.SURROGATE_LIMIT: Status.STALLED,
    Reason.NO_DATA: Status.NONFINITE,
    Reason.NOISIER: Status.STALLED,
    Reason.START_IS_BETTER: Status.STALLED,
}

_WORDS = {
    Reason.TOLERANCE: "residual at the tolerance",
    Reason.RELATIVE_TOLERANCE: "residual at its share of the first",
    Reason.DISCREPANCY: "explained to the noise",
    Reason.GRADIENT: "stationary: no gradient left",
    Reason.DIRECT: "a direct answer, no rule to meet",
    Reason.STEP_LIMIT: "step limit",
    Reason.NO_ACCEPTED_TRIAL: "no trial step was accepted",
    Reason.NONFINITE_OBSERVATION: "the observation is not finite",
    Reason.NONFINITE_START: "the start, or the prediction there, is not finite",
    Reason.NONFINITE_TRIALS: "every trial was not finite",
    Reason.CALLBACK: "ended by the callback",
    Reason.NO_PROGRESS: "steps no longer help, and more than the noise is left",
    Reason.SMALL_DECREASE: "stationary: no decrease left",
    Reason.SMALL_STEP: "stationary: no step left",
    Reason.SURROGATE_LIMIT: "at the surrogate's limit, above the noise: pass forward=",
    Reason.NO_DATA: "no usable data: every sensor is missing",
    Reason.NOISIER: "explained, but only by more noise than was stated: check noise_std",
    Reason.START_IS_BETTER: (
        "left at its start, which does not explain the data: corrections lead away from the truth, "
        "as where several x give one y"
    ),
}
