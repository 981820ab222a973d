"""The output vocabulary: its order, its file, and what each fault says."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text.vocab import Vocab, read_vocab

SPECIALS = ["<S>", "</S>", "<UNK>"]


def write(path: Path, *lines: str) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_words_go_by_falling_count_then_by_code_point() -> None:
    counts = Counter("the the the é b b B B z".split())
    assert list(Vocab.from_counts(counts).words) == [*SPECIALS, "the", "B", "b", "z", "é"]


def test_the_order_of_the_counts_does_not_matter() -> None:
    counts = Counter("c a b b a c d".split())
    reversed_counts = dict(reversed(counts.items()))
    assert Vocab.from_counts(counts).words == Vocab.from_counts(reversed_counts).words


def test_max_size_counts_the_specials() -> None:
    vocab = Vocab.from_counts(Counter("a a b".split()), max_size=4)
    assert list(vocab.words) == [*SPECIALS, "a"]
    assert len(vocab) == 4


def test_rare_words_are_left_out() -> None:
    assert list(Vocab.from_counts(Counter("a a b".split()), min_count=2).words) == [*SPECIALS, "a"]


def test_specials_in_the_text_are_not_listed_twice() -> None:
    counts = Counter("<UNK> <UNK> a !!!MAXTERMID".split())
    assert list(Vocab.from_counts(counts).words) == [*SPECIALS, "a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_size": 3}, "max_size is 3; it must be 4 or more"),
        ({"min_count": 9}, r"no word is seen 9 times \(the most frequent: 2\)"),
    ],
)
def test_a_vocabulary_without_words_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Vocab.from_counts({"a": 2}, **options)


def test_an_unknown_word_has_the_id_of_unk() -> None:
    vocab = Vocab(["a", *SPECIALS])
    assert [vocab.id(word) for word in ("a", "A", "<S>", "</S>", "<UNK>")] == [0, 3, 1, 2, 3]
    assert (vocab.bos_id, vocab.eos_id, vocab.unk_id) == (1, 2, 3)
    assert "a" in vocab
    assert "A" not in vocab


@given(st.sets(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda word: word.split() == [word])))
def test_a_file_gives_back_the_vocabulary_that_wrote_it(tmp_path_factory: pytest.TempPathFactory, words) -> None:
    vocab = Vocab([*SPECIALS, *(words - {*SPECIALS, "!!!MAXTERMID"})])
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_bytes(vocab.to_text().encode())
    assert read_vocab(path).words == vocab.words


def test_the_line_of_old_tools_has_no_id(tmp_path: Path) -> None:
    vocab = read_vocab(write(tmp_path / "vocab.txt", *SPECIALS, "!!!MAXTERMID", "a", "!!!MAXTERMID"))
    assert list(vocab.words) == [*SPECIALS, "a"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", "b", "a"], r"line 7: 'a' is there already, 2 before"),
        (["a", ""], r"line 6: is blank"),
        (["a b"], r"line 5: 'a b' has white space"),
        (["a\u00a0"], r"line 5: 'a\\xa0' has white space"),
        (["a", "b\u2028c"], r"line 6: 'b\\u2028c' has white space"),
    ],
)
def test_a_fault_in_a_file_is_told_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = write(tmp_path / "vocab.txt", *SPECIALS, "!!!MAXTERMID", *lines)
    with pytest.raises(InputError, match=rf"vocab\.txt, {message}"):
        read_vocab(path)


def test_missing_specials_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "vocab.txt", "<S>", "a")
    with pytest.raises(InputError, match=r"vocab\.txt: the vocabulary has no </S> <UNK>; put <S> </S> <UNK>"):
        read_vocab(path)


@pytest.mark.parametrize("word", ["", "a b", "<S>", "!!!MAXTERMID"])
def test_a_word_that_a_file_cannot_hold_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="word 3 of the vocabulary"):
        Vocab([*SPECIALS, word])
