"""Totals over scored sentences, with and without out-of-vocabulary tokens, as KenLM's ``query`` prints them."""

import math
from dataclasses import dataclass, field

import numpy as np

from elmokit.score.perplexity import exp_or_inf
from elmokit.score.results import LogProbs, SentenceScore


@dataclass
class DirectionTotals:
    """Summed log-probabilities of one direction."""

    num_targets: int = 0
    """Tokens, and one boundary per sentence."""
    num_oov: int = 0
    """Out-of-vocabulary tokens among them, predicted as ``<UNK>``."""
    nats: float = 0.0
    oov_nats: float = 0.0

    @property
    def log10(self) -> float:
        """Log-probability to base 10, out-of-vocabulary tokens included."""
        return self.nats / math.log(10)

    @property
    def log10_without_oov(self) -> float:
        """Log-probability to base 10 of all but out-of-vocabulary tokens."""
        return (self.nats - self.oov_nats) / math.log(10)

    @property
    def perplexity(self) -> float:
        """Perplexity, out-of-vocabulary tokens included; NaN without any sentence."""
        return _perplexity(self.nats, self.num_targets)

    @property
    def perplexity_without_oov(self) -> float:
        """Perplexity of all but out-of-vocabulary tokens; NaN without any sentence."""
        return _perplexity(self.nats - self.oov_nats, self.num_targets - self.num_oov)

    def add(self, logprobs: LogProbs, boundary_logprob: float, score: SentenceScore) -> None:
        """Add one direction of a sentence."""
        self.num_targets += len(logprobs) + 1
        self.num_oov += score.num_oov
        self.nats += float(logprobs.sum(dtype=np.float64)) + boundary_logprob
        self.oov_nats += float(logprobs[score.unknown].sum(dtype=np.float64))


@dataclass
class ScoreTotals:
    """Totals of all sentences that were added."""

    num_sentences: int = 0
    num_tokens: int = 0
    """Without boundaries."""
    num_oov: int = 0
    forward: DirectionTotals = field(default_factory=DirectionTotals)
    backward: DirectionTotals = field(default_factory=DirectionTotals)

    @property
    def perplexity(self) -> float:
        """Geometric mean of both directions' perplexities, out-of-vocabulary tokens included."""
        return math.sqrt(self.forward.perplexity * self.backward.perplexity)

    @property
    def perplexity_without_oov(self) -> float:
        """Geometric mean of both directions' perplexities without out-of-vocabulary tokens."""
        return math.sqrt(self.forward.perplexity_without_oov * self.backward.perplexity_without_oov)

    def add(self, score: SentenceScore) -> None:
        """Add a sentence."""
        self.num_sentences += 1
        self.num_tokens += len(score.tokens)
        self.num_oov += score.num_oov
        self.forward.add(score.forward_logprobs, score.end_logprob, score)
        self.backward.add(score.backward_logprobs, score.start_logprob, score)


def _perplexity(nats: float, num_targets: int) -> float:
    return exp_or_inf(-nats / num_targets) if num_targets else math.nan
