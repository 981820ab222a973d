"""Count the words of a text that need not fit in memory; its distinct words must."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules


@dataclass(frozen=True)
class WordCounts:
    """Word counts of a text."""

    words: dict[str, int]
    """Every distinct word, the most frequent first."""
    num_tokens: int
    num_sentences: int


def count_words(
    files: Iterable[str | Path],
    *,
    beside: str | Path,
    rules: TextRules,
    num_workers: int,
) -> WordCounts:
    """Count the words of text files; a temporary folder next to ``beside`` holds what is too large for memory.

    The other arguments are those of `elmokit.text.preparation.prepare_corpus`.
    """
    place = Path(os.path.realpath(beside)).parent
    try:
        folder = tempfile.TemporaryDirectory(prefix=".elmokit-", suffix=".tmp", dir=place)
    except OSError as error:
        raise OutputError(f"{beside}: cannot be written: {error.strerror}; write elsewhere") from error
    with folder as name:
        corpus = prepare_corpus(files, Path(name) / "text", rules=rules, num_workers=num_workers)
        counted = WordCounts(corpus.word_counts(), corpus.num_tokens, corpus.num_sentences)
        del corpus  # some disks keep files that are mapped
    return counted
