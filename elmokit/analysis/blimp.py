"""Grammar of a language model by minimal pairs: which of two sentences is likelier (BLiMP, Warstadt et al. 2020).

A pair is right if the grammatical sentence has the higher summed log-probability. A tie is wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from elmokit.readers.blimp import MinimalPair
from elmokit.score.results import SentenceScore

Direction = Literal["forward", "backward", "both"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "both")

PHENOMENA = (
    "anaphor_agreement",
    "argument_structure",
    "binding",
    "control_raising",
    "determiner_noun_agreement",
    "ellipsis",
    "filler_gap_dependency",
    "irregular_forms",
    "island_effects",
    "npi_licensing",
    "quantifiers",
    "subject_verb_agreement",
)


@dataclass(frozen=True)
class PublishedAccuracy:
    """Corrected published accuracy of a forward model, in % (models_summary.jsonl of the data's repository)."""

    model: str
    training_text: str
    overall: float
    by_phenomenon: tuple[float, ...]
    """In the order of ``PHENOMENA``."""


PUBLISHED = (
    PublishedAccuracy(
        *("5-gram", "3 billion words", 61.2),
        (47.9, 71.9, 64.4, 68.5, 70.1, 36.9, 60.2, 79.5, 57.2, 45.5, 53.5, 60.3),
    ),
    PublishedAccuracy(
        *("LSTM", "83 million words of Wikipedia", 69.8),
        (91.7, 73.2, 73.5, 67.0, 85.4, 67.6, 73.9, 89.0, 46.6, 51.7, 64.5, 80.1),
    ),
    PublishedAccuracy(
        *("Transformer-XL", "100 million words", 69.6),
        (94.1, 72.2, 74.7, 71.5, 83.0, 77.2, 66.6, 78.1, 48.3, 55.2, 69.3, 75.9),
    ),
    PublishedAccuracy(
        *("GPT-2", "40 GB", 83.0),
        (99.3, 81.8, 80.9, 81.9, 95.8, 89.3, 81.3, 91.9, 72.7, 76.8, 79.0, 86.4),
    ),
)


class SentenceScorer(Protocol):
    """Source of log-probabilities, such as a `Scorer`."""

    def iter_scores(self, sentences: Iterable[str]) -> Iterator[SentenceScore]:
        """Yield the score of each sentence in order."""


@dataclass(frozen=True)
class PairScores:
    """Accuracy of one direction, as fractions from 0 to 1."""

    overall: float
    """Mean over paradigms."""
    known: float
    """Mean over paradigms, of the pairs whose differing words are all in the vocabulary."""
    phenomena: Mapping[str, float]
    paradigms: Mapping[str, float]


@dataclass(frozen=True)
class BlimpScores:
    """Accuracy per direction, and how much of the data is out of vocabulary."""

    by_direction: Mapping[Direction, PairScores]
    num_pairs: int
    unknown_pairs: float
    """Share of pairs in which a word that differs is out of vocabulary."""
    ties: float
    """Share of pairs with equal log-probabilities in both sentences, forward. They count as wrong."""


@dataclass(frozen=True)
class _Judged:
    pair: MinimalPair
    margins: Mapping[Direction, float]
    is_known: bool


def score_blimp(
    scorer: SentenceScorer, pairs: Sequence[MinimalPair], *, progress: Callable[[int], None] = lambda _: None
) -> BlimpScores:
    """Judge all pairs. ``progress`` is called with the number of pairs done."""
    judged: list[_Judged] = []
    texts = (text for pair in pairs for text in (pair.good, pair.bad))
    scores = iter(scorer.iter_scores(texts))
    for pair, good, bad in zip(pairs, scores, scores, strict=False):
        judged.append(_Judged(pair, _margins(good, bad), _is_known(good, bad)))
        progress(len(judged))
    return BlimpScores(
        {direction: _summarize(judged, direction) for direction in DIRECTIONS},
        len(judged),
        sum(not one.is_known for one in judged) / len(judged),
        sum(one.margins["forward"] == 0 for one in judged) / len(judged),
    )


def _margins(good: SentenceScore, bad: SentenceScore) -> dict[Direction, float]:
    forward, backward = good.forward_total - bad.forward_total, good.backward_total - bad.backward_total
    return {"forward": forward, "backward": backward, "both": forward + backward}


def _is_known(good: SentenceScore, bad: SentenceScore) -> bool:
    """Return whether every word that stands in one sentence alone is in the vocabulary."""
    words = [set(score.tokens) for score in (good, bad)]
    for score, other in ((good, words[1]), (bad, words[0])):
        if any(unknown and token not in other for token, unknown in zip(score.tokens, score.unknown, strict=True)):
            return False
    return True


def _summarize(judged: Sequence[_Judged], direction: Direction) -> PairScores:
    paradigms = _accuracy_by(judged, direction, lambda pair: pair.paradigm)
    known = _accuracy_by([one for one in judged if one.is_known], direction, lambda pair: pair.paradigm)
    phenomenon_of = {one.pair.paradigm: one.pair.phenomenon for one in judged}
    phenomena: dict[str, list[float]] = {}
    for paradigm, accuracy in paradigms.items():
        phenomena.setdefault(phenomenon_of[paradigm], []).append(accuracy)
    return PairScores(
        overall=_mean(paradigms.values()),
        known=_mean(known.values()),
        phenomena={name: _mean(found) for name, found in sorted(phenomena.items())},
        paradigms=paradigms,
    )


def _accuracy_by(
    judged: Sequence[_Judged], direction: Direction, key: Callable[[MinimalPair], str]
) -> dict[str, float]:
    found: dict[str, list[bool]] = {}
    for one in judged:
        found.setdefault(key(one.pair), []).append(one.margins[direction] > 0)
    return {name: _mean(rights) for name, rights in sorted(found.items())}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
