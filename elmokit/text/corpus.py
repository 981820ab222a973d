"""A text that was prepared for pretraining, read from the disk as arrays.

A prepared corpus is a folder. Every token is a number in it, and every distinct word is spelled out once. The arrays
are mapped, not read, so memory does not grow with the text. ``elmokit.text.preparation`` writes such a folder:

    corpus.json        what was prepared, how, and the sizes below
    tokens.bin         uint32 (N)         word ids of all sentences, one after the other
    lengths.bin        uint32 (S)         words a sentence
    offsets.bin        int64  (S + 1)     where a sentence begins in tokens.bin
    words.txt          the distinct words, one a line, the most frequent first: line i + 1 is word id i
    word_offsets.bin   int64  (W + 1)     where a word begins in words.txt, in bytes
    counts.bin         int64  (W)         how often a word is seen
    char_ids.bin       uint16 (W + 2, C)  the words' character ids, then those of <S> and </S>
    left_out.tsv       the sentences that were left out, if any were to be: the files that have it, a tab, the sentence

Shapes: N tokens, S sentences, W distinct words, C character ids a word (max_chars).
"""

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.config import FrozenConfig, parse_config
from elmokit.errors import InputError
from elmokit.plain_file import read_plain
from elmokit.text.chars import BOS_WORD, EOS_WORD
from elmokit.text.corpus_check import check_arrays, check_hashes
from elmokit.text.vocab import Vocab

WordIds = NDArray[np.uint32]

META_FILE = "corpus.json"
WORDS_FILE = "words.txt"
LEFT_OUT_FILE = "left_out.tsv"


class Source(FrozenConfig):
    """A text file as it was when it was prepared."""

    name: str
    num_bytes: int
    sha256: str


class ExcludedFile(FrozenConfig):
    """A file whose sentences were left out of a text."""

    source: Source
    num_left_out: int
    """Sentences of the text that are in the file or share a run of words with it."""


class CorpusSettings(FrozenConfig):
    """The text's rules, and the length of spellings, as on disk."""

    tokenized: bool
    split: bool
    wrapped: bool = False  # older corpora have no such key
    language: str
    max_chars: int


class CorpusMeta(FrozenConfig):
    """Sources and sizes of a prepared corpus."""

    format: Literal[1] = 1
    fingerprint: str
    """The same for the same text under the same settings, whatever the files' names and places."""
    settings: CorpusSettings
    sources: tuple[Source, ...]
    num_tokens: int
    num_sentences: int
    num_words: int
    num_cut_words: int
    words_bytes: int
    excluded: tuple[ExcludedFile, ...] = ()
    num_left_out: int = 0
    """Sentences that were left out, each counted once; `LEFT_OUT_FILE` lists them."""
    sums: dict[str, str] | None = None
    """SHA-256 of every array's file; older corpora have none."""

    @property
    def arrays(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every array in the folder."""
        return {
            "tokens.bin": ("<u4", (self.num_tokens,)),
            "lengths.bin": ("<u4", (self.num_sentences,)),
            "offsets.bin": ("<i8", (self.num_sentences + 1,)),
            WORDS_FILE: ("u1", (self.words_bytes,)),
            "word_offsets.bin": ("<i8", (self.num_words + 1,)),
            "counts.bin": ("<i8", (self.num_words,)),
            "char_ids.bin": ("<u2", (self.num_words + 2, self.settings.max_chars)),
        }


@dataclass(frozen=True, eq=False)
class Corpus:
    """A prepared corpus. Word ids go by falling count; the two after the last word are ``<S>`` and ``</S>``."""

    meta: CorpusMeta
    tokens: WordIds
    lengths: NDArray[np.uint32]
    """Words of every sentence. A language model predicts one thing more in each: the boundary at its end."""
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    words_text: NDArray[np.uint8]
    word_offsets: NDArray[np.int64]
    char_table: NDArray[np.uint16]

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """Map a prepared folder after one pass over it, which checks its hashes and that its arrays fit together.

        That takes about a second per gigabyte, and no memory. A corpus of an older version has no hashes: a warning
        is issued.
        """
        folder = Path(folder)
        meta = read_corpus_meta(folder)
        arrays = {name: _map(folder / name, dtype, shape) for name, (dtype, shape) in meta.arrays.items()}
        check_hashes(folder, meta.sums, list(arrays))
        check_arrays(folder, arrays)
        corpus = cls(
            meta=meta,
            tokens=arrays["tokens.bin"],
            lengths=arrays["lengths.bin"],
            offsets=arrays["offsets.bin"],
            counts=arrays["counts.bin"],
            words_text=arrays[WORDS_FILE],
            word_offsets=arrays["word_offsets.bin"],
            char_table=arrays["char_ids.bin"],
        )
        corpus.release_pages()
        return corpus

    @property
    def fingerprint(self) -> str:
        """Names the text and how it was prepared; two corpora with the same one are equal."""
        return self.meta.fingerprint

    @property
    def num_tokens(self) -> int:
        """Words of all sentences, boundaries not counted."""
        return self.meta.num_tokens

    @property
    def num_sentences(self) -> int:
        """Sentences; each has a word at least."""
        return self.meta.num_sentences

    @property
    def num_targets(self) -> int:
        """Targets per epoch of one direction: every word, and one boundary per sentence."""
        return self.num_tokens + self.num_sentences

    @property
    def num_words(self) -> int:
        """Distinct words, boundaries not counted."""
        return self.meta.num_words

    @property
    def num_cut_words(self) -> int:
        """Distinct words that lost bytes because they are longer than max_chars - 2 bytes."""
        return self.meta.num_cut_words

    @property
    def bos_id(self) -> int:
        """The word id of ``<S>``."""
        return self.num_words

    @property
    def eos_id(self) -> int:
        """The word id of ``</S>``."""
        return self.num_words + 1

    def sentence(self, index: int) -> WordIds:
        """Return a sentence's word ids, without boundaries."""
        if not 0 <= index < self.num_sentences:
            raise InputError(f"there is no sentence {index}; the corpus has {self.num_sentences}, counted from 0")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def word(self, word_id: int) -> str:
        """Return the text of a word or a boundary."""
        if word_id in (self.bos_id, self.eos_id):
            return BOS_WORD if word_id == self.bos_id else EOS_WORD
        if not 0 <= word_id < self.num_words:
            raise InputError(f"there is no word id {word_id}; the largest is {self.eos_id}")
        start, stop = self.word_offsets[word_id], self.word_offsets[word_id + 1]
        return self.words_text[start : stop - 1].tobytes().decode()

    def word_counts(self) -> dict[str, int]:
        """Return every distinct word with its count, the most frequent first."""
        return dict(zip(self._words(), self.counts.tolist(), strict=True))

    def char_ids(self, word_ids: NDArray[np.integer[Any]]) -> NDArray[np.uint16]:
        """Return the character ids of words and boundaries: the shape of ``word_ids``, then max_chars."""
        return np.take(self.char_table, word_ids, axis=0)

    def target_ids(self, vocab: Vocab) -> WordIds:
        """Return the vocabulary's id of every word id, those of the boundaries too: (W + 2)."""
        ids = [vocab.id(word) for word in self._words()]
        return np.array([*ids, vocab.bos_id, vocab.eos_id], dtype=np.uint32)

    def release_pages(self) -> None:
        """Give back the memory of what was read: it is mapped again when it is needed. Nothing else changes."""
        words = self.words_text, self.word_offsets, self.counts
        for array in (self.tokens, self.lengths, self.offsets, self.char_table, *words):
            mapped = _buffer(array)
            if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                mapped.madvise(mmap.MADV_DONTNEED)

    def _words(self) -> list[str]:
        return self.words_text.tobytes().decode().split("\n")[:-1]


def read_corpus_meta(folder: Path) -> CorpusMeta:
    """Read the description of a prepared corpus; its arrays are not looked at."""
    path = folder / META_FILE
    if not path.is_file():
        raise InputError(f"{folder}: no prepared corpus (there is no {META_FILE}); prepare one from text files")
    try:
        return parse_config(CorpusMeta, json.loads(read_plain(path)), source=str(path))
    except (ValueError, RecursionError) as error:  # ValueError: of json, and ConfigError
        raise InputError(f"{path} is damaged or of another version ({error}); prepare the corpus again") from None


def _buffer(array: NDArray[Any]) -> object:
    """Return the array that a view is ultimately a part of."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def _map(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else 0
    if found != expected or not expected:
        raise InputError(
            f"{path} has {found:,} bytes, but {META_FILE} says {expected:,}; "
            f"delete {path.parent} and prepare the corpus again"
        )
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=dtype).reshape(shape)
