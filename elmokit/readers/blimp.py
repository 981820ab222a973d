"""BLiMP: minimal pairs of sentences, one JSON object per line, one file per paradigm (Warstadt et al. 2020)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.readers.archive import read_archive
from elmokit.text.lines import Line, read_lines

# The files call two paradigms of argument structure by another name than the published tables.
PHENOMENA = {"s-selection": "argument_structure"}


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ as little as can be, of which one is grammatical."""

    paradigm: str
    """Such as ``anaphor_gender_agreement``; 67 in all."""
    phenomenon: str
    """Phenomenon of the paradigm, such as ``anaphor_agreement``; 12 in all."""
    good: str
    bad: str


def read_blimp(path: str | Path) -> list[MinimalPair]:
    """Return the pairs of a ``.jsonl`` file, of a folder of them, or of a ``.tar`` (also .gz and .xz), by file name."""
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        pairs = [pair for file in files for pair in _read_pairs(read_lines([file]))]
    elif ".tar" in path.suffixes:
        pairs = [pair for _, lines in read_archive(path, suffix=".jsonl") for pair in _read_pairs(lines)]
    else:
        pairs = list(_read_pairs(read_lines([path])))
    if not pairs:
        raise InputError(f"{path}: no minimal pairs in it; expected BLiMP's .jsonl files")
    return pairs


def _read_pairs(lines: Iterable[Line]) -> Iterator[MinimalPair]:
    for line in lines:
        if not line.text.strip():
            continue
        try:
            values = json.loads(line.text)
            found = [values[name] for name in ("UID", "linguistics_term", "sentence_good", "sentence_bad")]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = [None]
        if not all(isinstance(value, str) and value for value in found):
            raise InputError(
                f"{line.path}, line {line.number}: found {line.text[:80]!r}, expected an object with UID, "
                "linguistics_term, sentence_good and sentence_bad; use BLiMP's own files"
            )
        paradigm, phenomenon, good, bad = found
        yield MinimalPair(paradigm, PHENOMENA.get(phenomenon, phenomenon), good, bad)
