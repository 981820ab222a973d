"""Sentences to leave out of training text because a test set has them (decontamination).

A training sentence is left out if it is in one of the given files, or shares a run of 13 words with one. Both are
compared without case, white space and punctuation, so that tokenization does not matter. Sentences of fewer than 40
letters and digits are too common to count as found.

The files are stored as sorted 64-bit hashes, 16 bytes per word of the files; memory does not grow with the training
text. The chance that one of 10^9 training words hits one of 10^7 runs by accident is about 5 in 10,000.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.text.corpus import ExcludedFile, Source
from elmokit.text.grouping import windows

RULE = 3  # part of a corpus' fingerprint; count up when the rule changes
RUN_WORDS = 13  # words that are shared by chance hardly ever
MIN_LETTERS = 40  # letters and digits of a sentence
TEXTS_AT_ONCE = 4096

_WORDS = re.compile(r"[^\W_]+")
SENTENCE_ENDS = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\u201d\u2019])) ")
_NOTES = re.compile(r"(?<=[.!?\"')\u201d\u2019])\s*(?:\[[^\]]{1,40}\]\s*)+")  # Wikipedia's [12] and [citation needed]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word of a run is lost

Hashes = NDArray[np.uint64]
Lines = TypeVar("Lines")


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Files whose sentences are to be left out."""

    files: tuple[str, ...]
    read_texts: Callable[[str], Iterable[str]]
    """Yields the texts of a file: sentences or paragraphs."""

    def build_index(self) -> "ExclusionIndex":
        """Read the files and return their index."""
        return ExclusionIndex([_index_file(self.read_texts(name)) for name in self.files])


@dataclass(frozen=True)
class FileIndex:
    """Sorted hashes of the sentences and runs of one file."""

    sentences: Hashes
    runs: Hashes


class ExclusionIndex:
    """Hashes of all sentences and runs of the files."""

    def __init__(self, files: Sequence[FileIndex]) -> None:
        self.files = tuple(files)
        self._all = FileIndex(
            _sorted([file.sentences for file in self.files]), _sorted([file.runs for file in self.files])
        )

    def divide(self, sentences: Sequence[str]) -> tuple[list[str], list["LeftOutSentence"]]:
        """Return the sentences to keep, and those that a file has."""
        found = self.find(sentences)
        kept = [sentence for sentence, files in zip(sentences, found, strict=True) if not files]
        return kept, [LeftOutSentence(*pair) for pair in zip(sentences, found, strict=True) if pair[1]]

    def find(self, sentences: Sequence[str]) -> list[tuple[int, ...]]:
        """Return for each sentence the numbers of the files that have it or share a run with it."""
        texts = _hash_texts(sentences)
        # Most sentences are in no file, so one lookup in all files together comes first.
        suspects = np.flatnonzero(texts.are_in(self._all))
        found: list[tuple[int, ...]] = [()] * len(sentences)
        if len(suspects):
            few = _hash_texts([sentences[index] for index in suspects.tolist()])
            per_file = np.array([few.are_in(file) for file in self.files])
            for column, index in enumerate(suspects.tolist()):
                found[index] = tuple(np.flatnonzero(per_file[:, column]).tolist())
        return found


class LeftOutSentence(NamedTuple):
    """A sentence that is left out, and the numbers of the files that have it."""

    sentence: str
    files: tuple[int, ...]


class HasLeftOut(Protocol):
    """A chunk of a text that knows its left-out sentences."""

    @property
    def left_out(self) -> list[LeftOutSentence]:
        """The sentences of the chunk that were left out."""


Chunk = TypeVar("Chunk", bound=HasLeftOut)


class LeftOut:
    """Sentences that are left out of a text: counted per file, and listed in a file of their own."""

    def __init__(self, path: Path, sources: tuple[Source, ...]) -> None:
        """Without any ``sources``, nothing is written."""
        self.sources = sources
        self.num_sentences = 0
        self._counts = [0] * len(sources)
        self._file = path.open("w", encoding="utf-8") if sources else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def track(self, chunks: Iterable[tuple[Lines, Chunk]]) -> Iterator[tuple[Lines, Chunk]]:
        """Yield the chunks, and note their left-out sentences."""
        for lines, chunk in chunks:
            for sentence, files in chunk.left_out:
                self._add(sentence, files)
            yield lines, chunk

    def counts(self) -> tuple[ExcludedFile, ...]:
        """Return the number of left-out sentences per file."""
        return tuple(
            ExcludedFile(source=source, num_left_out=count)
            for source, count in zip(self.sources, self._counts, strict=True)
        )

    def _add(self, sentence: str, files: tuple[int, ...]) -> None:
        assert self._file is not None
        self.num_sentences += 1
        for file in files:
            self._counts[file] += 1
        names = ", ".join(self.sources[file].name for file in files)
        self._file.write(f"{names}\t{' '.join(sentence.split())}\n")


@dataclass(frozen=True)
class _HashedTexts:
    """Hashes of some texts: one per text, and one per run of words in it."""

    whole: Hashes
    is_long: NDArray[np.bool_]
    runs: Hashes
    run_texts: NDArray[np.int64]
    """The text that each run belongs to."""

    def are_in(self, file: FileIndex) -> NDArray[np.bool_]:
        """Return whether each text is in the file or shares a run with it."""
        found = self.is_long & _contains(file.sentences, self.whole)
        found[self.run_texts[_contains(file.runs, self.runs)]] = True
        return found


def normalize_words(text: str) -> list[str]:
    """Return the runs of letters and digits of a text, in lower case."""
    return _WORDS.findall(text.lower())


def split_texts(text: str) -> list[str]:
    """Return a text and its sentences, which end with ``.``, ``!`` or ``?``, perhaps a quote, and a space.

    After a sentence, a note in brackets counts as a space too.
    """
    pieces = [text, *SENTENCE_ENDS.split(text), *SENTENCE_ENDS.split(_NOTES.sub(" ", text))]
    return list(dict.fromkeys(pieces))


def _index_file(texts: Iterable[str]) -> FileIndex:
    sentences, runs = [], []
    for some_texts in windows(texts, TEXTS_AT_ONCE):
        hashed = _hash_texts(some_texts)  # runs of whole texts: they may cross the end of a sentence
        runs.append(np.unique(hashed.runs))
        pieces = _hash_texts([piece for text in some_texts for piece in split_texts(text)])
        sentences.append(np.unique(pieces.whole[pieces.is_long]))
    return FileIndex(_sorted(sentences), _sorted(runs))


def _hash_texts(texts: Sequence[str]) -> _HashedTexts:
    words = [normalize_words(text) for text in texts]
    letters = ["".join(some_words) for some_words in words]
    hashes: dict[str, int] = {}
    for some_words in words:
        for word in some_words:
            if word not in hashes:
                hashes[word] = _hash(word)
    all_words = np.array([hashes[word] for some_words in words for word in some_words], dtype=np.uint64)
    lengths = np.array([len(some_words) for some_words in words], dtype=np.int64)
    num_runs = np.maximum(lengths - RUN_WORDS + 1, 0)
    run_texts = np.repeat(np.arange(len(texts)), num_runs)
    # Run k of a text starts at its word k.
    first_runs, first_words = np.cumsum(num_runs) - num_runs, np.cumsum(lengths) - lengths
    starts = np.arange(len(run_texts)) + np.repeat(first_words - first_runs, num_runs)
    runs = np.zeros(len(starts), dtype=np.uint64)
    for offset in range(RUN_WORDS):
        runs = runs * _MULTIPLIER + all_words[starts + offset]
    return _HashedTexts(
        whole=np.array([_hash(text) for text in letters], dtype=np.uint64),
        is_long=np.array([len(text) >= MIN_LETTERS for text in letters], dtype=np.bool_),
        runs=runs,
        run_texts=run_texts,
    )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _sorted(parts: Sequence[Hashes]) -> Hashes:
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.uint64)


def _contains(rising: Hashes, values: Hashes) -> NDArray[np.bool_]:
    if not len(rising):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(rising, values), len(rising) - 1)
    found: NDArray[np.bool_] = rising[places] == values
    return found
