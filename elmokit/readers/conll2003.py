"""Named entities in the columns of CoNLL-2003: one token per line, its tag last, a blank line after a sentence.

Two styles of tags are published. IOB1 (CoNLL-2003, Wikigold) writes ``B-`` only where two spans of one type touch,
BIO (WNUT-17) at the beginning of every span. One rule reads both, so nobody has to know which a file has: a span begins
at ``B-``, and at an ``I-`` that does not follow a tag of its own type. What is given out is always BIO.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

DOCUMENT_START = "-DOCSTART-"
NUM_COLUMNS = range(2, 5)

_TAG = re.compile(r"O|[BI]-\S+")


@dataclass(frozen=True)
class TaggedSentence:
    """Tokens, and as many BIO tags."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    document: int
    """Counted from 0, empty ones left out; 0 throughout in a file without ``-DOCSTART-``."""


def read_conll2003(path: str | Path) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file of 2 to 4 columns, divided by tabs or spaces; .gz and .xz are unpacked."""
    return _read_sentences(read_lines([path]))


def _read_sentences(lines: Iterable[Line]) -> Iterator[TaggedSentence]:
    tokens: list[str] = []
    tags: list[str] = []
    document, document_is_empty = 0, True
    first_row: list[str] = []
    for line in lines:
        cells = _split(line.text)
        starts_document = cells[:1] == [DOCUMENT_START]
        if cells and not starts_document:
            first_row = first_row or cells
            _check(line, cells, num_columns=len(first_row))
            tokens.append(cells[0])
            tags.append(cells[-1])
            continue
        if tokens:
            yield TaggedSentence(tuple(tokens), _to_bio(tags), document)
            tokens, tags, document_is_empty = [], [], False
        # Wikigold has the line after every document, CoNLL-2003 before: only one between two sentences counts.
        if starts_document and not document_is_empty:
            document, document_is_empty = document + 1, True
    if tokens:
        yield TaggedSentence(tuple(tokens), _to_bio(tags), document)


def _split(text: str) -> list[str]:
    """Return the columns; none of a blank line. Other white space than tabs and spaces belongs to a token."""
    if not text.strip():
        return []
    if "\t" in text:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.split(" ") if cell]


def _check(line: Line, cells: list[str], *, num_columns: int) -> None:
    place = f"{line.path}, line {line.number}"
    if len(cells) not in NUM_COLUMNS:
        raise InputError(
            f"{place}: {len(cells)} column{'s' * (len(cells) != 1)} in {line.text!r}, but there must be "
            f"{NUM_COLUMNS[0]} to {NUM_COLUMNS[-1]}, the token first and its tag last; "
            f"{'give it its tag' if len(cells) < NUM_COLUMNS[0] else 'take the other columns out'}"
        )
    if len(cells) != num_columns:
        raise InputError(
            f"{place}: {len(cells)} columns in {line.text!r}, but {num_columns} in the lines before; correct the line"
        )
    if "" in cells:
        raise InputError(
            f"{place}: column {cells.index('') + 1} of {line.text!r} is empty, but must have text; correct the line"
        )
    if not _TAG.fullmatch(cells[-1]):
        raise InputError(
            f"{place}: tag {cells[-1]!r}, but a tag must be O, B-TYPE or I-TYPE; convert the file to BIO, "
            "or put the tags into the last column"
        )


def _to_bio(tags: Iterable[str]) -> tuple[str, ...]:
    bio = []
    span_type = ""
    for tag in tags:
        prefix, _, tag_type = tag.partition("-")
        bio.append(f"B-{tag_type}" if prefix == "I" and tag_type != span_type else tag)
        span_type = tag_type
    return tuple(bio)
