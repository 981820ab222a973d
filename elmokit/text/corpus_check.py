"""Check that a prepared corpus is what was written: hashes of its files, and arrays that fit together.

Everything is read in blocks, so that a check takes about a second per gigabyte and no memory.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import PAD_CHAR
from elmokit.errors import ElmokitWarning, InputError

BLOCK = 1 << 20
WORDS_AT_ONCE = 1 << 16
NEWLINE = ord("\n")

Arrays = Mapping[str, NDArray[Any]]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hashes(folder: Path, sums: Mapping[str, str] | None, names: list[str]) -> None:
    """Reject files that were changed since they were written; warn if the corpus is too old to have hashes."""
    if sums is None:
        warnings.warn(
            f"{folder}: was prepared by an older version and has no checksums, so that damage can go unnoticed; delete "
            "the folder to have the text prepared again",
            ElmokitWarning,
            stacklevel=1,
        )
        return
    for name in names:
        if hash_file(folder / name) != sums.get(name):
            raise _damaged(folder, name, "its SHA-256 is not the one that corpus.json has")


def check_arrays(folder: Path, arrays: Arrays) -> None:
    """Reject arrays that contradict each other, in a corpus without hashes or with forged ones."""
    tokens, lengths, offsets = (arrays[f"{name}.bin"] for name in ("tokens", "lengths", "offsets"))
    num_words = len(arrays["counts.bin"])
    if offsets[0] != 0 or offsets[-1] != len(tokens):
        raise _damaged(folder, "offsets.bin", "the sentences do not cover tokens.bin")
    for block in _blocks(lengths):
        found = np.diff(offsets[block.start : block.stop + 1])
        if (found < 1).any() or (found != lengths[block]).any():
            raise _damaged(folder, "offsets.bin", "the sentences have not the lengths of lengths.bin")
    if any(tokens[block].max() >= num_words for block in _blocks(tokens)):
        raise _damaged(folder, "tokens.bin", f"a word id is above {num_words - 1}")
    counts = arrays["counts.bin"]
    if counts.min() < 1 or sum(int(counts[block].sum()) for block in _blocks(counts)) != len(tokens):
        raise _damaged(folder, "counts.bin", "the counts do not add up to the number of tokens")
    if any(arrays["char_ids.bin"][block].max() > PAD_CHAR for block in _blocks(arrays["char_ids.bin"], WORDS_AT_ONCE)):
        raise _damaged(folder, "char_ids.bin", f"a character id is above {PAD_CHAR}")
    _check_words(folder, arrays["words.txt"], arrays["word_offsets.bin"])


def _check_words(folder: Path, text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Reject words that are not UTF-8, one per line, where their offsets say."""
    if offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 2).any():
        raise _damaged(folder, "word_offsets.bin", "the words do not cover words.txt")
    if (text[offsets[1:] - 1] != NEWLINE).any() or np.count_nonzero(text == NEWLINE) != len(offsets) - 1:
        raise _damaged(folder, "words.txt", "a line is not one word")
    for block in _blocks(offsets[1:], WORDS_AT_ONCE):
        try:
            text[offsets[block.start] : offsets[min(block.stop, len(offsets) - 1)]].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise _damaged(folder, "words.txt", f"it is not UTF-8 ({error.reason})") from error


def _blocks(array: NDArray[Any], size: int = BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + size, len(array))) for start in range(0, len(array), size))


def _damaged(folder: Path, name: str, reason: str) -> InputError:
    return InputError(f"{folder / name} is damaged: {reason}; delete {folder} and prepare the corpus again")
