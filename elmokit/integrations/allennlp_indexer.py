"""Character ids as AllenNLP's classes make them.

Shapes: B sentences, T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmokit.config import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PAD_CHAR
from elmokit.errors import InputError
from elmokit.text.chars import BOS_WORD, EOS_WORD, encode_words, pad_sentences

MAX_CHARS = 50  # AllenNLP's fixed number of character ids per word
SHIFT = 1  # AllenNLP's constants are before the shift that leaves 0 for padding


class Token(NamedTuple):
    """A token of AllenNLP, as far as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Return the character ids of tokenized sentences, (B, T, 50), right-padded with zeros."""
    return torch.from_numpy(pad_sentences(batch, max_chars=MAX_CHARS))


class ELMoCharacterMapper:
    """A word's character ids; ``tokens_to_add`` gives ids of its own to some words."""

    max_word_length = MAX_CHARS
    beginning_of_sentence_character = BEGIN_SENTENCE - SHIFT
    end_of_sentence_character = END_SENTENCE - SHIFT
    beginning_of_word_character = BEGIN_WORD - SHIFT
    end_of_word_character = END_WORD - SHIFT
    padding_character = PAD_CHAR - SHIFT
    bos_token, eos_token = BOS_WORD, EOS_WORD
    beginning_of_sentence_characters = (encode_words([BOS_WORD], max_chars=MAX_CHARS).char_ids_WC[0] - SHIFT).tolist()
    end_of_sentence_characters = (encode_words([EOS_WORD], max_chars=MAX_CHARS).char_ids_WC[0] - SHIFT).tolist()

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """Return the 50 ids of a word, as a model takes them."""
        if word not in self.tokens_to_add:
            ids: list[int] = encode_words([word], max_chars=MAX_CHARS).char_ids_WC[0].tolist()
            return ids
        padding = [PAD_CHAR] * (MAX_CHARS - 3)
        return [BEGIN_WORD, self.tokens_to_add[word] + SHIFT, END_WORD, *padding]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and self.tokens_to_add == other.tokens_to_add

    __hash__ = None  # type: ignore[assignment]


class ELMoTokenCharactersIndexer:
    """Tokens to character ids, under the name that a dataset reader gave the indexer."""

    def __init__(
        self, namespace: str = "elmo_characters", tokens_to_add: Mapping[str, int] | None = None, *_: Any, **__: Any
    ) -> None:
        self._namespace = namespace
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def tokens_to_indices(
        self, tokens: Sequence[Any], vocabulary: object = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """Return the ids of every token; a token is a string or has a ``text``. The vocabulary is not used."""
        del vocabulary
        texts = [token if isinstance(token, str) else getattr(token, "text", None) for token in tokens]
        if None in texts:
            raise InputError(f"a token is {tokens[texts.index(None)]!r}; expected a string or an object with a text")
        return {index_name: [self._mapper.convert_word_to_char_ids(str(text)) for text in texts]}

    def count_vocab_items(self, token: object, counter: object) -> None:
        """Count nothing: characters need no vocabulary."""

    def get_padding_token(self) -> list[int]:
        """Return the ids of padding."""
        return [0] * MAX_CHARS

    def get_padding_lengths(self, token: object) -> dict[str, int]:
        """Return no lengths: every token has as many ids."""
        del token
        return {}

    def pad_token_sequence(
        self,
        tokens: Mapping[str, list[list[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: object = None,
    ) -> dict[str, list[list[int]]]:
        """Fill every list up to its desired length with padding, or cut it."""
        del padding_lengths
        padded = {}
        for name, ids in tokens.items():
            num_tokens = desired_num_tokens[name]
            padded[name] = [*ids[:num_tokens], *[self.get_padding_token()] * (num_tokens - len(ids))]
        return padded
