"""F1 of semantic roles, in the two ways in use. Both leave out the verb, because it is given.

``score_roles``       as CoNLL-2005's srl-eval.pl, whose numbers are the published ones: ``C-X`` continues the latest
                      ``X``, and an argument is right only if all its phrases are.
``score_role_spans``  every span for itself, ``C-X`` being a type like any other: an argument in two phrases counts
                      twice, and can be half right.

The input is one gold and one predicted tag sequence for each predicate. Tags are read as in `span_metrics`.
"""

from collections.abc import Sequence

from elmokit.metrics.spans import Bounds, SpanScores, TypedSpan, paired_spans, score_typed_sets

VERB = "V"
CONTINUATION = "C-"

Argument = tuple[str, tuple[Bounds, ...]]
"""A role and its phrases, in order."""


def score_roles(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Score arguments as srl-eval.pl does; a type of the result is a role, never a ``C-`` one."""
    return score_typed_sets(
        (set(_without_verb(fold_continuations(gold_spans))), set(_without_verb(fold_continuations(predicted_spans))))
        for gold_spans, predicted_spans in paired_spans(gold, predicted, unit="predicate")
    )


def score_role_spans(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Score every span by itself; ``C-V`` is left out with ``V``."""
    return score_typed_sets(
        (
            {(role, span) for role, span in gold_spans if role.removeprefix(CONTINUATION) != VERB},
            {(role, span) for role, span in predicted_spans if role.removeprefix(CONTINUATION) != VERB},
        )
        for gold_spans, predicted_spans in paired_spans(gold, predicted, unit="predicate")
    )


def fold_continuations(spans: Sequence[TypedSpan]) -> list[Argument]:
    """Join every ``C-X`` to the latest argument ``X`` before it; where there is none it is an ``X`` itself.

    Spans are in order, and may touch: ``X`` and a ``C-X`` right after it are two phrases, and differ from one long
    ``X``.
    """
    phrases_by_argument: list[tuple[str, list[Bounds]]] = []
    latest: dict[str, list[Bounds]] = {}
    for span_type, span in spans:
        role = span_type.removeprefix(CONTINUATION)
        if role != span_type and role in latest:
            latest[role].append(span)
        else:
            latest[role] = [span]
            phrases_by_argument.append((role, latest[role]))
    return [(role, tuple(phrases)) for role, phrases in phrases_by_argument]


def _without_verb(arguments: Sequence[Argument]) -> list[Argument]:
    return [argument for argument in arguments if argument[0] != VERB]
