"""Labeled-bracket precision, recall and F1, counted as EVALB counts them with the rules of ``COLLINS.prm``.

- The label ``TOP`` does not count. Punctuation tokens are taken out before spans are counted.
- A bracket that covers nothing else does not count either.
- ``PRT`` and ``ADVP`` are equal. Function tags are cut off: ``NP-SBJ`` is ``NP``.
- Brackets are counted with their multiplicity, and summed over the corpus.
- The length of a sentence, for the second figure, counts punctuation (``DELETE_LABEL_FOR_LENGTH`` names traces alone).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.errors import InputError
from elmokit.metrics.spans import ratio
from elmokit.readers.ptb import ParsedSentence

DELETED_TAGS = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
EQUAL_LABELS = {"PRT": "ADVP"}
SHORT_SENTENCE = 40  # tokens with punctuation, without traces: EVALB's second figure

Bracket = tuple[str, int, int]


@dataclass(frozen=True)
class BracketScores:
    """Scores over a corpus, as fractions from 0 to 1."""

    precision: float
    recall: float
    f1: float
    exact_match: float
    """Sentences whose brackets are all correct."""
    short_f1: float
    """F1 of the sentences with at most 40 tokens."""


@dataclass
class _Counts:
    correct: int = 0
    gold: int = 0
    predicted: int = 0

    def add(self, gold: Counter[Bracket], predicted: Counter[Bracket]) -> None:
        self.correct += (gold & predicted).total()
        self.gold += gold.total()
        self.predicted += predicted.total()

    def f1(self) -> float:
        return ratio(2 * self.correct, self.gold + self.predicted)


def score_brackets(gold: Sequence[ParsedSentence], predicted: Sequence[ParsedSentence]) -> BracketScores:
    """Score predicted trees. Both lists hold the same sentences; punctuation is found by the gold tags."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted):,} predicted trees for {len(gold):,} gold trees; expected one per sentence")
    all_counts, short_counts, num_exact = _Counts(), _Counts(), 0
    for index, (right, found) in enumerate(zip(gold, predicted, strict=True)):
        if right.tokens != found.tokens:
            raise InputError(f"sentence {index}: the predicted tree has other tokens than the gold tree")
        counts = count_brackets(right, right.tags), count_brackets(found, right.tags)
        all_counts.add(*counts)
        if len(right.tokens) <= SHORT_SENTENCE:
            short_counts.add(*counts)
        num_exact += counts[0] == counts[1]
    return BracketScores(
        precision=ratio(all_counts.correct, all_counts.predicted),
        recall=ratio(all_counts.correct, all_counts.gold),
        f1=all_counts.f1(),
        exact_match=ratio(num_exact, len(gold)),
        short_f1=short_counts.f1(),
    )


def count_brackets(sentence: ParsedSentence, tags: Sequence[str]) -> Counter[Bracket]:
    """Count the brackets of a tree that EVALB counts, by label and by position among the tokens that stay."""
    position = [0]
    for tag in tags:
        position.append(position[-1] + (tag not in DELETED_TAGS))
    found: Counter[Bracket] = Counter()
    for constituent in sentence.constituents:
        start, end = position[constituent.start], position[constituent.end]
        label = _plain_label(constituent.label)
        if start < end and label not in DELETED_TAGS:
            found[label, start, end] += 1
    return found


def _plain_label(label: str) -> str:
    """Cut function tags off, and give equal labels one name."""
    for sign in "-=":
        if sign in label[1:]:
            label = label[: label.index(sign, 1)]
    return EQUAL_LABELS.get(label, label)
