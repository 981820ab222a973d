"""Running text to sentences, on hard cases and random text."""

# ruff: noqa: RUF001

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text.sentences import find_sentences, split_sentences

# Pieces that meet in hard ways, between stretches of anything.
pieces = st.sampled_from(
    [" ", "\n", "\n\n", ".", "...", "…", "!", "?", "。", "！」", '"', "”", "(", "]", "[1]", "Mr", "U.S", "A", "no", "5"]
)
any_text = st.lists(st.one_of(pieces, st.text(st.characters(), max_size=5)), max_size=30).map("".join)


def test_an_unknown_language_is_rejected() -> None:
    with pytest.raises(InputError, match=r"'xx' has no tokenizer; choose one of: as .* en .* zh"):
        split_sentences("text", language="xx")


def test_other_languages_have_their_own_abbreviations() -> None:
    assert split_sentences("Am 3. Oktober kam z. B. Anna. Sie blieb.", language="de") == [
        "Am 3. Oktober kam z. B. Anna.",
        "Sie blieb.",
    ]


@pytest.mark.parametrize(
    "marked",
    [
        "It rained. | He left! | Why? | Nobody knows.",
        "Mr. Smith met Dr. J. R. Jones of the U.S. Senate in St. Louis.",
        "He lives in the U.S. | They like it at 5 p.m. | The end.",
        "See No. 5 and p. 12. | No. | Five came.",
        "Lt-Col. Hugh came with J.-P. Morgan Jr. | He stayed.",
        'He said "Go." | She went. | "Stop!" cried Tom. | (It was late.) | Then he slept.',
        "“Why?” he asked. | “Because.”",
        "Well... maybe. | It grew… | Then it stopped.",
        "1. The first point. | 2. The second. | B. Another.",
        "It cost 3.5 million. | 12 people paid.",
        "Nuclear arms.[12] | The treaty followed.",
        "They left (see Smith et al. 1990). | Nobody returned.",
        "Er ging. | Über allem lag Schnee. | ¿Qué? | ¡No!",
        "今天很冷。 | 你好！ | 他说：“走吧。” | 好",
        "यह एक वाक्य है। | यह दूसरा है।",
        '"Mr. Hall" read (Rex v. The Queen) aloud.',
        "Then Ö. Åberg (b. 1965) came.",
        "See www.example.com. | It works.E.g. this.",
    ],
)
def test_sentences_end_where_a_reader_ends_them(marked: str) -> None:
    sentences = marked.split(" | ")
    assert split_sentences(" ".join(sentences)) == sentences


def test_wide_full_stops_need_no_space() -> None:
    assert split_sentences("今天很冷。你好！「走吧。」他说") == ["今天很冷。", "你好！", "「走吧。」", "他说"]


def test_a_blank_line_ends_a_sentence_and_a_line_end_does_not() -> None:
    assert split_sentences("CHAPTER I\r\n \r\nThe door\nwas  open\n\n\n\nno stop\u2029End") == [
        "CHAPTER I",
        "The door was open",
        "no stop",
        "End",
    ]


@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_no_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


@given(any_text)
def test_sentences_hold_all_of_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)


@given(any_text)
def test_found_sentences_are_the_split_ones_without_outer_white_space(text: str) -> None:
    spans = find_sentences(text)
    raw = [text[start:stop] for start, stop in spans]
    assert [" ".join(sentence.split()) for sentence in raw] == split_sentences(text)
    assert all(sentence == sentence.strip() for sentence in raw)
    assert spans == sorted(spans)


@pytest.mark.parametrize("hostile", [".", '."', ". ", "A. ", "\n ", ".[1", "。", "x", "B.) ", ".\u3000-"])
def test_time_grows_with_the_text_and_no_faster(hostile: str) -> None:
    text = hostile * (200_000 // len(hostile))
    split_sentences(hostile)
    start = time.process_time()
    split_sentences(text)
    assert time.process_time() - start < 5  # a quadratic search needs minutes


def test_without_rules_a_lower_case_word_may_begin_a_sentence(tmp_path: Path) -> None:
    text = "dubium numquam fuit. tanta enim! M. Tullius lib. primo vidit. nex . . . forti . . . vades"
    (tmp_path / "la.txt").write_text("lib\n", "utf-8")
    parts = ["dubium numquam fuit.", "tanta enim!", "M. Tullius lib.", "primo vidit.", "nex . . . forti . . . vades"]
    assert split_sentences(text, language="generic") == parts
    listed = [*parts[:2], " ".join(parts[2:4]), parts[4]]
    assert split_sentences(text, language=f"generic:{tmp_path / 'la.txt'}") == listed
