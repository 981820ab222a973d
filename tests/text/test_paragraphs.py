import hashlib
import json
import lzma
from pathlib import Path

import pytest

from elmokit.text import chunks
from elmokit.text.corpus import Corpus
from elmokit.text.lines import Line, read_lines
from elmokit.text.paragraphs import LONG, TOO_LONG, join_wrapped, unwrap
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules

NOVEL = """\
CHAPTER I.

  It was late. Mr.
Darcy came in with a well-
known face, and
left.

"Why?" said

Joseph.
"""

WRAPPED = TextRules(wrapped=True)


def as_lines(text: str, path: str = "a.txt") -> list[Line]:
    return [Line(line, path, number) for number, line in enumerate(text.split("\n"), start=1)]


def sentences(corpus: Corpus) -> list[str]:
    return [" ".join(map(corpus.word, corpus.sentence(i).tolist())) for i in range(corpus.num_sentences)]


def test_a_blank_line_ends_a_paragraph() -> None:
    joined = list(join_wrapped(as_lines("a b\nc\n \t\n\nd\n")))
    assert joined == [Line("a b\nc", "a.txt", 1), Line("d", "a.txt", 5)]


def test_a_file_ends_a_paragraph_even_if_it_is_read_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb")
    joined = list(join_wrapped(read_lines([tmp_path / "a.txt", tmp_path / "a.txt"])))
    assert [(line.text, line.number) for line in joined] == [("a\nb", 1), ("a\nb", 1)]


def test_text_without_blank_lines_comes_in_parts_that_end_with_a_sentence() -> None:
    lines = as_lines("\n".join(["so it goes on"] * 500 + ['and ends."'] + ["then again"] * 10))
    first, second = join_wrapped(lines)
    assert len(first.text) > LONG
    assert first.text.endswith('ends."')
    assert second == Line("\n".join(["then again"] * 10), "a.txt", 502)


def test_text_without_sentences_comes_in_parts_too() -> None:
    lines = as_lines("\n".join(["no end here"] * 20_000))
    joined = list(join_wrapped(lines))
    assert max(len(line.text) for line in joined) < TOO_LONG + 12
    assert "\n".join(line.text for line in joined) == "\n".join(line.text for line in lines)


def test_words_with_a_hyphen_are_put_together() -> None:
    assert unwrap("a well-\nknown, low- \n cost and\nfoo -\nbar 3-\n4") == "a well-known, low-cost and\nfoo -\nbar 3-4"


def test_wrapped_text_is_prepared_by_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOVEL)
    corpus = prepare_corpus([tmp_path / "a.txt"], tmp_path / "corpus", rules=WRAPPED)
    assert sentences(corpus) == [
        "CHAPTER I.",
        "It was late .",
        "Mr. Darcy came in with a well-known face , and left .",
        '" Why ? " said',
        "Joseph .",
    ]


@pytest.mark.long
def test_line_ends_and_workers_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 5_000)
    text = "He went home with his\ndog. It was a far-\noff place, and it rained.\n" * 200  # more than one chunk
    (tmp_path / "unix.txt").write_text(text)
    (tmp_path / "dos.txt.xz").write_bytes(lzma.compress(text.replace("\n", "\r\n").encode(), preset=0))
    one = prepare_corpus([tmp_path / "unix.txt"], tmp_path / "one", rules=WRAPPED)
    other = prepare_corpus([tmp_path / "dos.txt.xz"], tmp_path / "other", rules=WRAPPED, num_workers=2)
    assert one.num_sentences == other.num_sentences == 400
    for name in ("tokens.bin", "lengths.bin", "words.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_settings_without_effect_are_the_same_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOVEL)

    def fingerprint(**settings: bool) -> str:
        return prepare_corpus([tmp_path / "a.txt"], tmp_path / "corpus", rules=TextRules(**settings)).fingerprint

    plain, split, wrapped = fingerprint(), fingerprint(split=True), fingerprint(wrapped=True)
    assert len({plain, split, wrapped}) == 3
    assert fingerprint(split=True, wrapped=True) == wrapped


def test_a_text_that_is_not_wrapped_is_known_as_before_there_was_a_choice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOVEL)
    how = {"tokenized": False, "split": True, "language": "en", "max_chars": 50}
    content = [1, [hashlib.sha256(NOVEL.encode()).hexdigest()], how]
    known_as = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    assert (
        prepare_corpus([tmp_path / "a.txt"], tmp_path / "corpus", rules=TextRules(split=True)).fingerprint == known_as
    )
