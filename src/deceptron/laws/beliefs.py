"""Everything that is believed of a row before its data: its laws, and how likely each kind is."""

from __future__ import annotations

from dataclasses import dataclass

from deceptron.laws.data import DataLaws
from deceptron.laws.law import Laws
from deceptron.laws.odds import Odds
from deceptron.laws.start import StartLaw


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What ``calibrate`` fits; the default solver and its error bars rest on it.

    Attributes:
        corrections: laws about the row's own start.
        family: laws about the mean of the family; None where its covariance is not known.
        data: what these say of data, in one basis or two; empty where they do not.
        start: the law of rows like the training data, given start and fit; None where it does not
            pay.
        surrogate, simulator: odds of the kinds, for answers on f and on the simulator.
    """

    corrections: Laws
    family: Laws | None
    data: tuple[DataLaws, ...]
    start: StartLaw | None
    surrogate: Odds
    simulator: Odds

    def odds(self, *, on_surrogate: bool) -> Odds:
        """Those of the map that is solved on."""
        return self.surrogate if on_surrogate else self.simulator
