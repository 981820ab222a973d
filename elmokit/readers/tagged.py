"""Tagged sentences with any tags: one token and its tag per line, a blank line after a sentence."""

from collections.abc import Iterator
from pathlib import Path

from elmokit.errors import InputError
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.text.lines import read_lines


def read_tagged(path: str | Path) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file of two columns, separated by a tab or by spaces; .gz and .xz are unpacked."""
    tokens: list[str] = []
    tags: list[str] = []
    for line in read_lines([path]):
        if not line.text.strip():
            if tokens:
                yield TaggedSentence(tuple(tokens), tuple(tags), 0)
                tokens, tags = [], []
            continue
        cells = line.text.split("\t") if "\t" in line.text else line.text.split()
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise InputError(
                f"{path}, line {line.number}: {line.text[:60]!r} has {len(cells)} columns; expected a token and its tag"
            )
        tokens.append(cells[0].strip())
        tags.append(cells[1].strip())
    if tokens:
        yield TaggedSentence(tuple(tokens), tuple(tags), 0)
