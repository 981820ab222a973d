"""Decontamination against brute force over strings."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.errors import ElmokitWarning, InputError
from elmokit.text import chunks
from elmokit.text.corpus import Corpus
from elmokit.text.exclusion import MIN_LETTERS, RUN_WORDS, Exclusion, normalize_words
from elmokit.text.preparation import prepare_corpus

LONG = "The quick brown fox jumps over the lazy dog near the old river bank."


def letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def brute_force(sentence: str, texts: Sequence[str]) -> bool:
    """The same rule with strings: the sentence is a text or one of its sentences, or shares 13 words in a row."""
    pieces = [
        piece for text in texts for piece in (text, *re.split(r"(?<=[.!?]) |(?<=[.!?][\"')\u201d\u2019]) ", text))
    ]
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


@pytest.mark.long
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


def test_a_sentence_in_quotes_is_a_sentence_of_its_file() -> None:
    sentence = "Captain Courageous sailed northward yesterday morning."
    assert find([sentence], [f'He wrote: "Good day." {sentence} More.']) == [(0,)]


@pytest.mark.parametrize("note", ["[12]", "[citation needed]", "[1][2] ", " [note 3] ", ""])
def test_a_sentence_before_a_note_is_a_sentence_of_its_file(note: str) -> None:
    few = "Few words, but with letters enough for a sentence."
    for quote in ("", '"'):
        assert find(
            [few, "Some others follow it."], [f"It rained.{quote} {few}{quote}{note} Some others follow it."]
        ) == [
            (0,),
            (),
        ]
        assert find([few], [f"It rained. {few}{quote}{note}"]) == [(0,)]


def test_brackets_within_a_sentence_end_none() -> None:
    assert find(["Few words [sic], but with letters enough for a sentence."], ["Few words [sic], but with"]) == [()]


def test_every_file_that_has_a_sentence_is_named() -> None:
    assert find([LONG, "x", LONG.lower()], ["other"], [LONG], [], [LONG]) == [(1, 3), (), (1, 3)]


def test_no_sentences_and_no_files_are_no_error() -> None:
    assert find([], [LONG]) == []
    assert find([LONG]) == [()]
    assert find([LONG], []) == [()]


OTHERS = ["A stone is here.", "Some other words are in this line."]


def prepare(folder: Path, lines: Sequence[str], *, files: dict[str, list[str]] | None = None, **options: Any) -> Corpus:
    (folder / "train.txt").write_text("\n".join(lines) + "\n", "utf-8")
    exclude = None
    if files is not None:
        for name, texts in files.items():
            (folder / name).write_text("\n".join(texts), "utf-8")
        exclude = Exclusion(
            tuple(str(folder / name) for name in files), lambda name: Path(name).read_text("utf-8").splitlines()
        )
    return prepare_corpus([folder / "train.txt"], folder / "corpus", exclude=exclude, **options)


def test_a_prepared_text_has_no_excluded_sentence_and_says_which_file_had_it(tmp_path: Path) -> None:
    files = {"a.txt": [LONG], "b.txt": ["nothing"], "c.txt": [LONG.upper(), "x"]}
    corpus = prepare(tmp_path, [OTHERS[0], LONG, OTHERS[1], f"Well, {LONG}"], files=files)
    (tmp_path / "alone").mkdir()
    alone = prepare(tmp_path / "alone", OTHERS)
    assert corpus.num_sentences == alone.num_sentences == 2
    assert np.array_equal(corpus.tokens, alone.tokens)
    assert corpus.word_counts() == alone.word_counts()
    assert [file.num_left_out for file in corpus.meta.excluded] == [2, 0, 2]
    assert corpus.meta.num_left_out == 2
    lines = (tmp_path / "corpus" / "left_out.tsv").read_text("utf-8").splitlines()
    assert [line.split("\t")[1] for line in lines] == [LONG, f"Well, {LONG}"]
    assert lines[0].startswith(f"{tmp_path / 'a.txt'}, {tmp_path / 'c.txt'}\t")


@pytest.mark.long
def test_workers_leave_out_the_same_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 300)
    lines = [f"{LONG} {number}" if number % 3 else f"Line {number} is short." for number in range(60)]
    one = prepare(tmp_path, lines, files={"a.txt": [LONG]})
    (tmp_path / "two").mkdir()
    two = prepare(tmp_path / "two", lines, files={"a.txt": [LONG]}, num_workers=2)
    assert one.num_sentences == two.num_sentences == 20
    assert np.array_equal(one.tokens, two.tokens)
    assert one.meta.num_left_out == two.meta.num_left_out == 40


def test_only_an_exclusion_changes_the_fingerprint(tmp_path: Path) -> None:
    plain = prepare(tmp_path, [*OTHERS, LONG])
    assert (
        json.loads((tmp_path / "corpus" / "corpus.json").read_text("utf-8"))
        .keys()
        .isdisjoint({"excluded", "num_left_out"})
    )
    without = prepare(tmp_path, [*OTHERS, LONG], files={"a.txt": [LONG]})
    other = prepare(tmp_path, [*OTHERS, LONG], files={"a.txt": ["other"]})
    again = prepare(tmp_path, [*OTHERS, LONG], files={"b.txt": [LONG]})
    assert len({plain.fingerprint, without.fingerprint, other.fingerprint}) == 3
    assert again.fingerprint == without.fingerprint


def test_a_test_set_that_is_gone_is_taken_as_it_was(tmp_path: Path) -> None:
    files = {"a.txt": [LONG]}
    before = prepare(tmp_path, [*OTHERS, LONG], files=files)
    exclude = Exclusion((str(tmp_path / "a.txt"),), lambda _: [LONG])
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.txt: no such file"):
        prepare_corpus([tmp_path / "train.txt"], tmp_path / "corpus", exclude=exclude)
    with pytest.warns(ElmokitWarning, match=r"a\.txt is not there any more"):
        again = prepare_corpus([tmp_path / "train.txt"], tmp_path / "corpus", exclude=exclude, may_be_gone=True)
    assert again.fingerprint == before.fingerprint


def test_a_text_that_is_excluded_as_a_whole_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give files that have text and that are not excluded"):
        prepare(tmp_path, [LONG], files={"a.txt": [LONG]})
