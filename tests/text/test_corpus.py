"""A prepared corpus: what its arrays say, and what is said of a damaged one."""

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.chars import encode_words
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

TEXT = "the cat saw the dog\nthe é dog\nsaw\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_bytes(TEXT.encode())
    prepare_corpus([tmp_path / "text.txt"], tmp_path / "corpus", rules=TextRules(tokenized=True), max_chars=8)
    return tmp_path / "corpus"


def test_sentences_come_back_word_for_word(folder: Path) -> None:
    corpus = Corpus.open(folder)
    sentences = [" ".join(map(corpus.word, corpus.sentence(i).tolist())) for i in range(corpus.num_sentences)]
    assert sentences == TEXT.splitlines()
    assert corpus.lengths.tolist() == [5, 3, 1]
    assert (corpus.num_tokens, corpus.num_sentences, corpus.num_targets, corpus.num_words) == (9, 3, 12, 5)


def test_word_ids_go_by_falling_count_then_by_code_point(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert list(corpus.word_counts().items()) == [("the", 3), ("dog", 2), ("saw", 2), ("cat", 1), ("é", 1)]
    assert [corpus.word(i) for i in range(7)] == ["the", "dog", "saw", "cat", "é", "<S>", "</S>"]
    assert (corpus.bos_id, corpus.eos_id) == (5, 6)


def test_character_ids_are_those_of_the_words_and_boundaries(folder: Path) -> None:
    corpus = Corpus.open(folder)
    word_ids = np.array([[corpus.eos_id, 4], [0, corpus.bos_id]])
    expected = encode_words(["</S>", "é", "the", "<S>"], max_chars=8).char_ids_WC
    assert corpus.char_ids(word_ids).tolist() == expected.reshape(2, 2, 8).tolist()


def test_target_ids_are_the_vocabularys(folder: Path) -> None:
    corpus = Corpus.open(folder)
    vocab = Vocab(["<UNK>", "dog", "</S>", "é", "<S>"])
    assert corpus.target_ids(vocab).tolist() == [0, 1, 0, 0, 3, 4, 2]


def test_a_full_vocabulary_keeps_the_order_of_the_corpus(folder: Path) -> None:
    corpus = Corpus.open(folder)
    vocab = Vocab.from_counts(corpus.word_counts())
    assert corpus.target_ids(vocab).tolist() == [3, 4, 5, 6, 7, 0, 1]


def mapped_bytes() -> int:
    status = Path("/proc/self/status").read_text("utf-8")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssFile:")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how much of a file is mapped")
def test_released_pages_can_be_read_again(tmp_path: Path) -> None:
    line = " ".join(f"word{number}" for number in range(1000)) + "\n"
    (tmp_path / "text.txt").write_text(2000 * line, "utf-8")  # eight megabytes of ids
    prepare_corpus([tmp_path / "text.txt"], tmp_path / "corpus", rules=TextRules(tokenized=True), max_chars=8)
    corpus = Corpus.open(tmp_path / "corpus")
    corpus.release_pages()
    before = mapped_bytes()
    total = corpus.tokens.sum()
    after = mapped_bytes()
    assert after - before > 7_000_000
    corpus.release_pages()
    assert mapped_bytes() - before < 1_000_000
    assert corpus.tokens.sum() == total


@pytest.mark.parametrize("index", [-1, 3])
def test_a_sentence_that_is_not_there_is_refused(folder: Path, index: int) -> None:
    with pytest.raises(InputError, match=f"no sentence {index}; the corpus has 3"):
        Corpus.open(folder).sentence(index)


@pytest.mark.parametrize("word_id", [-1, 7])
def test_a_word_that_is_not_there_is_refused(folder: Path, word_id: int) -> None:
    with pytest.raises(InputError, match=f"no word id {word_id}; the largest is 6"):
        Corpus.open(folder).word(word_id)


def test_a_folder_without_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no prepared corpus \(there is no corpus.json\)"):
        Corpus.open(tmp_path)


def array_files() -> list[str]:
    return "tokens.bin lengths.bin offsets.bin words.txt word_offsets.bin counts.bin char_ids.bin".split()


@pytest.mark.parametrize("name", array_files())
def test_a_cut_or_missing_file_is_told(folder: Path, name: str) -> None:
    path = folder / name
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=f"{name} has {size - 1:,} bytes, but corpus.json says {size:,}; delete"):
        Corpus.open(folder)
    path.unlink()
    with pytest.raises(InputError, match=f"{name} has 0 bytes"):
        Corpus.open(folder)


def test_the_description_lists_all_files(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(["corpus.json", *array_files()])


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b'{"format": 1}', "version 2", "negative"],
)
def test_a_damaged_description_is_told(folder: Path, damaged: bytes | str) -> None:
    path = folder / "corpus.json"
    description = json.loads(path.read_bytes())
    if damaged == "version 2":
        damaged = json.dumps({**description, "format": 2}).encode()
    if damaged == "negative":
        damaged = json.dumps({**description, "num_tokens": -9}).encode()
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="prepare the corpus again"):
        Corpus.open(folder)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def without_sums(folder: Path) -> None:
    """Make the corpus one of an older version."""
    meta = json.loads((folder / "corpus.json").read_text("utf-8"))
    del meta["sums"]
    (folder / "corpus.json").write_text(json.dumps(meta), "utf-8")


@pytest.mark.parametrize("name", array_files())
def test_a_changed_byte_is_noticed(folder: Path, name: str) -> None:
    flip(folder / name, -1)
    with pytest.raises(InputError, match=f"{name} is damaged: its SHA-256 is not the one .*; delete .* again"):
        Corpus.open(folder)


def test_a_corpus_of_an_older_version_opens_with_a_warning(folder: Path) -> None:
    without_sums(folder)
    with pytest.warns(ElmokitWarning, match="was prepared by an older version and has no checksums"):
        assert Corpus.open(folder).num_tokens == 9


CONTRADICTIONS = {
    "tokens.bin": (b"\x05\0\0\0", "a word id is above 4"),
    "offsets.bin": (b"\x01", "do not cover tokens.bin"),
    "lengths.bin": (b"\x04\0\0\0", "have not the lengths"),
    "counts.bin": (b"\x04", "do not add up"),
    "char_ids.bin": (b"\xff\xff", "a character id is above 261"),
    "word_offsets.bin": (b"\x01", "do not cover words.txt"),
    "words.txt": (b"\xff", "not UTF-8"),
}


@pytest.mark.filterwarnings("ignore:.*has no checksums")
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_arrays_that_contradict_each_other_are_rejected_without_sums(folder: Path, name: str) -> None:
    without_sums(folder)
    start, message = CONTRADICTIONS[name]
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(start + content[len(start) :])
    named = "offsets.bin" if name == "lengths.bin" else name
    with pytest.raises(InputError, match=f"{named} is damaged: .*{message}"):
        Corpus.open(folder)


@pytest.mark.filterwarnings("ignore:.*has no checksums")
def test_a_line_end_inside_a_word_is_rejected_without_sums(folder: Path) -> None:
    without_sums(folder)
    (folder / "words.txt").write_bytes((folder / "words.txt").read_bytes().replace(b"dog", b"d\ng"))
    with pytest.raises(InputError, match=r"words\.txt is damaged: a line is not one word"):
        Corpus.open(folder)
