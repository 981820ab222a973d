"""Rescoring of n-best lists in the format of Moses.

A line is ``id ||| hypothesis ||| features ||| total``; every field after the hypothesis is optional and kept as it is.
The hypotheses of one id follow each other. A rescored line has the language model's score as one more field: the mean
of both directions' log-probabilities, to base 10.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, tee

from elmokit.errors import InputError
from elmokit.score.contexts import WINDOW_WORDS
from elmokit.score.results import SentenceScore
from elmokit.score.scoring import Scorer
from elmokit.text.lines import Line

SEPARATOR = "|||"
TOTAL_FIELD = 3  # id, hypothesis, features, total
DIGITS = 6  # after the decimal point, about the precision of float32


@dataclass(frozen=True)
class Hypothesis:
    """One line of an n-best list."""

    line: Line
    id: str
    text: str
    total: float | None
    """The list's own total score; None if the line has no fourth field."""


@dataclass(frozen=True, eq=False)
class RescoredHypothesis:
    """A hypothesis and its language-model score."""

    hypothesis: Hypothesis
    score: SentenceScore

    @property
    def line(self) -> str:
        """The line with the language-model score as its last field."""
        return f"{self.hypothesis.line.text.rstrip()} {SEPARATOR} {self.score.log10:.{DIGITS}f}"

    def rank(self, lm_weight: float | None) -> float:
        """Return the language-model score, or with ``lm_weight`` the list's total plus the weighted score."""
        if lm_weight is None:
            return self.score.log10
        if self.hypothesis.total is None:
            where = _describe(self.hypothesis.line)
            raise InputError(
                f"{where}: has no total score to add to; expected id ||| hypothesis ||| features ||| total"
            )
        return self.hypothesis.total + lm_weight * self.score.log10


def read_nbest(lines: Iterable[Line]) -> Iterator[Hypothesis]:
    """Yield the hypotheses of an n-best list; blank lines are skipped."""
    finished: set[str] = set()
    last: str | None = None
    for line in lines:
        if not line.text.strip():
            continue
        fields = [field.strip() for field in line.text.split(SEPARATOR)]
        if len(fields) < 2 or not fields[0]:
            raise InputError(f"{_describe(line)}: is {line.text[:40]!r}; expected id ||| hypothesis ||| …")
        if fields[0] != last:
            if fields[0] in finished:
                raise InputError(f"{_describe(line)}: id {fields[0]} appears again; sort the list by its ids")
            finished.add(fields[0])
            last = fields[0]
        yield Hypothesis(line, fields[0], fields[1], _parse_total(line, fields))


def rescore(
    scorer: Scorer,
    hypotheses: Iterable[Hypothesis],
    *,
    split: Callable[[str], Sequence[str]] = str.split,
    window_words: int = WINDOW_WORDS,
) -> Iterator[RescoredHypothesis]:
    """Yield every hypothesis with its score, in order.

    ``split`` returns the tokens of a hypothesis; n-best lists are usually tokenized. ``window_words`` is as in
    `Scorer.iter_scores`.
    """
    ours, theirs = tee(hypotheses)
    scores = scorer.iter_scores((split(one.text) for one in theirs), window_words=window_words)
    return (RescoredHypothesis(hypothesis, score) for hypothesis, score in zip(ours, scores, strict=True))


def best_per_id(
    rescored: Iterable[RescoredHypothesis], *, lm_weight: float | None = None
) -> Iterator[RescoredHypothesis]:
    """Yield the best hypothesis of every id, the first one of equals, once the next id begins.

    Best is the highest language-model score, or with ``lm_weight`` the highest sum of the list's total and the weighted
    score.
    """
    for _, group in groupby(rescored, key=lambda one: one.hypothesis.id):
        yield max(group, key=lambda one: one.rank(lm_weight))


def _parse_total(line: Line, fields: list[str]) -> float | None:
    if len(fields) <= TOTAL_FIELD:
        return None
    try:
        return float(fields[TOTAL_FIELD])
    except ValueError:
        raise InputError(
            f"{_describe(line)}: the total score is {fields[TOTAL_FIELD]!r}; expected a number as the fourth field"
        ) from None


def _describe(line: Line) -> str:
    return f"{line.path}, line {line.number}"
