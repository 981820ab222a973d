"""Labeled texts, one per line: a label, a tab, the text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import read_lines


@dataclass(frozen=True)
class LabeledText:
    """A text and its label."""

    label: str
    text: str


def read_labeled_texts(path: str | Path) -> Iterator[LabeledText]:
    """Yield the texts of a file; blank lines are skipped, .gz and .xz are unpacked."""
    for line in read_lines([path]):
        if not line.text.strip():
            continue
        label, _, text = (part.strip() for part in line.text.partition("\t"))
        if not (label and text):
            raise InputError(
                f"{path}, line {line.number}: {line.text[:60]!r} has no label; expected a label, a tab and a text"
            )
        yield LabeledText(label, text)
