"""A row for each problem: errors beside the paper's, and the cosine."""

from __future__ import annotations

from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import COLUMN, DIPG, PLAIN, Family, Series
from deceptron_paper.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    legend_below,
    log_scale,
    mean_mark,
    named_rows,
    scattered,
    trial_count,
)
from deceptron_paper.report.published import paper_value
from deceptron_paper.statistics import ORACLE, mean_interval


def against_paper(family: Family) -> Drawing:
    """RMSE of D-IPG as published, by the published protocol here, and by our own; and the rest."""
    paper, own = Family(family.query, "paper"), Family(family.query, "standard")
    theirs = {
        p: paper_value("Table 3", "rmse", problem=p, method="d-ipg").value
        for p in family.query.problems
    }
    run = {*own.problems(DIPG), *paper.problems(DIPG)}
    problems = [p for p in theirs if theirs[p] == theirs[p] and p in run]
    if not problems:
        raise NothingToDraw("no records of d-ipg on a problem of the paper")
    lines: list[tuple[str, Family, Series, str]] = [
        ("d-ipg, published protocol re-run", paper, DIPG, "o"),
        ("d-ipg, standard", own, DIPG, "s"),
    ]
    names = {"one-shot": "one-shot, standard", ORACLE: f"{ORACLE} (oracle)"}
    for series in own.pick("one-shot", "wiener", ORACLE):
        lines.append((names.get(series.label, series.label), own, series, series.marker))
    figure = Figure(figsize=(1.5 * COLUMN, 0.5 * len(problems) + 1.1), layout="constrained")
    axis = figure.subplots()
    for row, problem in enumerate(problems):
        (mark,) = axis.plot(theirs[problem], row - 0.36, "o", color=DIPG.color, mfc="white")
        mark.set_label("d-ipg, as published")
        for place, (label, source, series, marker) in enumerate(lines, 1):
            mean = mean_interval(source.trials(problem, series).rows["rmse"])
            look = {"color": series.color, "marker": marker, "label": label}
            mean_mark(axis, mean, row - 0.36 + 0.72 * place / len(lines), look)
        axis.axhline(row + 0.5, color="0.85", linewidth=0.5)
    named_rows(axis, problems)
    log_scale(axis, "x")
    axis.set_xlabel("mean RMSE on the test set")
    legend_below(figure, [axis], columns=2)
    alone = [trial_count(own, own.problems(s), s) for s in own.pick("one-shot")]
    trials = trial_count(paper, paper.problems(DIPG), DIPG)
    return Drawing(figure, {"alone": "".join(alone), "trials": trials})


def cosine_spectrum(family: Family) -> Drawing:
    """Cosine of the step with -grad per problem: trials, and means with and without JCP."""
    found = {p: family.trials(p, DIPG).cosines() for p in family.problems(DIPG)}
    found = {p: cosines for p, cosines in found.items() if cosines.notna().any()}
    if not found:
        raise NothingToDraw(f"no cosines of d-ipg recorded with the model {family.name}")
    problems = sorted(found, key=lambda problem: -found[problem].mean())
    figure = Figure(figsize=(1.5 * COLUMN, 0.32 * len(problems) + 0.95), layout="constrained")
    axis = figure.subplots()
    for row, problem in enumerate(problems):
        scattered(axis, found[problem], row, 0.16, s=3, color=DIPG.color, alpha=0.25)
        for series, place in ((DIPG, row - 0.27), (PLAIN, row + 0.27)):
            values = family.trials(problem, series).cosines()
            if len(values):
                label = f"{series.label}, mean"
                look = {**series.look(marker=True), "label": label, "markersize": 4}
                mean_mark(axis, mean_interval(values), place, look)
        paper = paper_value("Table 4", "cosine", problem=problem, method="d-ipg").value
        axis.plot(paper, row, "k|", markersize=12, label="paper, with JCP")
    axis.axvline(0, color="0.3", linewidth=0.6)
    named_rows(axis, problems)
    axis.set_xlabel(r"cosine of the step with $-\nabla\Phi$")
    legend_below(figure, [axis], columns=3)
    return Drawing(figure, {"trials": trial_count(family, problems, DIPG)})
