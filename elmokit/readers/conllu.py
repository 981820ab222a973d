"""Universal Dependencies: the ten columns of CoNLL-U.

Syntactic words are read. Lines of multi-word tokens (``3-4``), lines of empty nodes (``8.1``) and comments are passed
over.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

NUM_COLUMNS = 10
NOT_ANNOTATED = "_"

_ID, _FORM, _LEMMA, _UPOS, _XPOS, _FEATURES, _HEAD, _RELATION = 0, 1, 2, 3, 4, 5, 6, 7
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")
_USED = (_FORM, _LEMMA, _UPOS, _XPOS, _FEATURES, _HEAD, _RELATION)


@dataclass(frozen=True)
class UDSentence:
    """A sentence; every field has one value a token, as it is written: ``_`` where something is not annotated."""

    tokens: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    lemmas: tuple[str, ...]
    heads: tuple[int | None, ...]
    """Tokens counted from 1; 0 is the root's, None where there is none."""
    relations: tuple[str, ...]
    features: tuple[str, ...]
    """Morphology, such as ``Case=Nom|Number=Sing``."""

    @property
    def directions(self) -> tuple[str, ...]:
        """Side on which the head of every token is: ``left``, ``right``, or ``root`` for the root itself."""
        return tuple(_side(head, at) for at, head in enumerate(self.heads, start=1))


def _side(head: int | None, at: int) -> str:
    if head is None:
        return NOT_ANNOTATED
    return "root" if head == 0 else "left" if head < at else "right"


def read_conllu(path: str | Path) -> Iterator[UDSentence]:
    """Yield the sentences of a file; .gz and .xz are unpacked."""
    return _read_sentences(read_lines([path]))


def _read_sentences(lines: Iterable[Line]) -> Iterator[UDSentence]:
    rows: list[tuple[Line, list[str]]] = []
    for line in lines:
        if not line.text.strip():
            if rows:
                yield _make_sentence(rows)
                rows = []
        elif not line.text.startswith("#"):
            cells = line.text.split("\t")
            if _is_word(line, cells, next_id=len(rows) + 1):
                rows.append((line, cells))
    if rows:
        yield _make_sentence(rows)


def _is_word(line: Line, cells: list[str], *, next_id: int) -> bool:
    place = f"{line.path}, line {line.number}"
    if len(cells) != NUM_COLUMNS:
        raise InputError(
            f"{place}: {len(cells)} columns in {line.text[:80]!r}, but CoNLL-U has {NUM_COLUMNS}, divided by tabs; "
            "correct the line"
        )
    word_id = cells[_ID]
    if _NO_WORD.fullmatch(word_id):
        return False
    if word_id != str(next_id):
        raise InputError(
            f"{place}: word id {word_id!r}, but {next_id} comes next in this sentence; a line, or the blank line "
            "between two sentences, is missing: download the file again"
        )
    for column in _USED:
        if not cells[column]:
            raise InputError(
                f"{place}: column {column + 1} is empty, but must have text, or _ for none; correct the line"
            )
    return True


def _make_sentence(rows: list[tuple[Line, list[str]]]) -> UDSentence:
    for line, cells in rows:
        if cells[_HEAD] != NOT_ANNOTATED and not (_is_number(cells[_HEAD]) and int(cells[_HEAD]) <= len(rows)):
            raise InputError(
                f"{line.path}, line {line.number}: head {cells[_HEAD]!r}, but it must be a number from 0 to "
                f"{len(rows)}, the words of the sentence, or _ for none; correct the line"
            )
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    return UDSentence(
        tokens=columns[_FORM],
        upos=columns[_UPOS],
        xpos=columns[_XPOS],
        lemmas=columns[_LEMMA],
        heads=tuple(None if head == NOT_ANNOTATED else int(head) for head in columns[_HEAD]),
        relations=columns[_RELATION],
        features=columns[_FEATURES],
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # `int` rejects thousands of digits
