"""Lexical substitution: how well a language model ranks the words that could stand in a place.

The score is generalized average precision (Kishida 2005), as in Thater et al. 2010: of a ranking x_1 … x_n by weight,

    GAP = sum over i with x_i > 0 of mean(x_1 … x_i) / sum over i with y_i > 0 of mean(y_1 … y_i)

where y is the ideal order of the same weights. Candidates of several words are left out, as they are by most who report
this figure; so are instances that have no other gold substitute.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from elmokit.errors import InputError
from elmokit.readers.lexsub import Substitution


class CandidateScorer(Protocol):
    """Source of scores for words in a place."""

    def iter_candidates(
        self, places: Iterable[tuple[Sequence[str], int, Sequence[str]]]
    ) -> Iterator[list[float | None]]:
        """Yield, per (tokens, position, candidates), a score for each candidate; None if it is out of vocabulary."""


@dataclass(frozen=True)
class SubstitutionScores:
    """Mean generalized average precision, as a fraction."""

    gap: float
    num_instances: int
    unknown_candidates: float
    """Share of candidates that are out of vocabulary. They are ranked last, in their order in the file."""


def score_substitutes(
    scorer: CandidateScorer, instances: Sequence[Substitution], *, progress: Callable[[int], None] = lambda _: None
) -> SubstitutionScores:
    """Rank the candidates of every instance. ``progress`` is called with the number of instances done."""
    ranked = [one for one in instances if any(_is_word(gold) for gold in one.gold)]
    if not ranked:
        raise InputError("no instance has a gold substitute of one word; expected the published files")
    total, num_candidates, num_unknown = 0.0, 0, 0
    listed = [tuple(filter(_is_word, one.candidates)) for one in ranked]
    places = ((one.tokens, one.position, words) for one, words in zip(ranked, listed, strict=True))
    for done, (one, words, scores) in enumerate(
        zip(ranked, listed, scorer.iter_candidates(places), strict=True), start=1
    ):
        order = sorted(range(len(words)), key=lambda index: _rank_key(scores[index]))
        gold = {word: weight for word, weight in one.gold.items() if _is_word(word)}
        total += average_precision([gold.get(words[index], 0) for index in order], list(gold.values()))
        num_candidates += len(words)
        num_unknown += scores.count(None)
        progress(done)
    return SubstitutionScores(total / len(ranked), len(ranked), num_unknown / num_candidates)


def average_precision(weights: Sequence[float], gold: Sequence[float]) -> float:
    """Return the generalized average precision of a ranking.

    Args:
        weights: Gold weight of each ranked candidate, best first; 0 if it is no gold substitute.
        gold: All gold weights, in any order, also of substitutes that are not ranked.
    """
    ideal = _sum_of_means(sorted(gold, reverse=True))
    return _sum_of_means(weights) / ideal if ideal else 0.0


def _sum_of_means(weights: Sequence[float]) -> float:
    sums = accumulate(weights)
    return sum(total / count for count, (weight, total) in enumerate(zip(weights, sums, strict=True), 1) if weight > 0)


def _rank_key(score: float | None) -> tuple[bool, float]:
    return (True, 0.0) if score is None else (False, -score)


def _is_word(text: str) -> bool:
    return " " not in text
