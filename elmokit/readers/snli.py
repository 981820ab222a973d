"""SNLI: pairs of sentences in the official JSON lines.

A pair has no label where the annotators did not agree (``gold_label`` is ``-``). The official scores leave these out.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"


@dataclass(frozen=True)
class SentencePair:
    """A premise, a hypothesis, and how they relate."""

    premise: str
    hypothesis: str
    label: str | None
    """One of ``LABELS``, or None."""
    pair_id: str | None
    premise_tokens: tuple[str, ...] | None
    """From the binary parse, ``-LRB-`` as it is written; None where the file has no parses."""
    hypothesis_tokens: tuple[str, ...] | None


def read_snli(path: str | Path, *, drop_unlabelled: bool = False) -> Iterator[SentencePair]:
    """Yield the pairs of a file, those without a label too unless they are dropped; .gz and .xz are unpacked."""
    pairs = _read_pairs(read_lines([path]))
    return (pair for pair in pairs if pair.label is not None) if drop_unlabelled else pairs


def _read_pairs(lines: Iterable[Line]) -> Iterator[SentencePair]:
    for line in lines:
        if line.text.strip():
            yield _read_pair(line)


def _read_pair(line: Line) -> SentencePair:
    place = f"{line.path}, line {line.number}"
    try:
        fields = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: no JSON ({error}); each line must be one JSON object: correct the line") from error
    if not isinstance(fields, dict):
        raise InputError(f"{place}: found {line.text[:80]!r}, but expected a JSON object; correct the line")
    label = _require_text(fields, "gold_label", place)
    if label not in (*LABELS, NO_LABEL):
        raise InputError(
            f"{place}: gold_label {label!r}, but must be {', '.join(LABELS)} or {NO_LABEL}; correct the line"
        )
    return SentencePair(
        premise=_require_text(fields, "sentence1", place),
        hypothesis=_require_text(fields, "sentence2", place),
        label=None if label == NO_LABEL else label,
        pair_id=_find_text(fields, "pairID", place),
        premise_tokens=_read_tokens(_find_text(fields, "sentence1_binary_parse", place), place),
        hypothesis_tokens=_read_tokens(_find_text(fields, "sentence2_binary_parse", place), place),
    )


def _require_text(fields: dict[str, object], name: str, place: str) -> str:
    text = _find_text(fields, name, place)
    if not text or text.isspace():
        raise InputError(f"{place}: no {name!r} among {', '.join(fields) or 'no fields'}, or empty; correct the line")
    return text


def _find_text(fields: dict[str, object], name: str, place: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{place}: {name} is {value!r}, but must be a string; correct the line")
    return value


def _read_tokens(parse: str | None, place: str) -> tuple[str, ...] | None:
    if parse is None:
        return None
    parts = parse.split()
    tokens = tuple(part for part in parts if part not in ("(", ")"))
    if not tokens or parts.count("(") != parts.count(")"):
        raise InputError(
            f"{place}: {parse!r} is no binary parse: it has {len(tokens)} tokens, {parts.count('(')} opening and "
            f"{parts.count(')')} closing brackets; correct the line, or leave the parses out"
        )
    return tokens
