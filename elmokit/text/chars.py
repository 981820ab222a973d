"""Words as character ids, the only input that a biLM takes.

A word is its UTF-8 bytes between a begin-word and an end-word id, cut and padded to a fixed length. Every id is
one more than in a model's character table, so that 0 is left for "no word here".

Shapes: W words, B sentences, T tokens in the longest of them, C ids a word (max_chars).
"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.config import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    FIRST_BYTE,
    NO_WORD,
    PAD_CHAR,
)
from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.checks import check_tokens

CharIds = npt.NDArray[np.int64]

BOS_WORD = "<S>"
EOS_WORD = "</S>"
MIN_CHARS = 3
"""Begin-word, one byte, end-word."""

_BOUNDARY_IDS = {BOS_WORD: BEGIN_SENTENCE, EOS_WORD: END_SENTENCE}
_QUOTED_CHARS = 20


@dataclass(frozen=True)
class EncodedWords:
    """The ids of some words, and what did not fit."""

    char_ids_WC: CharIds
    num_cut: int
    """Words that lost bytes because they are longer than max_chars - 2 bytes."""
    first_cut: str | None


def encode_words(words: Sequence[str], *, max_chars: int) -> EncodedWords:
    """Spell every word out as ``max_chars`` ids.

    A word equal to ``<S>`` or ``</S>`` is the sentence boundary. What UTF-8 cannot hold (a lone surrogate) is
    left out. A cut can fall inside a character, as it did when the published models were trained.
    """
    _check(words, max_chars)
    num_bytes = max_chars - 2
    # One byte more than fits, to see which words are cut. A character has at least one byte.
    enough = num_bytes + 1
    encoded = [
        word.encode("utf-8", "ignore") if len(word) <= enough else _leading_bytes(word, enough) for word in words
    ]
    lengths_W = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    cut_rows = np.flatnonzero(lengths_W > num_bytes).tolist()
    np.minimum(lengths_W, num_bytes, out=lengths_W)

    char_ids_WC = np.full((len(encoded), max_chars), PAD_CHAR, dtype=np.int64)
    char_ids_WC[:, 0] = BEGIN_WORD
    # numpy cuts each item at num_bytes and fills it up with zeros; the mask tells the fill from a real zero byte.
    bytes_WN = np.array(encoded, dtype=f"S{num_bytes}").view(np.uint8).reshape(len(encoded), num_bytes)
    real_WN = np.arange(num_bytes) < lengths_W[:, None]
    np.add(bytes_WN, FIRST_BYTE, out=char_ids_WC[:, 1:-1], where=real_WN, dtype=np.int64)
    char_ids_WC[np.arange(len(encoded)), lengths_W + 1] = END_WORD
    for row, word in enumerate(words):
        if word in _BOUNDARY_IDS:
            char_ids_WC[row] = _boundary_row(_BOUNDARY_IDS[word], max_chars)
    # With room for one byte a boundary word is "cut" as a spelling, but its row is exact.
    cut_words = [words[row] for row in cut_rows if words[row] not in _BOUNDARY_IDS]
    return EncodedWords(char_ids_WC, num_cut=len(cut_words), first_cut=cut_words[0] if cut_words else None)


def bytes_read(word: str, *, max_chars: int) -> str | bytes:
    """Return what a model reads of a word, as a key: equal for words that differ only in what is cut or left out."""
    num_bytes = max_chars - 2
    # A character has at most four bytes, so a short word is read whole.
    if 4 * len(word) <= num_bytes or word in _BOUNDARY_IDS:
        return word
    return _leading_bytes(word, num_bytes)


def pad_sentences(sentences: Sequence[Sequence[str]], *, max_chars: int) -> CharIds:
    """Return the ids of all sentences side by side, (B, T, max_chars), zeros after each one's last word.

    No sentence boundaries are added. This is the layout of AllenNLP's ``batch_to_ids``. Words that are cut are reported
    by a warning.
    """
    for sentence in sentences:
        _check(sentence, max_chars)
    lengths_B = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    num_tokens = int(lengths_B.max(initial=0))
    char_ids_BTC = np.full((len(sentences), num_tokens, max_chars), NO_WORD, dtype=np.int64)
    words = [word for sentence in sentences for word in sentence]
    real_BT = np.arange(num_tokens) < lengths_B[:, None]
    char_ids_BTC[real_BT] = encode_words(words, max_chars=max_chars).char_ids_WC
    cut_words = CutWords(max_chars=max_chars)
    cut_words.add(words)
    if message := cut_words.message():
        warnings.warn(message, ElmokitWarning, stacklevel=2)
    return char_ids_BTC


class CutWords:
    """Counts the words that did not fit, over many calls, for one message at the end."""

    def __init__(self, *, max_chars: int, unit: Literal["bytes", "characters"] = "bytes") -> None:
        self.max_chars = max_chars
        self.unit = unit
        self.num_words = 0
        self.num_cut = 0
        self.first_cut: str | None = None

    def add(self, words: Collection[str]) -> None:
        """Count these words too; boundaries are none."""
        self.num_words += sum(word not in _BOUNDARY_IDS for word in words)
        limit = self.max_chars - 2
        for word in words:
            if self.unit == "characters":
                is_cut = len(word) > limit
            else:
                # A character has at most four bytes, so a short word needs no closer look.
                is_cut = 4 * len(word) > limit and len(_leading_bytes(word, limit + 1)) > limit
            if is_cut and word not in _BOUNDARY_IDS:
                self.num_cut += 1
                self.first_cut = self.first_cut or word

    def message(self) -> str | None:
        """Say how many words were cut and what follows from it; None if all fitted."""
        if self.first_cut is None:
            return None
        limit = f"{self.max_chars - 2} {self.unit}"
        are_longer, were_cut = ("is longer", "was") if self.num_cut == 1 else ("are longer", "were")
        return (
            f"{self.num_cut:,} of {self.num_words:,} words {are_longer} than {limit} and {were_cut} cut "
            f"(first: {_quote(self.first_cut)}); words with the same first {limit} look the same to the "
            "model. Split such words if the difference matters"
        )


def _check(words: Sequence[str], max_chars: int) -> None:
    if max_chars < MIN_CHARS:
        raise InputError(f"max_chars is {max_chars}; a word needs at least {MIN_CHARS} ids (begin, one byte, end)")
    if isinstance(words, str):
        raise InputError(
            f"a sentence is the string {_quote(words)}, but must be a list of tokens; split it first, "
            "for example with elmokit.text.tokens.tokenize"
        )
    check_tokens(words)


def _leading_bytes(word: str, count: int) -> bytes:
    """Encode no more of a word than it takes to have ``count`` bytes; lone surrogates give none."""
    encoded = b""
    for start in range(0, len(word), count):
        encoded += word[start : start + count].encode("utf-8", "ignore")
        if len(encoded) >= count:
            break
    return encoded


def _boundary_row(boundary_id: int, max_chars: int) -> CharIds:
    row_C = np.full(max_chars, PAD_CHAR, dtype=np.int64)
    row_C[:3] = BEGIN_WORD, boundary_id, END_WORD
    return row_C


def _quote(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…")
