"""Constituency trees in Penn Treebank brackets, one tree per line.

    (TOP (S (NP (PRP She)) (VP (VBD sold) (NP (PRP it))) (. .)))

The root ``TOP`` (also ``ROOT``, ``S1`` or no label at all) is dropped if it has one child and that is a constituent: it
says nothing. Empty elements (``-NONE-``) are removed, with constituents that have no other words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

ROOT_LABELS = ("", "TOP", "ROOT", "S1")
ROOT = "TOP"
EMPTY_ELEMENT = "-NONE-"
MAX_DEPTH = 1000  # of brackets: the deepest tree of the Penn Treebank has fewer than 60

_PART = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Constituent:
    """A labeled span of tokens, from ``start`` up to ``end``."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class ParsedSentence:
    """A sentence and its tree. Constituents stand parents first, from the left, so that they determine the tree."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    """Part of speech per token."""
    constituents: tuple[Constituent, ...]


def read_ptb(path: str | Path) -> Iterator[ParsedSentence]:
    """Yield the trees of a file; .gz and .xz are unpacked."""
    return _read_trees(read_lines([path]))


def write_brackets(sentence: ParsedSentence) -> str:
    """Return a tree on one line, as `read_ptb` reads it, below the root ``TOP``."""
    if sentence.constituents and sentence.constituents[0].label == ROOT:
        return join_brackets(sentence)
    return f"({ROOT} {join_brackets(sentence)})"


def join_brackets(sentence: ParsedSentence) -> str:
    """Return the brackets of a tree on one line; tokens without a tag stand bare."""
    opened: list[list[str]] = [[] for _ in sentence.tokens]
    num_closed = [0] * len(sentence.tokens)
    for constituent in sentence.constituents:
        opened[constituent.start].append(f"({constituent.label} ")
        num_closed[constituent.end - 1] += 1
    words = [
        "".join(before) + (f"({tag} {token})" if tag else token) + ")" * after
        for before, token, tag, after in zip(opened, sentence.tokens, sentence.tags, num_closed, strict=True)
    ]
    return " ".join(words)


def draw_tree(sentence: ParsedSentence) -> str:
    """Return a tree as a drawing of several lines, one constituent or token per line."""
    entries: list[tuple[int, str]] = []  # depth, text
    waiting = list(reversed(sentence.constituents))
    ends: list[int] = []
    for index, (token, tag) in enumerate(zip(sentence.tokens, sentence.tags, strict=True)):
        while waiting and waiting[-1].start == index:
            constituent = waiting.pop()
            entries.append((len(ends), constituent.label))
            ends.append(constituent.end)
        entries.append((len(ends), f"{f'{tag} ' if tag else ''}{token}"))
        while ends and ends[-1] == index + 1:
            ends.pop()
    lines: list[str] = []
    continued: set[int] = set()  # depths at which a sibling follows
    for depth, text in reversed(entries):
        bars = "".join("│ " if above in continued else "  " for above in range(1, depth))
        joint = "" if depth == 0 else "├─" if depth in continued else "└─"
        lines.append(f"{bars}{joint}{text}")
        continued = {above for above in continued if above < depth} | {depth}
    return "\n".join(reversed(lines))


@dataclass
class _OpenBracket:
    label: str | None = None
    word: str | None = None
    start: int = 0
    slot: int = 0  # in the list of constituents, parents first
    num_constituents: int = 0  # among the children


def _read_trees(lines: Iterable[Line]) -> Iterator[ParsedSentence]:
    for line in lines:
        if line.text.strip():
            yield _read_tree(line)


class _TreeReader:
    """Reads one line without recursion."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.tokens: list[str] = []
        self.tags: list[str] = []
        self.constituents: list[Constituent | None] = []
        self.open: list[_OpenBracket] = []
        self.is_over = False
        self.num_under_root = 0

    def begin(self, place: int) -> None:
        if self.is_over:
            raise self.fault(place, "a second tree", "the end of the line")
        if self.open:
            parent = self.open[-1]
            if parent.word is not None:
                raise self.fault(place, "'('", "')' after a word")
            if parent.label is None and len(self.open) > 1:
                raise self.fault(place, "'('", "a label")
            parent.label = parent.label or ""
        if len(self.open) == MAX_DEPTH:
            raise self.fault(place, f"more than {MAX_DEPTH} open brackets", "a tree")
        self.open.append(_OpenBracket(start=len(self.tokens), slot=len(self.constituents)))
        self.constituents.append(None)

    def read_word(self, part: str, place: int) -> None:
        if not self.open:
            raise self.fault(place, repr(part), "'('")
        bracket = self.open[-1]
        if bracket.label is None:
            bracket.label = part
        elif bracket.word is None and len(self.constituents) == bracket.slot + 1:
            bracket.word = part
        else:
            raise self.fault(place, repr(part), "'(' or ')'")

    def close(self, place: int) -> None:
        if not self.open:
            raise self.fault(place, "')'", "'('")
        bracket = self.open.pop()
        if bracket.label is None or (bracket.word is None and len(self.constituents) == bracket.slot + 1):
            raise self.fault(place, "')'", "a label and a word, or smaller brackets")
        if bracket.word is not None:
            if bracket.label != EMPTY_ELEMENT:
                self.tokens.append(bracket.word)
                self.tags.append(bracket.label)
        elif len(self.tokens) > bracket.start:  # else it held empty elements alone
            self.constituents[bracket.slot] = Constituent(bracket.label, bracket.start, len(self.tokens))
            if self.open:
                self.open[-1].num_constituents += 1
        if not self.open:
            self.is_over = True
            self.num_under_root = bracket.num_constituents

    def finish(self) -> ParsedSentence:
        if not self.is_over:
            raise self.fault(len(self.line.text), "the end of the line", "')'")
        if not self.tokens:
            raise self.fault(0, "a tree without words", "at least one word; leave it out")
        found = [constituent for constituent in self.constituents if constituent is not None]
        return ParsedSentence(tuple(self.tokens), tuple(self.tags), tuple(self._drop_root(found)))

    def _drop_root(self, found: Sequence[Constituent]) -> Sequence[Constituent]:
        if not found or found[0].label not in ROOT_LABELS:
            return found
        covers_all = len(found) > 1 and (found[1].start, found[1].end) == (found[0].start, found[0].end)
        if covers_all and self.num_under_root == 1:
            return found[1:]
        return [Constituent(ROOT, found[0].start, found[0].end), *found[1:]]

    def fault(self, place: int, found: str, expected: str) -> InputError:
        return InputError(
            f"{self.line.path}, line {self.line.number}, character {place + 1}: found {found}, expected {expected}; "
            "correct the tree: one per line, such as (S (NP (PRP She)) (VP (VBD left)))"
        )


def _read_tree(line: Line) -> ParsedSentence:
    reader = _TreeReader(line)
    for match in _PART.finditer(line.text):
        if match[0] == "(":
            reader.begin(match.start())
        elif match[0] == ")":
            reader.close(match.start())
        else:
            reader.read_word(match[0], match.start())
    return reader.finish()
