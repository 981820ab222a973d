"""Words to ids, against a slow spelling-out of the published layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.chars import BOS_WORD, EOS_WORD, CutWords, encode_words, pad_sentences

any_text = st.text(st.characters(), max_size=60)  # with lone surrogates, which st.text() alone leaves out
words = st.one_of(any_text, st.sampled_from([BOS_WORD, EOS_WORD, "", "\0", "\ud800", "é" * 30]))
max_chars_values = st.integers(3, 60)


def spell(word: str, max_chars: int) -> tuple[list[int], bool]:
    """One word's ids byte by byte in the table's numbering, then all plus one; and whether bytes were lost."""
    middle = {"<S>": [256], "</S>": [257]}.get(word)
    lost = False
    if middle is None:
        encoded = [byte for char in word for byte in char.encode("utf-8", "ignore")]
        middle = encoded[: max_chars - 2]
        lost = len(encoded) > len(middle)
    row = [258, *middle, 259]
    return [1 + each for each in row + [260] * (max_chars - len(row))], lost


@given(st.lists(words, max_size=8), max_chars_values)
def test_ids_are_the_published_layout_plus_one(words: list[str], max_chars: int) -> None:
    encoded = encode_words(words, max_chars=max_chars)
    expected = [spell(word, max_chars) for word in words]
    assert encoded.char_ids_WC.shape == (len(words), max_chars)
    assert encoded.char_ids_WC.dtype == np.int64
    assert encoded.char_ids_WC.tolist() == [row for row, _ in expected]
    cut = [word for word, (_, lost) in zip(words, expected, strict=True) if lost]
    assert encoded.num_cut == len(cut)
    assert encoded.first_cut == (cut[0] if cut else None)


def test_a_known_word_has_known_ids() -> None:
    row = encode_words(["Aé"], max_chars=8).char_ids_WC[0]
    assert row.tolist() == [259, 66, 196, 170, 260, 261, 261, 261]


@pytest.mark.parametrize("tail", ["", "\ud800" * 100])
def test_surrogates_neither_fill_the_row_nor_count_as_cut(tail: str) -> None:
    encoded = encode_words(["\udfff" * 500 + "abc" + tail], max_chars=5)
    assert encoded.char_ids_WC[0].tolist() == [259, 98, 99, 100, 260]
    assert encoded.num_cut == 0


def test_a_long_word_is_not_encoded_whole() -> None:
    class Watched(str):
        def encode(self, *_: str) -> bytes:  # type: ignore[override]
            raise AssertionError(f"encoded {len(self)} characters at once")

    encoded = encode_words([Watched("x" * 1_000_000)], max_chars=50)
    assert encoded.num_cut == 1
    assert encoded.char_ids_WC[0, -2:].tolist() == [1 + ord("x"), 260]


@pytest.mark.filterwarnings("ignore:.*(was|were) cut")
@given(st.lists(st.lists(words, max_size=4), max_size=5), max_chars_values)
def test_padded_sentences_hold_each_word_then_zeros(sentences: list[list[str]], max_chars: int) -> None:
    char_ids_BTC = pad_sentences(sentences, max_chars=max_chars)
    longest = max(map(len, sentences), default=0)
    assert char_ids_BTC.shape == (len(sentences), longest, max_chars)
    for sentence, ids_TC in zip(sentences, char_ids_BTC, strict=True):
        assert ids_TC[: len(sentence)].tolist() == [spell(word, max_chars)[0] for word in sentence]
        assert not ids_TC[len(sentence) :].any()


def test_padded_sentences_report_words_that_are_cut() -> None:
    with pytest.warns(ElmokitWarning, match="1 of 2 words is longer than 8 bytes and was cut"):
        pad_sentences([["short", "Достоевский"]], max_chars=10)


def test_a_string_in_place_of_a_list_of_tokens_is_refused() -> None:
    with pytest.raises(InputError, match=r"'The bank', but must be a list of tokens"):
        encode_words("The bank", max_chars=50)
    with pytest.raises(InputError, match=r"'The bank', but must be a list of tokens"):
        pad_sentences(["The bank"], max_chars=50)


def test_a_token_that_is_no_string_is_named() -> None:
    with pytest.raises(InputError, match="a token is None, of type NoneType"):
        encode_words(["a", None], max_chars=50)  # type: ignore[list-item]


def test_numpy_strings_are_strings() -> None:
    assert encode_words(np.array(["ab"]), max_chars=4).char_ids_WC.tolist() == [[259, 98, 99, 260]]  # type: ignore[arg-type]


@pytest.mark.parametrize("sentences", [[], [["a"]]])
def test_too_few_ids_for_a_word_are_refused(sentences: list[list[str]]) -> None:
    with pytest.raises(InputError, match="max_chars is 2; a word needs at least 3"):
        pad_sentences(sentences, max_chars=2)


def test_cut_words_are_told_once_for_many_calls() -> None:
    cut_words = CutWords(max_chars=50)
    assert cut_words.message() is None
    cut_words.add(["short"] * 3000)
    assert cut_words.message() is None
    cut_words.add(["Донаудампфшиффартсгезельшафт", "b" * 49])
    cut_words.add(["c" * 1000, "\ud800" * 60, "d" * 48])
    cut_words.add([BOS_WORD, EOS_WORD])  # no words
    message = cut_words.message()
    assert message is not None
    assert message.startswith("3 of 3,005 words are longer than 48 bytes and were cut (first: 'Донаудампфшиффартсге…')")
