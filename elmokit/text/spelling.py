"""Words as the ids that a model reads.

Most models read a word's bytes (`elmokit.text.chars`). Some have dictionaries of their own: one of characters, one of
words, or both. A word is then its word id, followed by the ids of its characters. Every id is one more than the row of
the model's table, so that 0 stands for "no word here".

Shapes: W words, B sentences, T tokens in the longest of them, C ids per word.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elmokit.config import (
    BEGIN_ID,
    END_ID,
    FIRST_WORD_ID,
    NO_WORD,
    NUM_SPECIAL_CHARS,
    NUM_SPECIAL_WORDS,
    UNKNOWN_ID,
    BiLMConfig,
)
from elmokit.errors import ElmokitWarning
from elmokit.text.chars import BOS_WORD, EOS_WORD, CharIds, CutWords, EncodedWords, bytes_read, encode_words
from elmokit.text.checks import check_tokens
from elmokit.text.vocab import SPECIAL_WORDS, UNK_WORD, Vocab


@dataclass(frozen=True)
class Dictionary:
    """The characters and words that a model has vectors for."""

    chars: tuple[str, ...]
    """Characters in the order of the table, which has rows for unknown ones and boundaries after them."""
    words: tuple[str, ...]
    """Words in the order of the table, which has rows for boundaries and unknown words before them."""
    begin: str = BOS_WORD
    end: str = EOS_WORD
    unknown: str = UNK_WORD
    """Text forms of the boundaries and of the unknown word."""

    @classmethod
    def of_vocab(cls, vocab: Vocab) -> "Dictionary":
        """Return the dictionary of a model that reads the words that it predicts."""
        return cls((), tuple(word for word in vocab.words if word not in SPECIAL_WORDS))

    @property
    def num_chars(self) -> int:
        """Rows of the character table."""
        return len(self.chars) + 1 + NUM_SPECIAL_CHARS

    @property
    def num_words(self) -> int:
        """Rows of the word table."""
        return len(self.words) + NUM_SPECIAL_WORDS

    @cached_property
    def char_ids(self) -> dict[str, int]:
        """Id of every character."""
        return {char: index for index, char in enumerate(self.chars, start=1)}

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """Id of every word, the boundaries and the unknown word included."""
        words = {word: index for index, word in enumerate(self.words, start=FIRST_WORD_ID)}
        return words | {self.begin: BEGIN_ID, self.end: END_ID, self.unknown: UNKNOWN_ID}

    @property
    def fingerprint(self) -> str:
        """Names the dictionary; two with the same one are equal."""
        parts = [self.chars, self.words, self.begin, self.end, self.unknown]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Spelling:
    """The rules by which a model reads words."""

    def __init__(self, config: BiLMConfig, dictionary: Dictionary | None) -> None:
        self.config = config
        self.dictionary = dictionary
        self.begin, self.end = (dictionary.begin, dictionary.end) if dictionary else (BOS_WORD, EOS_WORD)

    def encode(self, words: Sequence[str]) -> EncodedWords:
        """Return the ids of the words, (W, C); a word equal to a boundary is the boundary."""
        max_chars = self.config.char_encoder.max_chars
        if self.dictionary is None:
            return encode_words(words, max_chars=max_chars)
        check_tokens(words)
        reads_chars = bool(self.config.char_encoder.filters)
        limit = max_chars - 2 if reads_chars else sys.maxsize
        cut = [word for word in words if len(word) > limit]
        kept = [word[:limit] for word in words]
        ids_WC = np.empty((len(words), self.config.ids_per_word), dtype=np.int64)
        word_ids, has_words = self.dictionary.word_ids, self.config.words is not None
        if has_words:
            ids_WC[:, 0] = [word_ids.get(word, UNKNOWN_ID) for word in kept]
        if reads_chars:
            ids_WC[:, int(has_words) :] = self._encode_chars(kept, self.dictionary)
        return EncodedWords(ids_WC, num_cut=len(cut), first_cut=cut[0] if cut else None)

    def key_of(self, word: str) -> str | bytes:
        """Return what the model reads of a word: equal for words that have the same ids."""
        max_chars = self.config.char_encoder.max_chars
        if self.dictionary is None:
            return bytes_read(word, max_chars=max_chars)
        if self.config.char_encoder.filters:
            return word[: max_chars - 2]
        return word if word in self.dictionary.word_ids else self.dictionary.unknown

    def pad(self, sentences: Sequence[Sequence[str]]) -> CharIds:
        """Return the ids of all sentences, (B, T, C), zeros after each one's last word; warn of words that are cut."""
        words = [word for sentence in sentences for word in check_tokens(sentence)]
        lengths_B = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        ids_BTC = np.full((len(lengths_B), int(lengths_B.max(initial=0)), self.config.ids_per_word), NO_WORD)
        ids_BTC[np.arange(ids_BTC.shape[1]) < lengths_B[:, None]] = self.encode(words).char_ids_WC
        cut_words = self.count_cut_words()
        cut_words.add(words)
        if message := cut_words.message():
            warnings.warn(message, ElmokitWarning, stacklevel=3)
        return ids_BTC

    def count_cut_words(self) -> CutWords:
        """Return a counter of words that are longer than the model reads."""
        encoder = self.config.char_encoder
        if self.dictionary is None:
            return CutWords(max_chars=encoder.max_chars)
        return CutWords(max_chars=encoder.max_chars if encoder.filters else sys.maxsize, unit="characters")

    def _encode_chars(self, words: Sequence[str], dictionary: Dictionary) -> CharIds:
        char_ids, encoder = dictionary.char_ids, self.config.char_encoder
        unknown = encoder.num_chars - NUM_SPECIAL_CHARS
        begin_sentence, end_sentence, begin_word, end_word, pad = range(unknown + 1, encoder.num_chars + 1)
        boundaries = {self.begin: [begin_sentence], self.end: [end_sentence]}
        ids_WC = np.full((len(words), encoder.max_chars), pad, dtype=np.int64)
        for row_C, word in zip(ids_WC, words, strict=True):
            ids = boundaries.get(word) or [char_ids.get(char, unknown) for char in word]
            row_C[: len(ids) + 2] = [begin_word, *ids, end_word]
        return ids_WC
