"""Precision, recall and F1 of typed spans, counted as conlleval counts them.

A span is a half-open pair of token indices; with its type before it, it is a `TypedSpan`. A predicted span is correct
if start, end and type are those of a gold span of the same sentence. Scores are fractions from 0 to 1, and a fraction
of nothing is 0.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elmokit.errors import InputError

Bounds = tuple[int, int]
TypedSpan = tuple[str, Bounds]


@dataclass(frozen=True)
class F1Scores:
    """Precision, recall and their harmonic mean."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class SpanScores:
    """Scores over all types together, and of each type alone."""

    precision: float
    recall: float
    f1: float
    by_type: Mapping[str, F1Scores]
    """Scores per type that is gold or predicted, in alphabetical order."""


def score_spans(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Score the predicted tags of sentences: conlleval's overall figures, and those per type."""
    return score_typed_sets(
        (set(gold_spans), set(predicted_spans))
        for gold_spans, predicted_spans in paired_spans(gold, predicted, unit="sentence")
    )


def find_spans(tags: Sequence[str]) -> list[TypedSpan]:
    """Return the spans of one sentence in order, read from ``O``, ``B-TYPE`` and ``I-TYPE``.

    As in conlleval, an ``I-`` begins a span where none of its type is open: at the start, after ``O`` and after another
    type. So BIO and IOB1 tags are read alike. A type can have hyphens.
    """
    spans: list[TypedSpan] = []
    start, open_type = 0, ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, span_type = _split_tag(tag, index)
        if prefix == "B" or span_type != open_type:
            if open_type:
                spans.append((open_type, (start, index)))
            start, open_type = index, span_type
    return spans


def paired_spans(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, unit: str
) -> Iterator[tuple[list[TypedSpan], list[TypedSpan]]]:
    """Yield the gold and the predicted spans of one sequence after the other; ``unit`` names a sequence in errors."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} gold tag sequences but {len(predicted)} predicted ones; give one of each for every {unit}"
        )
    for index, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True)):
        gold_spans = _find_spans_of(gold_tags, f"{unit} {index}, gold")
        predicted_spans = _find_spans_of(predicted_tags, f"{unit} {index}, predicted")
        if len(gold_tags) != len(predicted_tags):
            raise InputError(
                f"{unit} {index}: {len(gold_tags)} gold tags but {len(predicted_tags)} predicted ones; "
                "give one of each for every token"
            )
        yield gold_spans, predicted_spans


def score_typed_sets(
    pairs: Iterable[tuple[Collection[tuple[str, Hashable]], Collection[tuple[str, Hashable]]]],
) -> SpanScores:
    """Score pairs of gold and predicted sets of tuples that begin with their type; equal tuples are correct."""
    num_gold: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    num_correct: Counter[str] = Counter()
    for gold, predicted in pairs:
        num_gold.update(item_type for item_type, _ in gold)
        num_predicted.update(item_type for item_type, _ in predicted)
        num_correct.update(item_type for item_type, _ in set(gold) & set(predicted))
    overall = _from_counts(num_correct.total(), num_predicted.total(), num_gold.total())
    return SpanScores(
        overall.precision,
        overall.recall,
        overall.f1,
        by_type={
            item_type: _from_counts(num_correct[item_type], num_predicted[item_type], num_gold[item_type])
            for item_type in sorted(num_gold.keys() | num_predicted.keys())
        },
    )


def f1_scores(*, precision: float, recall: float) -> F1Scores:
    """Return the scores with the harmonic mean, which is 0 if both are."""
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return F1Scores(precision, recall, f1)


def ratio(part: float, whole: float) -> float:
    """Return the quotient; 0 / 0 is 0, as in the official scripts."""
    return part / whole if whole else 0.0


def _from_counts(num_correct: int, num_predicted: int, num_gold: int) -> F1Scores:
    return f1_scores(precision=ratio(num_correct, num_predicted), recall=ratio(num_correct, num_gold))


def _find_spans_of(tags: Sequence[str], where: str) -> list[TypedSpan]:
    if isinstance(tags, str):  # its letters would be read as tags
        raise InputError(f"{where}: the string {tags!r} is given, but must be a list of tags")
    try:
        return find_spans(tags)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _split_tag(tag: str, index: int) -> tuple[str, str]:
    """Return ``O``, ``B`` or ``I``, and the type; ``O`` has the empty type."""
    if tag == "O":
        return "O", ""
    prefix, _, span_type = str(tag).partition("-")  # a number gets the message below too
    if prefix not in ("B", "I") or not span_type:
        raise InputError(f"tag {index} is {tag!r}, but must be O, B-TYPE or I-TYPE; convert other schemes to BIO first")
    return prefix, span_type
