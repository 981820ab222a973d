"""BLiMP: minimal pairs of sentences, one JSON object per line, one file per paradigm (Warstadt et al. 2020)."""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

# The files call two paradigms of argument structure by another name than the published tables.
PHENOMENA = {"s-selection": "argument_structure"}
MAX_MEMBER_BYTES = 16 * 2**20  # the largest file of BLiMP has 0.5 MB


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
        pairs = list(_read_archive(path))
    else:
        pairs = list(_read_pairs(read_lines([path])))
    if not pairs:
        raise InputError(f"{path}: no minimal pairs in it; expected BLiMP's .jsonl files")
    return pairs


def _read_archive(path: Path) -> Iterator[MinimalPair]:
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.name.endswith(".jsonl") and member.isreg()]
            for member in sorted(members, key=lambda member: member.name):
                if member.issparse() or not 0 <= member.size <= MAX_MEMBER_BYTES:
                    raise InputError(f"{path}: {member.name} has {member.size:,} bytes; expected a file of BLiMP")
                file = archive.extractfile(member)
                assert file is not None
                text = io.TextIOWrapper(file, encoding="utf-8")
                name = f"{path}/{member.name}"
                yield from _read_pairs(Line(line.rstrip("\r\n"), name, number) for number, line in enumerate(text, 1))
    except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as an archive: {error}; download it again") from error


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
