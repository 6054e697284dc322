"""How everything looks: sizes, fonts, and one colour, line and marker per method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deceptron.study.entries import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from deceptron.study.records import MethodRecord

# Widths in inches of one column and of the text block of a two-column page.
COLUMN = 3.3
PAGE = 6.9

MISSING = "#E6E6E6"
RATES = "cividis"  # colour map of success rates, 0 to 1
SPARE_COLORS = (GREEN, PURPLE, SKY, BLUE, VERMILION, ORANGE, BLACK)  # for those without one
SPARE_MARKERS = "osD^vPX*ph<>"

RC: Any = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.4,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.03,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # letters stay letters, for search and for screen readers
    "svg.hashsalt": "deceptron",
}


@dataclass(frozen=True)
class Series:
    """A method, on a pair trained with or without JCP, and how it looks."""

    label: str
    method: str
    color: str
    dashes: tuple[float, ...] = ()
    marker: str = "o"
    filled: bool = True
    jcp: bool = True
    width: float = 1.1

    @classmethod
    def of(cls, method: MethodRecord, spare: int) -> Series:
        """As the study declared it; ``spare`` chooses a colour and marker where it did not."""
        color, marker = method.color, method.marker
        if not color:
            color = SPARE_COLORS[spare % len(SPARE_COLORS)]
            marker = SPARE_MARKERS[spare % len(SPARE_MARKERS)]
        look = (color, tuple(method.dashes), marker, method.filled)
        return cls(method.name, method.name, *look, width=method.width)

    def look(self, *, marker: bool = False) -> dict[str, Any]:
        """Keywords for ``Axes.plot``."""
        return {
            "label": self.label,
            "color": self.color,
            "linestyle": (0, self.dashes) if self.dashes else "-",
            "linewidth": self.width,
            "marker": self.marker if marker else None,
            "zorder": 2.5 if self.dashes else 2,  # through its gaps what it covers is seen
            "markerfacecolor": self.color if self.filled else "white",
        }


def short(problem: str) -> str:
    """The problem's name on two lines, for narrow columns."""
    name, dash, dimension = problem.rpartition("-")
    name = name.replace("advection-diffusion", "adv.-diff.")
    return f"{name}\n{dimension}" if dash else dimension
