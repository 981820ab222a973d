"""The form of docstrings and the spelling of prose, where ruff has no rule."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "elmokit").rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

UNFINISHED = re.compile(r"(Of|What|Where|Which|Whether|How)\b")
STEMS = "general|initial|normal|optim|organ|quant|real|recogn|regular|serial|standard|summar|token|visual"
BRITISH = re.compile(
    rf"\b(?:\w*(?:{STEMS})is(?:ed?|es|ing|ers?|ations?)|(?:neighbo|behavio|colo|favo)ur\w*|labelled|analys(?:ed?|ing))\b",
    re.IGNORECASE,
)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string that stands alone: docstrings, also those of fields and values."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


@pytest.mark.long
def test_no_docstring_begins_in_the_middle_of_a_sentence():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.partition(chr(10))[0]}"
        for path in SOURCES
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if UNFINISHED.match(text)
    ]
    assert found == []


@pytest.mark.parametrize("files", [SOURCES, PAGES], ids=["elmokit", "pages"])
def test_spelling_is_american(files):
    lines = ((path, *line) for path in files for line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1))
    found = [f"{path.relative_to(ROOT)}:{k}: {match[0]}" for path, k, line in lines if (match := BRITISH.search(line))]
    assert found == []


@pytest.mark.parametrize(
    ("word", "is_british"),
    [("tokenised", True), ("optimiser", True), ("neighbours", True), ("realistic", False), ("analysis", False)],
)
def test_british_words_are_recognized(word, is_british):
    assert bool(BRITISH.search(word)) == is_british
