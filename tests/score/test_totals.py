"""Totals with and without out-of-vocabulary tokens, against KenLM's arithmetic written out."""

import math

import numpy as np
import pytest

from elmokit.score.results import SentenceScore
from elmokit.score.totals import ScoreTotals


def make(tokens: str, forward: list[float], backward: list[float], oov: list[bool]) -> SentenceScore:
    return SentenceScore(
        tokens=tuple(tokens.split()),
        forward_logprobs=np.array(forward[:-1], dtype=np.float32),
        backward_logprobs=np.array(backward[1:], dtype=np.float32),
        end_logprob=forward[-1],
        start_logprob=backward[0],
        unknown=np.array(oov, dtype=bool),
    )


SCORES = [
    make("a b", [-1.0, -2.0, -0.5], [-0.25, -3.0, -4.0], [False, True]),
    make("", [-0.5], [-0.75], []),
    make("c", [-8.0, -1.0], [-2.0, -9.0], [True]),
]


def total(scores: list[SentenceScore]) -> ScoreTotals:
    totals = ScoreTotals()
    for score in scores:
        totals.add(score)
    return totals


def test_totals_are_those_of_kenlms_query() -> None:
    totals = total(SCORES)
    assert (totals.num_sentences, totals.num_tokens, totals.num_oov) == (3, 3, 2)
    # KenLM counts the end of a sentence as a token: 6 tokens here, 2 of them out of vocabulary.
    assert totals.forward.num_targets == totals.backward.num_targets == 6
    assert totals.forward.log10 == pytest.approx(-13.0 / math.log(10))
    assert totals.forward.perplexity == pytest.approx(10 ** (13.0 / math.log(10) / 6))
    assert totals.forward.log10_without_oov == pytest.approx(-3.0 / math.log(10))
    assert totals.forward.perplexity_without_oov == pytest.approx(10 ** (3.0 / math.log(10) / 4))
    assert totals.backward.log10 == pytest.approx(-19.0 / math.log(10))
    assert totals.backward.perplexity_without_oov == pytest.approx(math.exp(6.0 / 4))
    assert totals.perplexity == pytest.approx(math.exp((13.0 + 19.0) / 12))
    assert totals.perplexity_without_oov == pytest.approx(math.exp((3.0 + 6.0) / 8))


def test_the_total_of_one_sentence_is_its_own_perplexity() -> None:
    for score in SCORES:
        assert total([score]).perplexity == pytest.approx(score.perplexity)
        assert total([score]).forward.perplexity == pytest.approx(score.forward_perplexity)
        assert (total([score]).forward.log10 + total([score]).backward.log10) / 2 == pytest.approx(score.log10)


def test_no_sentence_has_no_perplexity() -> None:
    assert math.isnan(ScoreTotals().perplexity)
    assert ScoreTotals().forward.log10 == 0.0
