"""Lexical substitution: how well a language model ranks the words that could stand in a place.

The score is generalized average precision (Kishida 2005), as in Thater et al. 2010: of a ranking x_1 … x_n by weight,

    GAP = sum over i with x_i > 0 of mean(x_1 … x_i) / sum over i with y_i > 0 of mean(y_1 … y_i)

where y is the ideal order of the same weights. Candidates of several words are left out, as they are by most who report
this figure; so are instances that have no other gold substitute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from elmokit.analysis.blimp import DIRECTIONS, Direction
from elmokit.errors import InputError
from elmokit.readers.lexsub import Substitution
from elmokit.score.results import CandidateScore, Choice

# SemEval-2007, in %. The first ranks by similarity to the replaced word and ignores the context.
PUBLISHED: Mapping[str, float] = {
    "word vectors, without context": 44.65,
    "context2vec": 55.82,
    "ELMo": 53.66,
    "XLNet": 59.11,
}


class CandidateScorer(Protocol):
    """Source of scores for words in a place, such as a `Scorer`."""

    def iter_candidates(self, choices: Iterable[Choice]) -> Iterator[list[CandidateScore]]:
        """Yield the scores of each place's candidates, in their order."""


@dataclass(frozen=True)
class SubstitutionScores:
    """Mean generalized average precision per direction, as a fraction."""

    gap: Mapping[Direction, float]
    known_gap: Mapping[Direction, float]
    """The same, with out-of-vocabulary candidates left out of the ranking and of the gold substitutes."""
    num_instances: int
    num_known_instances: int
    """Instances with a gold substitute in the vocabulary."""
    unknown_candidates: float
    """Share of candidates that are out of vocabulary. In ``gap`` they are ranked last, in their order in the file."""


def score_substitutes(
    scorer: CandidateScorer, instances: Sequence[Substitution], *, progress: Callable[[int], None] = lambda _: None
) -> SubstitutionScores:
    """Rank the candidates of every instance. ``progress`` is called with the number of instances done."""
    ranked = [one for one in instances if any(_is_word(gold) for gold in one.gold)]
    if not ranked:
        raise InputError("no instance has a gold substitute of one word; expected the published files")
    choices = (Choice(one.tokens, one.position, tuple(filter(_is_word, one.candidates))) for one in ranked)
    gaps: dict[Direction, list[float]] = {direction: [] for direction in DIRECTIONS}
    known_gaps: dict[Direction, list[float]] = {direction: [] for direction in DIRECTIONS}
    num_candidates = num_unknown = 0
    for done, (one, scores) in enumerate(zip(ranked, scorer.iter_candidates(choices), strict=True), start=1):
        gold = {word: weight for word, weight in one.gold.items() if _is_word(word)}
        unknown = {score.word for score in scores if not score.is_known}
        known = {word: weight for word, weight in gold.items() if word not in unknown}
        for direction in DIRECTIONS:
            order = sorted(scores, key=lambda score: (not score.is_known, _minus(score, direction)))
            gaps[direction].append(_precision(order, gold))
            if known:
                known_gaps[direction].append(_precision([score for score in order if score.is_known], known))
        num_candidates += len(scores)
        num_unknown += len(unknown)
        progress(done)
    means, known_means = ({name: _mean(values) for name, values in some.items()} for some in (gaps, known_gaps))
    return SubstitutionScores(
        means, known_means, len(ranked), len(known_gaps["forward"]), num_unknown / max(num_candidates, 1)
    )


def _minus(score: CandidateScore, direction: Direction) -> float:
    """Return the key by which candidates are sorted; unknown ones are equal, so that their order stays."""
    values = {"forward": score.forward, "backward": score.backward, "both": score.both}
    return -values[direction] if score.is_known else 0.0


def _precision(order: Sequence[CandidateScore], gold: Mapping[str, int]) -> float:
    return average_precision([gold.get(score.word, 0) for score in order], list(gold.values()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


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


def _is_word(text: str) -> bool:
    return " " not in text
