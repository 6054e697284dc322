"""Every number that decides an answer of the default solver, with its reason.

``python -m tools.constants`` reads the modules that decide an answer and prints a table: name,
value, reason, file. A number is a constant of a module, a default of a class, or a bare literal in
a function. Its reason is the comment above it, or its line in a docstring. The exit code is 1 where
a number has no reason, where there are more than ``MOST``, or where ``APART`` or ``MATHEMATICS``
names what is no longer there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "deceptron"
MOST = 40
# Zero, one, a half and two are arithmetic wherever they stand.
PLAIN = (-1, 0, 1, 2, 0.5)
# What decides an answer, or its bars: a module, what it decides, and of some only these names. A
# name with a dot is a class's default, or an argument that a function passes on. ``geometry/trust``
# is not among them: it flags rows and changes none.
DECIDING: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("laws/beliefs.py", "what is believed of a row", ()),
    ("laws/calibration.py", "what a pair keeps of it", ()),
    ("laws/data.py", "surprise, the family's shape and size, the most noise", ()),
    ("laws/law.py", "tabled log-determinants and variances", ()),
    ("laws/noise.py", "price of more noise than stated", ()),
    ("laws/odds.py", "kind of answer", ()),
    ("laws/score.py", "shape, size and noise of a correction", ()),
    ("laws/shapes.py", "which laws there are", ()),
    ("laws/start.py", "law of rows like the training data", ()),
    ("laws/tables.py", "how tables are made", ()),
    ("solve/descents/posterior.py", "step, acceptance, end", ()),
    ("solve/subspace.py", "span of measured directions", ()),
    ("solve/growth.py", "which directions are measured", ()),
    ("solve/boxed.py", "least score within bounds", ()),
    ("solve/law_bars.py", "error bars", ()),
    ("solve/first_fits.py", "fits that the law of the start is made from", ()),
    ("solve/noise.py", "residual that counts as explained", ()),
    ("solve/methods.py", "noise that a surrogate adds", ("guarded.surrogate_margin",)),
    ("train/beliefs.py", "how laws and odds are fitted", ()),
    ("train/families.py", "law of the family, and of its data", ()),
)
# What decides where a row starts, its bars there, and how many rows all of it is fitted on. Listed
# below the others and held to reasons, not counted with them.
AROUND: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("solve/gaps.py", "start of a row with missing sensors", ()),
    ("solve/failures.py", "start of a row that cannot be simulated", ()),
    ("solve/afterwards.py", "how a row is said to have ended", ()),
    ("train/calibration.py", "rows to fit on, and where answers start", ()),
    ("train/start_bars.py", "bars of answers left at their start", ()),
    ("geometry/bars.py", "bars about answers", ()),
    ("geometry/posterior.py", "bars at the start", ()),
)
MEMORY = "memory: the answers are the same, to round-off"
WORDS = "words only: no answer depends on it"
# Named constants that decide no answer.
APART: dict[tuple[str, str], str] = {
    ("laws/calibration.py", "DOUBTFUL"): WORDS,
    ("laws/calibration.py", "VERSION"): "what a file holds",
    ("laws/odds.py", "MISFITS"): WORDS,
    ("solve/descents/posterior.py", "HELD"): MEMORY,
    ("solve/first_fits.py", "ROWS"): MEMORY,
    ("train/beliefs.py", "HELD"): MEMORY,
    ("train/beliefs.py", "HELD_GRAPH"): MEMORY,
    ("train/beliefs.py", "BATCH"): MEMORY,
    ("geometry/posterior.py", "ROWS"): MEMORY,
    ("geometry/posterior.py", "FILLED"): MEMORY,
}
UNDERFLOW = "keeps a division or a logarithm from zero"
ROUND_OFF = "a few digits of round-off"
SEED = "a seed"
PROGRESS = "a share of the progress bar"
KINDS = "how many kinds of answer there are"
POWER = "ten to the power of a node"
# Literals in functions that are mathematics or no numbers of the solver: module, function, number.
MATHEMATICS: dict[tuple[str, str, float], str] = {
    ("laws/law.py", "Laws.log_determinant", -2): "one over a square",
    ("laws/law.py", "Laws.log_mass", 1e-300): UNDERFLOW,
    ("laws/odds.py", "Odds.of", 3): KINDS,
    ("laws/odds.py", "Odds.only", 3): KINDS,
    ("laws/odds.py", "fit_odds", -0.5): "minus half a square: the logarithm of a Gaussian",
    ("laws/odds.py", "_fitted", 200): "most steps of a fit of nine weights",
    ("laws/score.py", "Quadratics.minimise", 1e-13): ROUND_OFF,
    ("laws/start.py", "fit_start_law", 1e-100): UNDERFLOW,
    ("laws/tables.py", "tabled", 1e-30): UNDERFLOW,
    ("laws/tables.py", "_formed", 10): POWER,
    ("laws/tables.py", "_by_sketch", 10): POWER,
    ("laws/tables.py", "_binned", 1e-18): UNDERFLOW,
    ("solve/descents/posterior.py", "Posterior.endings", 4): ROUND_OFF,
    ("solve/growth.py", "_Growth._free_components", 4): ROUND_OFF,
    ("solve/growth.py", "_Growth._add", 1e-300): UNDERFLOW,
    ("solve/growth.py", "_Growth._difference", 1e-30): UNDERFLOW,
    ("solve/boxed.py", "least_in_box", 1e-13): ROUND_OFF,
    ("solve/boxed.py", "_lower", -1e-12): ROUND_OFF,
    ("solve/noise.py", "objective_of", 1e-6): "noise that is equal but for single precision",
    ("train/beliefs.py", "fit_beliefs", 0.6): PROGRESS,
    ("train/beliefs.py", "fit_beliefs", 0.8): PROGRESS,
    ("train/beliefs.py", "_with_tables", 0.3): PROGRESS,
    ("train/beliefs.py", "_with_tables", 0.7): PROGRESS,
    ("train/beliefs.py", "_widened", 7): SEED,
    ("train/families.py", "data_laws", 7): SEED,
    ("train/calibration.py", "recalibrate", 7): SEED,
    ("train/calibration.py", "_recalibrated", 64): MEMORY,
    ("geometry/bars.py", "AnswerBars.sample", 1e-30): UNDERFLOW,
    ("geometry/bars.py", "AnswerBars.ends", 10): "Student's law of a million draws is the normal",
    ("geometry/bars.py", "AnswerBars.ends", 6): "Student's law of a million draws is the normal",
    ("geometry/posterior.py", "_seed", 62): SEED,
}


@dataclass(frozen=True)
class Entry:
    """One number, or one tuple of them."""

    name: str
    value: str
    reason: str
    file: str
    line: int


@dataclass
class Found:
    """What a module has, and what of the two lists it has used."""

    entries: list[Entry] = field(default_factory=list)
    used: set[tuple[object, ...]] = field(default_factory=set)


def numbers_of(
    text: str,
    file: str,
    *,
    only: tuple[str, ...] = (),
    apart: Mapping[tuple[str, str], str] = APART,
    mathematics: Mapping[tuple[str, str, float], str] = MATHEMATICS,
) -> Found:
    """Constants of the module, defaults of its classes, literals of its functions."""
    tree, lines, found = ast.parse(text), text.splitlines(), Found()
    words = _documented(tree)

    def add(name: str, value: ast.expr, statement: ast.stmt) -> None:
        if (file, name) in apart:
            found.used.add((file, name))
            return
        reason = _comment(lines, tree, statement) or words.get(name.rpartition(".")[2], "")
        shown = ast.unparse(value)
        found.entries.append(Entry(name, shown, reason, file, statement.lineno))

    if only:
        for name, value, statement in _named(tree, only):
            add(name, value, statement)
        return found
    for statement in tree.body:
        for name, value in _assigned(statement):
            if name.lstrip("_").isupper() and any(True for _ in _literals(value)):
                add(name, value, statement)
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for statement in kind.body:
            for name, value in _assigned(statement):
                if any(number not in PLAIN for number, _ in _literals(value)):
                    add(f"{kind.name}.{name}", value, statement)
    for function, owner in _functions(tree):
        defaults = [*function.args.defaults, *(d for d in function.args.kw_defaults if d)]
        for number, node in (
            pair for part in (*function.body, *defaults) for pair in _literals(part)
        ):
            if number in PLAIN:
                continue
            if (file, owner, number) in mathematics:
                found.used.add((file, owner, number))
                continue
            reason = _beside(lines, node.lineno)
            found.entries.append(Entry(f"{owner}()", f"{number:g}", reason, file, node.lineno))
    return found


def everything() -> tuple[list[Entry], list[Entry], list[str]]:
    """What decides, what stands around it, and what the two lists name that is not there."""
    used: set[tuple[object, ...]] = set()
    parts: list[list[Entry]] = []
    for modules in (DECIDING, AROUND):
        entries = []
        for file, _, only in modules:
            found = numbers_of((SOURCE / file).read_text(), file, only=only)
            entries += found.entries
            used |= found.used
        parts.append(entries)
    stale = [" ".join(map(str, key)) for key in (*APART, *MATHEMATICS) if key not in used]
    return parts[0], parts[1], stale


def _named(tree: ast.Module, only: tuple[str, ...]) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """Arguments that functions pass on, and defaults of classes, by name."""
    for owner in ast.walk(tree):
        if not isinstance(owner, (ast.FunctionDef, ast.ClassDef)):
            continue
        for statement in owner.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.keyword) and f"{owner.name}.{node.arg}" in only:
                    yield f"{owner.name}.{node.arg}", node.value, statement
            for name, value in _assigned(statement):
                if f"{owner.name}.{name}" in only:
                    yield f"{owner.name}.{name}", value, statement


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they stand for; names that number one thing after another are labels."""
    if isinstance(statement, ast.Assign):
        value, targets = statement.value, statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        value, targets = statement.value, [statement.target]
    else:
        return
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, part in zip(target.elts, value.elts, strict=True):
                if isinstance(name, ast.Name):
                    yield name.id, part


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[ast.FunctionDef, str]]:
    """Functions that are not within others, with the class that they belong to."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, f"{owner}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")


def _literals(node: ast.AST) -> Iterator[tuple[float, ast.expr]]:
    """Numbers in an expression or a statement; annotations and numbers of axes are none."""
    if isinstance(node, ast.keyword) and (node.arg or "").rstrip("12") == "dim":
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        for number, where in _literals(node.operand):
            yield -number, where
        return
    found: object = node.value if isinstance(node, ast.Constant) else None
    if (
        isinstance(node, ast.expr)
        and isinstance(found, (int, float))
        and not isinstance(found, bool)
    ):
        yield float(found), node
    for name, part in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, ast.AST):
                    yield from _literals(child)


def _comment(lines: list[str], tree: ast.Module, statement: ast.stmt) -> str:
    """What stands above a statement, or above the statements that it follows without a gap."""
    ends = {node.end_lineno: node for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    line = statement.lineno - 1
    while line and not lines[line - 1].strip().startswith("#"):
        before = ends.get(line)
        if not isinstance(before, (ast.Assign, ast.AnnAssign)):
            return _trailing(lines, statement)
        line = before.lineno - 1
    return _block(lines, line) or _trailing(lines, statement)


def _trailing(lines: list[str], statement: ast.stmt) -> str:
    _, mark, words = lines[(statement.end_lineno or statement.lineno) - 1].partition("  # ")
    return words.strip() if mark else ""


def _beside(lines: list[str], line: int) -> str:
    """A comment on the line of a literal, or right above it."""
    _, mark, words = lines[line - 1].partition("  # ")
    return words.strip() if mark else _block(lines, line - 1)


def _block(lines: list[str], last: int) -> str:
    """The comment that ends with this line, counted from one."""
    words: list[str] = []
    while last and lines[last - 1].strip().startswith("# "):
        words.insert(0, lines[last - 1].strip()[2:])
        last -= 1
    return " ".join(words)


def _documented(tree: ast.Module) -> dict[str, str]:
    """Names that a docstring of a class or a function explains, ``name: words``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            last = ""
            for line in (ast.get_docstring(node) or "").splitlines():
                name, mark, words = line.strip().partition(": ")
                if line.startswith("    ") and not line.startswith("     ") and mark:
                    if name.isidentifier():
                        last = name
                        found.setdefault(name, words)
                elif line.startswith("     ") and last:
                    found[last] += f" {line.strip()}"
                else:
                    last = ""
    return found


def main() -> int:
    """Print the tables; 1 where the numbers are too many or say too little."""
    deciding, around, stale = everything()
    for title, entries in (("decides an answer", deciding), ("around it", around)):
        print(f"## {title}\n\n| name | value | reason | file |\n|---|---|---|---|")
        for e in entries:
            print(f"| {e.name} | {e.value} | {e.reason or 'NONE'} | {e.file}:{e.line} |")
        print()
    silent = [entry for entry in (*deciding, *around) if not entry.reason]
    bare = [entry for entry in deciding if entry.name.endswith("()")]
    print(f"{len(deciding)} numbers decide an answer, {len(bare)} of them bare; at most {MOST} may")
    print(f"{len(around)} stand around it; {len(MATHEMATICS)} literals are mathematics")
    for entry in silent:
        print(f"no reason: {entry.name} = {entry.value} ({entry.file}:{entry.line})")
    for name in stale:
        print(f"not there: {name}")
    return int(len(deciding) > MOST or bool(silent) or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
