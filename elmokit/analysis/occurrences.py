"""Occurrences of a word in a text: find them, embed them, and choose a few that show its different senses.

Shapes: N occurrences, L layers, T tokens, D width.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Vectors, check_layer, pick_layers
from elmokit.embed.sentences import Sentence
from elmokit.errors import InputError

Place = tuple[tuple[str, ...], int]


@dataclass(frozen=True)
class Occurrence:
    """A token and its sentence."""

    tokens: tuple[str, ...]
    position: int
    sentence: int | None = None
    """Index of the sentence in the text, from 0; None for a sentence from elsewhere."""

    @property
    def token(self) -> str:
        """The token itself."""
        return self.tokens[self.position]

    @property
    def place(self) -> Place:
        """All that the vectors depend on: occurrences with equal places have equal vectors."""
        return self.tokens, self.position


def find_occurrences(embedder: Embedder, sentences: Iterable[Sentence], word: str, *, most: int) -> list[Occurrence]:
    """Return the first ``most`` occurrences of a word in a text, and read no further; equal sentences count once."""
    found: dict[Place, Occurrence] = {}
    for number, sentence in enumerate(sentences):
        if not may_hold(sentence, {word}):
            continue
        tokens = as_tokens(embedder, sentence)
        for position in _positions(tokens, word):
            occurrence = Occurrence(tokens, position, number)
            found.setdefault(occurrence.place, occurrence)
            if len(found) == most:
                return list(found.values())
    if not found:
        raise InputError(f"{word!r} is not a token of the text; check its spelling, and upper and lower case")
    return list(found.values())


def find_in_contexts(embedder: Embedder, contexts: Iterable[Sentence], word: str) -> list[Occurrence]:
    """Return every occurrence of a word in sentences, each of which must contain it."""
    found = []
    for context in contexts:
        tokens = as_tokens(embedder, context)
        if word not in tokens:
            raise InputError(
                f"{word!r} is not a token of the context {' '.join(tokens)!r}; give sentences that contain it"
            )
        found += [Occurrence(tokens, position) for position in _positions(tokens, word)]
    return found


def choose_varied(embedder: Embedder, occurrences: Sequence[Occurrence], *, num: int, layer: Layer) -> list[Occurrence]:
    """Return ``num`` occurrences that represent all others: one per sense, if the vectors separate senses.

    The choice is greedy. An outlier is hardly ever chosen.
    """
    vectors_ND = unit_vectors(embedder, occurrences, layer=layer)
    chosen = choose_representatives(vectors_ND @ vectors_ND.T, num)
    return [occurrences[index] for index in sorted(chosen)]


def choose_representatives(similarities_NN: Vectors, num: int) -> list[int]:
    """Return ``num`` vectors that represent all others: each adds most to the similarity of all with their nearest."""
    nearest_N = np.full(len(similarities_NN), -1.0, dtype=np.float32)
    chosen: list[int] = []
    while len(chosen) < min(num, len(similarities_NN)):
        gains_N = np.maximum(similarities_NN - nearest_N[:, None], 0).sum(axis=0)
        gains_N[chosen] = -1
        chosen.append(int(gains_N.argmax()))
        nearest_N = np.maximum(nearest_N, similarities_NN[:, chosen[-1]])
    return chosen


def unit_vectors(embedder: Embedder, occurrences: Sequence[Occurrence], *, layer: Layer) -> Vectors:
    """Return one vector per occurrence, scaled to length 1, (N, D)."""
    check_layer(layer, embedder.num_layers)
    found = embedder.iter_layers(occurrence.tokens for occurrence in occurrences)
    picked = [
        pick_layers(layers_LTD[:, [occurrence.position]], layer)[0]
        for occurrence, layers_LTD in zip(occurrences, found, strict=True)
    ]
    return to_unit_length(np.stack(picked))


def to_unit_length(vectors_ND: Vectors) -> Vectors:
    """Scale vectors to length 1; zeros stay zeros."""
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True).astype(np.float32)
    lengths_N1[lengths_N1 == 0] = 1
    scaled_ND: Vectors = vectors_ND / lengths_N1
    return scaled_ND


def as_tokens(embedder: Embedder, sentence: Sentence) -> tuple[str, ...]:
    """Return a sentence's tokens; raw text is tokenized."""
    return tuple(embedder.tokenize(sentence) if isinstance(sentence, str) else sentence)


def may_hold(sentence: Sentence, words: Iterable[str]) -> bool:
    """Return whether a sentence can contain one of the words as a token: a quick test before tokenizing raw text."""
    # The tokenizer may change characters other than letters and digits.
    return any(word in sentence or (isinstance(sentence, str) and not word.isalnum()) for word in words)


def _positions(tokens: Sequence[str], word: str) -> Iterator[int]:
    return (position for position, token in enumerate(tokens) if token == word)
