"""Semantic roles and coreference in the columns of CoNLL-2012 (OntoNotes), and files in the same columns.

A row is a token: document, part, word number from 0, word, part of speech, parse, predicate's lemma, frameset, sense,
speaker, entity, one column a predicate with its roles in brackets, and coreference in the last one. Rows with a tab
are divided by tabs, others by spaces. What is not annotated is ``-`` or ``_``, or an empty last column.

Tokens are given as they are written: OntoNotes has ``/.`` and ``/?`` for some sentence ends, and ``-LRB-``.
Spans are half-open: a mention of one token ends at ``start + 1``.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import InputError
from elmokit.readers.archive import read_archive
from elmokit.text.lines import Line, read_lines

NOT_ANNOTATED = frozenset({"", "-", "_"})

_NUMBER, _TOKEN, _POS, _LEMMA, _FRAMESET, _SPEAKER, _FIRST_ROLE = 2, 3, 4, 6, 7, 9, 11
_MIN_COLUMNS = _FIRST_ROLE + 1
_BEGIN = re.compile(r"#begin document \((.+)\); part ([0-9]{1,9})\s*")
_ROLE = re.compile(r"(?:\(([^()*]+))?\*(\))?")
_MENTION = re.compile(r"(\()?([0-9]+)(\))?")


@dataclass(frozen=True)
class Predicate:
    """A predicate of a sentence, and the roles of all tokens."""

    index: int
    """Its token; the first, if it has several."""
    lemma: str | None
    tags: tuple[str, ...]
    """BIO, one tag per token. The predicate itself has the role V; C- and R- roles are kept."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a document."""

    tokens: tuple[str, ...]
    speakers: tuple[str | None, ...]
    """One a token."""
    pos: tuple[str, ...] | None
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True, order=True)
class Mention:
    """Tokens ``start`` to ``end`` (not included) of the document's sentence number ``sentence``."""

    sentence: int
    start: int
    end: int


@dataclass(frozen=True)
class Document:
    """A document, or one of the parts of a long one, which are annotated apart."""

    name: str
    part: int
    sentences: tuple[Sentence, ...]
    clusters: tuple[tuple[Mention, ...], ...]
    """Each by position, and by their first mentions. Singletons are kept, where a corpus has them."""


class _Row(NamedTuple):
    line: Line
    cells: list[str]


def read_conll2012(path: str | Path, *, roles: bool = True) -> Iterator[Document]:
    """Yield the documents of a file; .gz and .xz are unpacked. Without ``roles`` no sentence has predicates."""
    return _read_documents(read_lines([path]), roles=roles)


def read_conll2012_archive(path: str | Path, *, roles: bool = True) -> Iterator[Document]:
    """Yield the documents of all ``*conll`` files in a tar archive, plain or compressed, by the files' names.

    Nothing is written to disk. Links, devices, sparse files and paths out of the archive are rejected. Without
    ``roles`` no sentence has predicates.
    """
    files = read_archive(path, suffix="conll")
    return (document for _, lines in files for document in _read_documents(lines, roles=roles))


def _read_documents(lines: Iterable[Line], *, roles: bool) -> Iterator[Document]:
    document: _OpenDocument | None = None
    for line in lines:
        if document is None:
            if line.text.strip():
                document = _OpenDocument(line, roles=roles)
        elif line.text.startswith("#end document"):
            yield document.close()
            document = None
        elif line.text.startswith("#begin document"):
            raise _without_end(document.begin)
        elif line.text.strip():
            document.add_row(line)
        else:
            document.end_sentence()
    if document is not None:
        raise _without_end(document.begin)


def _without_end(begin: Line) -> InputError:
    return InputError(
        f"{begin.path}, line {begin.number}: the document that begins here has no '#end document'; the file is cut "
        "short or damaged: download it again"
    )


class _OpenDocument:
    """The part of a document that was read so far."""

    def __init__(self, begin: Line, *, roles: bool) -> None:
        match = _BEGIN.fullmatch(begin.text)
        if not match:
            raise InputError(
                f"{begin.path}, line {begin.number}: found {begin.text[:80]!r}, but expected '#begin document (name); "
                "part 000'; check that the file has CoNLL-2012 columns"
            )
        self.begin = begin
        self._name, self._part = match[1], int(match[2])
        self._roles = roles
        self._rows: list[_Row] = []
        self._sentences: list[Sentence] = []
        self._clusters: defaultdict[str, list[Mention]] = defaultdict(list)

    def add_row(self, line: Line) -> None:
        cells = line.text.split("\t") if "\t" in line.text else [cell for cell in line.text.split(" ") if cell]
        _check_row(line, cells, self._rows)
        self._rows.append(_Row(line, cells))

    def end_sentence(self) -> None:
        if self._rows:
            for cluster, start, end in _find_mentions(self._rows):
                self._clusters[cluster].append(Mention(len(self._sentences), start, end))
            self._sentences.append(_make_sentence(self._rows, roles=self._roles))
            self._rows = []

    def close(self) -> Document:
        self.end_sentence()
        clusters = sorted(tuple(sorted(mentions)) for mentions in self._clusters.values())
        return Document(self._name, self._part, tuple(self._sentences), tuple(clusters))


def _check_row(line: Line, cells: list[str], rows: list[_Row]) -> None:
    place = f"{line.path}, line {line.number}"
    if len(cells) < _MIN_COLUMNS:
        raise InputError(
            f"{place}: {len(cells)} columns in {line.text[:80]!r}, but CoNLL-2012 has {_MIN_COLUMNS} or more; check "
            "that the file has its columns, divided by tabs or by spaces"
        )
    if rows and len(cells) != len(rows[0].cells):
        raise InputError(
            f"{place}: {len(cells)} columns, but {len(rows[0].cells)} in the sentence's first line "
            f"({rows[0].line.number}); correct the line"
        )
    if cells[_NUMBER] != str(len(rows)):
        raise InputError(
            f"{place}: word number {cells[_NUMBER]!r}, but {len(rows)} comes next in this sentence; a line, or the "
            "blank line between two sentences, is missing: download the file again"
        )
    if not cells[_TOKEN]:
        raise InputError(f"{place}: the word (column {_TOKEN + 1}) is empty; correct the line")


def _make_sentence(rows: list[_Row], *, roles: bool) -> Sentence:
    columns = list(zip(*(row.cells for row in rows), strict=True))
    pos = columns[_POS]
    return Sentence(
        tokens=columns[_TOKEN],
        speakers=tuple(_annotated(cell) for cell in columns[_SPEAKER]),
        pos=None if NOT_ANNOTATED.issuperset(pos) else pos,
        predicates=tuple(_find_predicates(rows, columns)) if roles else (),
    )


def _annotated(cell: str) -> str | None:
    return None if cell in NOT_ANNOTATED else cell


def _find_predicates(rows: list[_Row], columns: list[tuple[str, ...]]) -> Iterator[Predicate]:
    role_columns = [
        index for index in range(_FIRST_ROLE, len(columns) - 1) if not NOT_ANNOTATED.issuperset(columns[index])
    ]
    framed = [index for index, cell in enumerate(columns[_FRAMESET]) if cell not in NOT_ANNOTATED]
    for number, column in enumerate(role_columns):
        tags = _read_roles(rows, column)
        if "B-V" in tags:
            index = tags.index("B-V")
        elif len(framed) == len(role_columns):
            index = framed[number]  # the columns are in the order of their predicates
        else:
            line = rows[0].line
            raise InputError(
                f"{line.path}, line {line.number}: column {column + 1} of the sentence that begins here has no (V*), "
                f"and {len(framed)} framesets do not tell the predicates of {len(role_columns)} columns; mark it"
            )
        yield Predicate(index, _annotated(columns[_LEMMA][index]), tags)


def _read_roles(rows: list[_Row], column: int) -> tuple[str, ...]:
    """Return the BIO tags of one column. Nested spans are rejected: BIO cannot express them."""
    tags = []
    open_role, open_line = "", rows[0].line
    for line, cells in rows:
        match = _ROLE.fullmatch(cells[column])
        if not match or (match[1] and open_role) or (match[2] and not (match[1] or open_role)):
            raise InputError(
                f"{line.path}, line {line.number}: {cells[column]!r} in column {column + 1} "
                f"{f'inside ({open_role}*' if open_role else 'outside of any role'}; expected '*', '(ROLE*', '*)' or "
                "'(ROLE*)', one after the other; correct the line"
            )
        begun, closes = match[1], match[2]
        if begun:
            open_role, open_line = begun, line
        tags.append(f"{'B' if begun else 'I'}-{open_role}" if open_role else "O")
        if closes:
            open_role = ""
    if open_role:
        raise InputError(
            f"{open_line.path}, line {open_line.number}: '({open_role}*' in column {column + 1} is not closed in its "
            "sentence; correct the column"
        )
    return tuple(tags)


def _find_mentions(rows: list[_Row]) -> Iterator[tuple[str, int, int]]:
    """Yield (cluster, start, end); a bracket closes the one of its cluster that was opened last."""
    opened: defaultdict[str, list[tuple[int, Line]]] = defaultdict(list)
    for index, (line, cells) in enumerate(rows):
        for mark in cells[-1].split("|") if cells[-1] not in NOT_ANNOTATED else ():
            match = _MENTION.fullmatch(mark)
            if not match or not (match[1] or match[3]):
                raise InputError(
                    f"{line.path}, line {line.number}: {cells[-1]!r} in the last column; expected '(3', '3)' or '(3)', "
                    "with | between, or - for none; correct the line"
                )
            cluster = match[2]
            if match[1]:
                opened[cluster].append((index, line))
            if match[3]:
                if not opened[cluster]:
                    raise InputError(
                        f"{line.path}, line {line.number}: {mark!r} in the last column closes a mention that was not "
                        "opened in this sentence; correct the brackets"
                    )
                yield cluster, opened[cluster].pop()[0], index + 1
    for cluster, starts in opened.items():
        for _, line in starts:
            raise InputError(
                f"{line.path}, line {line.number}: '({cluster}' in the last column is not closed in its sentence; "
                "correct the brackets"
            )
