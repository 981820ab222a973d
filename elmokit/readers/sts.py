"""The STS benchmark: pairs of sentences with a similarity from 0 to 5, as tab-separated lines (Cer et al. 2017).

main-captions  MSRvid  2012test  0000  5.000  A man is dancing.  A man dances.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

NUM_COLUMNS = 7  # more, such as the sources of the sentences, may follow
HIGHEST = 5.0


@dataclass(frozen=True)
class SimilarPair:
    """Two sentences, and how alike people find them."""

    first: str
    second: str
    similarity: float


def read_sts(path: str | Path) -> Iterator[SimilarPair]:
    """Yield the pairs of a file; .gz and .xz are unpacked."""
    return (_read_pair(line) for line in read_lines([path]) if line.text.strip())


def _read_pair(line: Line) -> SimilarPair:
    columns = line.text.split("\t")
    try:
        similarity = float(columns[4])
        _, _, _, _, _, first, second = columns[:NUM_COLUMNS]
        if not 0 <= similarity <= HIGHEST:
            raise ValueError
    except (IndexError, ValueError):
        raise InputError(
            f"{line.path}, line {line.number}: found {line.text[:80]!r}, expected seven columns between tabs: genre, "
            "file, year, number, a similarity from 0 to 5, and two sentences; use the benchmark's own files"
        ) from None
    return SimilarPair(first, second, similarity)
