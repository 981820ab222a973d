"""Sentences as users give them, and as they get them back.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmokit.embed.picking import Vectors
from elmokit.errors import InputError

Sentence = str | Sequence[str]
"""A raw string, which is tokenized, or a list of tokens, taken as they are."""

QUOTED_CHARS = 40


@dataclass(frozen=True, eq=False)
class EmbeddedSentence:
    """A sentence with the vectors of its tokens.

    Args:
        tokens: the T tokens that the model has read.
        offsets: character start and stop of each token in the raw string, so that ``text[start:stop]`` is what the
            token was made from; None if the sentence was given as tokens.
        layers: every layer's vectors, float32 of shape (L, T, D), without boundary tokens. Layer 0 is the token layer.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    layers: Vectors


def check_sentences(sentences: Iterable[Sentence]) -> Iterable[Sentence]:
    """Reject what is not a collection of sentences."""
    given: object = sentences  # callers need not heed the annotation
    if isinstance(given, str):
        quoted = repr(given[:QUOTED_CHARS])
        raise InputError(f"{quoted} is one string; give a list of sentences, such as [{quoted}]")
    if not isinstance(given, Iterable):
        raise InputError(f"sentences is {given!r}, of type {type(given).__name__}; give a list of sentences")
    return sentences


def check_tokens(sentence: Sequence[str]) -> Sequence[str]:
    """Reject a sentence that is neither a string nor a list of strings."""
    given: object = sentence
    if not isinstance(given, Iterable):
        raise InputError(
            f"a sentence is {given!r}, of type {type(given).__name__}; expected a string or a list of tokens"
        )
    for token in sentence:
        if not isinstance(token, str):
            raise InputError(f"a token is {token!r}, of type {type(token).__name__}; expected a string")
    return sentence
