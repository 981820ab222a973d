"""Decontamination against brute force over strings."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from elmokit.text.exclusion import MIN_LETTERS, RUN_WORDS, Exclusion, normalize_words

LONG = "The quick brown fox jumps over the lazy dog near the old river bank."


def letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def brute_force(sentence: str, texts: Sequence[str]) -> bool:
    """The same rule with strings: the sentence is a text or one of its sentences, or shares 13 words in a row."""
    pieces = [piece for text in texts for piece in (text, *re.split(r"(?<=[.!?]) ", text))]
    if len(letters(sentence)) >= MIN_LETTERS and letters(sentence) in {letters(piece) for piece in pieces}:
        return True
    words = normalize_words(sentence)
    runs = [words[start : start + RUN_WORDS] for start in range(len(words) - RUN_WORDS + 1)]
    for text in texts:
        others = normalize_words(text)
        if any(run == others[start : start + RUN_WORDS] for run in runs for start in range(len(others))):
            return True
    return False


def find(sentences: Sequence[str], *files: Sequence[str]) -> list[tuple[int, ...]]:
    named = {str(number): texts for number, texts in enumerate(files)}
    return Exclusion(tuple(named), named.__getitem__).build_index().find(sentences)


def test_random_texts_are_found_as_by_brute_force() -> None:
    random = np.random.default_rng(0)
    words = ["a", "bb", "Ccc", "ddd-dd", "é", "42", "it's", "."]

    def make(most: int) -> str:
        return " ".join(random.choice(words, p=[0.6, 0.2, *[0.2 / 6] * 6], size=random.integers(0, most)))

    files = [[make(60) for _ in range(20)] for _ in range(3)]
    sentences = [make(40) for _ in range(300)]
    # Parts of the files, with noise at both ends.
    for texts in files:
        for text in texts:
            tokens = text.split()
            start = random.integers(0, len(tokens) + 1)
            sentences.append(" ".join(["noise", *tokens[start : start + random.integers(8, 25)], "end"]))
            sentences.append(text.upper().replace(" ", "  "))
    expected = [
        tuple(number for number, texts in enumerate(files) if brute_force(sentence, texts)) for sentence in sentences
    ]
    assert find(sentences, *files) == expected
    assert 50 < sum(bool(found) for found in expected) < len(expected) - 50


@pytest.mark.parametrize(
    "sentence",
    [
        LONG,
        "the QUICK brown fox jumps over the lazy dog , near the old river-bank",
        "He said: the quick brown fox jumps over the lazy dog near the old river, and left.",
    ],
)
def test_case_white_space_and_punctuation_do_not_matter(sentence: str) -> None:
    assert find([sentence], [f"Before. {LONG} After."]) == [(0,)]


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "The lazy dog near the old river bank.",  # too few words for a run, and no sentence of the file
        "The quick brown cat jumps over the lazy dog near the old river bank.",
    ],
)
def test_other_sentences_are_kept(sentence: str) -> None:
    assert find([sentence], [LONG]) == [()]


def test_a_short_sentence_is_kept_even_if_a_file_has_it() -> None:
    assert find(["I do not know."], ["I do not know."]) == [()]


def test_every_file_that_has_a_sentence_is_named() -> None:
    assert find([LONG, "x", LONG.lower()], ["other"], [LONG], [], [LONG]) == [(1, 3), (), (1, 3)]


def test_no_sentences_and_no_files_are_no_error() -> None:
    assert find([], [LONG]) == []
    assert find([LONG]) == [()]
    assert find([LONG], []) == [()]
