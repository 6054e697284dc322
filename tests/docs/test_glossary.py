"""A guide page links a word of the glossary where it first uses it, or explains it there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, guide_pages, name, prose


def glossary() -> list[str]:
    text = (DOCS / "ideas" / "glossary.md").read_text()
    body = text[text.index("```{glossary}") :]
    return [line for line in body.splitlines()[1:] if line and line[0] not in " `"]


def unexplained(text: str) -> list[str]:
    """Words whose first use is neither in a link, {term}`word` or [word](page), nor in bold."""
    text, missing = prose(text), []
    for term in glossary():
        pattern = rf"(?<![\w-]){re.escape(term)}s?(?![\w-])"
        # Abbreviations are spelt as they are; other words may begin a sentence.
        flags = 0 if term.isupper() else re.I
        first = re.search(pattern, text, flags)
        if first is None:
            continue
        before = text[max(0, first.start() - 60) : first.start()]
        linked = re.search(r"\{term\}`[^`]*$|\[[^\]]*$", before)
        if not (linked or before.endswith("**")):
            missing.append(term)
    return missing


@pytest.mark.parametrize("page", guide_pages(), ids=name)
def test_words_of_the_glossary_are_explained(page: Path) -> None:
    assert unexplained(page.read_text()) == []


def test_every_word_is_explained_once_and_used() -> None:
    terms = glossary()
    assert len(terms) == len(set(terms)) > 20
    used = " ".join(prose(page.read_text()) for page in guide_pages()).lower()
    assert [term for term in terms if term.lower() not in used] == []


def test_a_bare_word_is_found() -> None:
    assert unexplained("The surrogate is fast; the {term}`surrogate` errs.") == ["surrogate"]
    assert unexplained("The {term}`surrogate` is fast. A **pair** is two; pairs help.") == []
    assert unexplained("`surrogate` in code, and\n\n```python\nlatent = 1\n```\n") == []
