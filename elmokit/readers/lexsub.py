"""SemEval-2007 lexical substitution: sentences with a target word, and the substitutes that annotators gave.

lst_all.preprocessed   bright.a TAB 1 TAB 13 TAB during the siege , …     target, id, position, tokens
lst_all.gold           bright.a 1 :: intelligent 3;clever 3;smart 1;      substitutes and how many gave each
lst.gold.candidates    bright.a::intelligent;clever;well-lit;…            all substitutes of a target
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

_NUMBER = re.compile(r"[0-9]{1,9}")
_GOLD = re.compile(r"(\S+) ([0-9]{1,9}) :: ?(.*)")
_SUBSTITUTE = re.compile(r"(.+) ([0-9]{1,9})")


@dataclass(frozen=True)
class Substitution:
    """A word in its sentence, and what could stand in its place."""

    target: str
    """Lemma and part of speech, such as ``bright.a``."""
    id: int
    tokens: tuple[str, ...]
    position: int
    gold: dict[str, int]
    """Annotators per substitute."""
    candidates: tuple[str, ...]
    """Substitutes of this target in any sentence."""


def read_lexsub(sentences: str | Path, gold: str | Path, candidates: str | Path) -> list[Substitution]:
    """Return the instances that have gold substitutes; .gz and .xz are unpacked."""
    weights = dict(_read_gold(line) for line in read_lines([gold], or_latin1=True) if line.text.strip())
    listed = dict(_read_candidates(line) for line in read_lines([candidates], or_latin1=True) if line.text.strip())
    found = []
    for line in read_lines([sentences], or_latin1=True):
        if not line.text.strip():
            continue
        target, number, position, tokens = _read_sentence(line)
        # A few targets are tagged otherwise in their sentence, bar.n.v: their candidates are those of bar.n.
        word = ".".join(target.split(".")[:2])
        if word not in listed:
            raise InputError(f"{candidates}: no candidates for {target!r}, which {sentences} has; check the files")
        if (target, number) in weights:
            found.append(Substitution(target, number, tokens, position, weights[target, number], listed[word]))
    if not found:
        raise InputError(f"{sentences}: none of its instances is in {gold}; check that the files belong together")
    return found


def _read_sentence(line: Line) -> tuple[str, int, int, tuple[str, ...]]:
    columns = line.text.split("\t")
    if len(columns) == 4 and _NUMBER.fullmatch(columns[1]) and _NUMBER.fullmatch(columns[2]):
        tokens = tuple(columns[3].split())
        if int(columns[2]) < len(tokens):
            return columns[0], int(columns[1]), int(columns[2]), tokens
    raise _fault(line, "a target, an id, the position of a token and a sentence, between tabs")


def _read_gold(line: Line) -> tuple[tuple[str, int], dict[str, int]]:
    match = _GOLD.fullmatch(line.text.strip())
    if match is None:
        raise _fault(line, "a target, an id, '::' and substitutes such as 'clever 3;smart 1;'")
    weights: dict[str, int] = {}
    for part in _parts(match[3]):
        substitute = _SUBSTITUTE.fullmatch(part)
        if substitute is None:
            raise _fault(line, f"a substitute and a number instead of {part!r}")
        weights[substitute[1]] = int(substitute[2])
    return (match[1], int(match[2])), weights


def _read_candidates(line: Line) -> tuple[str, tuple[str, ...]]:
    target, separator, rest = line.text.strip().partition("::")
    if not separator:
        raise _fault(line, "a target, '::' and substitutes between semicolons")
    return target, tuple(_parts(rest))


def _parts(text: str) -> Iterable[str]:
    return (part.strip() for part in text.split(";") if part.strip())


def _fault(line: Line, expected: str) -> InputError:
    return InputError(
        f"{line.path}, line {line.number}: found {line.text[:80]!r}, expected {expected}; use the published files"
    )
