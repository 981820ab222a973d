r"""The Stanford Sentiment Treebank: one tree in Penn Treebank brackets a line, every node with a label from 0 to 4.

    (3 (2 It) (4 (2 's) (4 lovely)))

0 is very negative, 2 neutral, 4 very positive. Tokens are given as they are written: ``-LRB-`` and ``-RRB-`` stand for
brackets, ``\/`` for a slash. A no-break space is part of its token.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

LABELS = range(5)

_LABELS = {str(label): label for label in LABELS}
_PART = re.compile(r"[()]|[^ \t()]+")
_LABEL = f"a label from {LABELS[0]} to {LABELS[-1]}"
_WORD = "a word"


@dataclass(frozen=True)
class SentimentTree:
    """A phrase, its label, and the phrases that it is made of: none if it is a word."""

    label: int
    tokens: tuple[str, ...]
    children: tuple["SentimentTree", ...] = field(repr=False)  # the tokens tell it, and trees can be deep

    def subtrees(self) -> Iterator["SentimentTree"]:
        """Yield the tree itself and every phrase in it, from the left, a phrase before its parts."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            yield tree
            waiting.extend(reversed(tree.children))


def read_sst(path: str | Path) -> Iterator[SentimentTree]:
    """Yield the trees of a file; .gz and .xz are unpacked."""
    return _read_trees(read_lines([path]))


def _read_trees(lines: Iterable[Line]) -> Iterator[SentimentTree]:
    for line in lines:
        if line.text.strip():
            yield _read_tree(line)


@dataclass
class _OpenNode:
    label: int | None = None
    word: str | None = None
    children: list[SentimentTree] = field(default_factory=list)

    def close(self) -> SentimentTree:
        assert self.label is not None, "a node closes after its label"
        tokens = (self.word,) if self.word is not None else chain.from_iterable(child.tokens for child in self.children)
        return SentimentTree(self.label, tuple(tokens), tuple(self.children))


def _read_tree(line: Line) -> SentimentTree:
    """Parse without recursion, so that no depth is too deep."""
    open_nodes: list[_OpenNode] = []
    root: SentimentTree | None = None
    expected: tuple[str, ...] = ("(",)
    for match in _PART.finditer(line.text):
        part = match[0]
        if part == "(" and part in expected:
            open_nodes.append(_OpenNode())
            expected = (_LABEL,)
        elif part == ")" and part in expected:
            tree = open_nodes.pop().close()
            if open_nodes:
                open_nodes[-1].children.append(tree)
                expected = ("(", ")")
            else:
                root = tree
                expected = ("the end of the line",)
        elif _LABEL in expected and part in _LABELS:
            open_nodes[-1].label = _LABELS[part]
            expected = ("(", _WORD)
        elif _WORD in expected and part != ")":
            open_nodes[-1].word = part
            expected = (")",)
        else:
            raise _fault(line, f"character {match.start() + 1}: found {part!r}", expected)
    if root is None:
        raise _fault(line, "the line ends", expected)
    return root


def _fault(line: Line, found: str, expected: tuple[str, ...]) -> InputError:
    return InputError(
        f"{line.path}, line {line.number}: {found}, but expected {' or '.join(expected)}; correct the tree: one a "
        "line, such as (3 (2 It) (4 shines))"
    )
