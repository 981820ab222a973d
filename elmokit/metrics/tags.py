"""Spans as one tag per token, and the rules of tag sequences.

BIO: B-X begins a span of type X, I-X continues it, O is outside. BIOUL: a span's last token is L-X, and one
of a single token U-X. Spans are half-open: ``end`` is the first token after the span.

Shapes: K tags.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError

OUTSIDE = "O"
MayFollow = Callable[[str, str], bool]


@dataclass(frozen=True, order=True)
class Span:
    """Tokens ``start`` to ``end`` (the first one after them) and their type."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, eq=False)
class ViterbiRules:
    """Allowed transitions, first tags and last tags."""

    transitions_KK: NDArray[np.bool_]  # from row to column
    start_K: NDArray[np.bool_]
    end_K: NDArray[np.bool_]


def bio_rules(tags: Sequence[str]) -> ViterbiRules:
    """Return the rules of BIO: I-X follows B-X or I-X only, and never comes first."""
    return _rules(tags, _follows_in_bio)


def bioul_rules(tags: Sequence[str]) -> ViterbiRules:
    """Return the rules of BIOUL: I-X or L-X follows B-X or I-X, elsewhere O, B or U. No span is left open."""
    return _rules(tags, _follows_in_bioul)


def bio_to_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence, in order."""
    _check_order(tags, _follows_in_bio, "BIO")
    spans, start = [], 0
    for index, (tag, after) in enumerate(pairwise([*tags, OUTSIDE])):
        if tag.startswith("B-"):
            start = index
        if tag != OUTSIDE and not after.startswith("I-"):
            spans.append(Span(start, index + 1, tag[2:]))
    return spans


def bio_to_bioul(tags: Sequence[str]) -> list[str]:
    """Return the same spans with their last tokens marked."""
    _check_order(tags, _follows_in_bio, "BIO")
    last = {"B": "U", "I": "L"}
    return [
        tag if tag == OUTSIDE or after.startswith("I-") else f"{last[tag[0]]}{tag[1:]}"
        for tag, after in pairwise([*tags, OUTSIDE])
    ]


def bioul_to_bio(tags: Sequence[str]) -> list[str]:
    """Return the same spans without marks on their last tokens."""
    _check_order(tags, _follows_in_bioul, "BIOUL")
    plain = {"U": "B", "L": "I"}
    return [f"{plain.get(tag[0], tag[0])}{tag[1:]}" for tag in tags]


def _follows_in_bio(tag: str, after: str) -> bool:
    (kind, label), (next_kind, next_label) = _split(tag, "BI"), _split(after, "BI")
    return next_kind != "I" or (kind in "BI" and label == next_label)


def _follows_in_bioul(tag: str, after: str) -> bool:
    (kind, label), (next_kind, next_label) = _split(tag, "BIUL"), _split(after, "BIUL")
    if kind in "BI":
        return next_kind in "IL" and label == next_label
    return next_kind in "OBU"


def _split(tag: str, kinds: str) -> tuple[str, str]:
    if tag == OUTSIDE:
        return OUTSIDE, ""
    kind, _, label = tag.partition("-")  # a label may have dashes of its own: B-C-ARG1
    if kind not in tuple(kinds) or not label:
        raise InputError(f"tag {tag!r}; expected 'O' or one of {'-, '.join(kinds)}- and a type, as in 'B-PER'")
    return kind, label


def _rules(tags: Sequence[str], may_follow: MayFollow) -> ViterbiRules:
    # The edges of a sentence act like O: a span cannot cross them.
    return ViterbiRules(
        np.array([[may_follow(tag, after) for after in tags] for tag in tags], dtype=bool).reshape(len(tags), -1),
        np.array([may_follow(OUTSIDE, tag) for tag in tags], dtype=bool),
        np.array([may_follow(tag, OUTSIDE) for tag in tags], dtype=bool),
    )


def _check_order(tags: Sequence[str], may_follow: MayFollow, scheme: str) -> None:
    for index, (tag, after) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not may_follow(tag, after):
            at_edge = {0: f"{after!r} first", len(tags): f"{tag!r} last"}
            found = at_edge.get(index, f"{after!r} after {tag!r} at token {index}")
            raise InputError(f"a sentence has {found}, which {scheme} does not allow: {' '.join(tags)}")
