"""Penn Treebank brackets: what is read, what is dropped, what is rejected."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.ptb import (
    MAX_DEPTH,
    Constituent,
    ParsedSentence,
    draw_tree,
    join_brackets,
    read_ptb,
    write_brackets,
)

SHE_SOLD_IT = "(TOP (S (NP (PRP She)) (VP (VBD sold) (NP (PRP it))) (. .)))"


def read_one(tmp_path: Path, text: str) -> ParsedSentence:
    path = tmp_path / "trees.ptb"
    path.write_text(text + "\n", "utf-8")
    (sentence,) = read_ptb(path)
    return sentence


def test_a_tree_is_tokens_tags_and_constituents_parents_first(tmp_path: Path) -> None:
    assert read_one(tmp_path, SHE_SOLD_IT) == ParsedSentence(
        ("She", "sold", "it", "."),
        ("PRP", "VBD", "PRP", "."),
        (Constituent("S", 0, 4), Constituent("NP", 0, 1), Constituent("VP", 1, 3), Constituent("NP", 2, 3)),
    )


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("( (S (NP (PRP I)) (VP (VBP go))))", ["S", "NP", "VP"]),
        ("(ROOT (NP (NN x)))", ["NP"]),
        ("(TOP (UH Yes))", ["TOP"]),
        ("(TOP (NP (NN a)) (VP (VB b)))", ["TOP", "NP", "VP"]),
        ("(TOP (NP (NN a)) (. .))", ["TOP", "NP"]),
        ("(S (NP (-NONE- *)) (VP (VB go)))", ["S", "VP"]),
        ("(TOP (S (VP (VB go))))", ["S", "VP"]),
    ],
)
def test_roots_and_empty_elements(tmp_path: Path, text: str, labels: list[str]) -> None:
    assert [constituent.label for constituent in read_one(tmp_path, text).constituents] == labels


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (PRP She))",
        "(S (NP (PRP She))))",
        "She sold it",
        "(S)",
        "(S ())",
        "(S (NP She it))",
        "(S (NP (PRP She)) extra)",
        "(S (NP (PRP She) ((X y))))",
        "(S (NP (-NONE- *)))",
        "(NP (NN a)) (NP (NN b))",
        "(S (NN a (NN b)))",
        "(A " * (MAX_DEPTH + 1),
    ],
)
def test_what_is_no_tree_is_rejected_with_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"trees\.ptb, line 1, character \d+: found .*, expected"):
        read_one(tmp_path, text)


def test_a_tree_is_written_as_it_was_read(tmp_path: Path) -> None:
    for text in (SHE_SOLD_IT, "(TOP (NP (NN a)) (. .))", "(TOP (UH Yes))"):
        assert write_brackets(read_one(tmp_path, text)) == text


def test_tokens_without_tags_stand_bare() -> None:
    sentence = ParsedSentence(("She", "left"), ("", ""), (Constituent("S", 0, 2), Constituent("NP", 0, 1)))
    assert join_brackets(sentence) == "(S (NP She) left)"


def test_a_tree_is_drawn_with_lines_from_parents_to_children(tmp_path: Path) -> None:
    drawn = draw_tree(read_one(tmp_path, SHE_SOLD_IT))
    assert drawn.splitlines() == [
        "S", "├─NP", "│ └─PRP She", "├─VP", "│ ├─VBD sold", "│ └─NP", "│   └─PRP it", "└─. .",
    ]  # fmt: skip


def test_the_treebank_is_read_and_written_back_letter_by_letter(data_dir: Path) -> None:
    import lzma

    path = data_dir / "trees" / "ewt.dev.ptb.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    sentences = list(read_ptb(path))
    assert len(sentences) == len(lines) == 1965
    assert [write_brackets(sentence) for sentence in sentences] == lines
