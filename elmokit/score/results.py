"""Results of scoring: log-probabilities of a sentence, and words in the place of a token.

Log-probabilities are natural logarithms over the whole vocabulary, unless a name says log10.

Shapes: T tokens of a sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.score.perplexity import exp_or_inf
from elmokit.text.vocab import SPECIAL_WORDS

LogProbs = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SentenceScore:
    """Log-probabilities of a sentence, token by token, in nats."""

    tokens: tuple[str, ...]
    forward_logprobs: LogProbs
    """Log-probability of each token given the tokens before it, (T,)."""
    backward_logprobs: LogProbs
    """Log-probability of each token given the tokens after it, (T,)."""
    end_logprob: float
    """Log-probability of the end of the sentence, forward."""
    start_logprob: float
    """Log-probability of the start of the sentence, backward."""
    unknown: NDArray[np.bool_]
    """Mask of out-of-vocabulary tokens, (T,); their log-probability is that of ``<UNK>``."""

    @property
    def forward_total(self) -> float:
        """Log-probability of the sentence read from the left, with its end."""
        return float(self.forward_logprobs.sum(dtype=np.float64)) + self.end_logprob

    @property
    def backward_total(self) -> float:
        """Log-probability of the sentence read from the right, with its start."""
        return float(self.backward_logprobs.sum(dtype=np.float64)) + self.start_logprob

    @property
    def forward_perplexity(self) -> float:
        """Perplexity of T tokens and the end."""
        return exp_or_inf(-self.forward_total / (len(self.tokens) + 1))

    @property
    def backward_perplexity(self) -> float:
        """Perplexity of T tokens and the start."""
        return exp_or_inf(-self.backward_total / (len(self.tokens) + 1))

    @property
    def perplexity(self) -> float:
        """Perplexity of both directions: their geometric mean."""
        return math.sqrt(self.forward_perplexity * self.backward_perplexity)

    @property
    def log10(self) -> float:
        """Mean of both directions' log-probabilities to base 10: the score for rescoring."""
        return (self.forward_total + self.backward_total) / 2 / math.log(10)

    @property
    def num_oov(self) -> int:
        """Number of out-of-vocabulary tokens."""
        return int(self.unknown.sum())


@dataclass(frozen=True)
class Candidate:
    """A word that could take a token's place."""

    word: str
    logprob: float


class Choice(NamedTuple):
    """A place in a sentence, and words that could take it."""

    tokens: Sequence[str]
    position: int
    """Index of the token to replace."""
    candidates: Sequence[str]


@dataclass(frozen=True)
class CandidateScore:
    """Log-probabilities of a word in a place; both are those of ``<UNK>`` if it is out of vocabulary."""

    word: str
    forward: float
    """Given the tokens before the place."""
    backward: float
    """Given the tokens after it."""
    is_known: bool
    """True if the word is in the vocabulary."""

    @property
    def both(self) -> float:
        """Sum of both directions, which ranks words by their product."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Place:
    """A token of a sentence, and the likeliest words in its place, best first."""

    token: str
    forward: tuple[Candidate, ...]
    """Given the tokens before it."""
    backward: tuple[Candidate, ...]
    """Given the tokens after it."""
    both: tuple[Candidate, ...]
    """By the product of the two, normalized over the vocabulary."""
    both_logprob: float
    """Log-probability of the token itself by that product."""

    def without_special_words(self, num_words: int | None = None) -> "Place":
        """Return the place without sentence boundaries and ``<UNK>`` among the candidates, ``num_words`` at most."""

        def words(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
            return tuple(candidate for candidate in candidates if candidate.word not in SPECIAL_WORDS)[:num_words]

        return replace(self, forward=words(self.forward), backward=words(self.backward), both=words(self.both))
