"""Sentences as users give them, and as they get them back.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.embed.picking import Vectors

Sentence = str | Sequence[str]
"""A raw string, which is tokenized, or a list of tokens, taken as they are."""


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
