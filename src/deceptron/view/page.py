"""One self-contained HTML page about a solved file; nothing on it comes from elsewhere."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from deceptron.core.errors import ConfigError
from deceptron.core.files import replacing
from deceptron.core.status import Status
from deceptron.view import drawing
from deceptron.view.survey import Row, Survey, survey

QUANTILES = {"5% of rows": 0.05, "half": 0.5, "95%": 0.95}
GROUPS = {
    "worst": ("worst", "the largest residuals, largest first"),
    "flagged": ("flagged", "the highest trust scores above 1, highest first"),
    "median": ("median", "rows whose residual is nearest to the median"),
    "unsolved": ("not solved", "the first rows without a finite answer or observation"),
}
NOTES = ("method", "pair", "observations", "library")


def write_page(
    result: str | os.PathLike[str], page: str | os.PathLike[str] | None = None
) -> tuple[Path, Survey]:
    """Write the page beside the result, or to ``page``; where it is, and what was found."""
    path = Path(result)
    target = path.with_suffix(".html") if page is None else Path(page)
    if target.resolve() == path.resolve():
        raise ConfigError(f"page must not be the result that it is about; got {str(page)!r}")
    found = survey(path)
    text = render(found)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target, found


def render(found: Survey) -> str:
    """The page as text; whatever a file says of itself is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "answer": drawing.answer,
        "histogram": drawing.histogram,
        "facts": _facts,
        "words": _words,
        "converged": Status.CONVERGED,
        "groups": GROUPS,
        "quantiles": QUANTILES,
    }
    source = resources.files("deceptron.view").joinpath("page.html.jinja").read_text("utf-8")
    return environment.from_string(source).render(
        found=found,
        name=found.path.name,
        rows=found.rows,
        notes={key: str(found.notes[key]) for key in NOTES if found.notes.get(key)},
        endings=sorted(found.reasons.items(), key=lambda entry: -entry[1]),
    )


def _facts(row: Row) -> dict[str, str]:
    facts = {"ended": f"{_words(row.reason.status)}: {row.reason.words}"}
    if row.over_noise is not None:
        facts["residual over noise"] = f"{row.over_noise:.3g}"
    facts["residual"] = f"{row.residual:.3g}, normalised units"
    if row.trust is not None:
        facts["trust score"] = f"{row.trust:.3g}{' (flagged: above 1)' if row.trust > 1 else ''}"
    facts["iterations"], facts["evaluations"] = str(row.iterations), str(row.evaluations)
    return facts


def _words(status: Status) -> str:
    return status.name.lower().replace("_", " ")
