"""Files of a corpus index: a folder with the vectors of every token of a text.

index.json      model, settings, sizes, SHA-256 of every text file; written last
vectors-0.f16   the token layer, one row per distinct word
vectors-N.f16   layer N, one row per token
lengths.f4      length of each token's vector per contextual layer, and of the mean of all layers
token-ids.i4    distinct word of each token
token-words     distinct words, one JSON string per line
offsets.i8      end of each sentence, counted in tokens
lines.i8        line of each sentence, counted from 0 over all files

All numbers are little-endian. An index holds each distinct sentence once.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.plain_file import read_plain

ABOUT = "index.json"
FORMAT = "elmokit.index.v1"
MAX_LAYERS = 1000
LENGTHS, TOKEN_IDS, WORDS, OFFSETS, LINES = "lengths.f4", "token-ids.i4", "token-words", "offsets.i8", "lines.i8"


@dataclass(frozen=True)
class TextFile:
    """A text file as it was when it was indexed."""

    path: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class IndexInfo:
    """Settings and sizes of an index."""

    model: str | None
    """Name or path of the model; None if it was built in memory."""
    fingerprint: str
    """Hash of all that vectors depend on besides their sentence."""
    state: str
    language: str
    tokenized: bool
    num_layers: int
    width: int
    files: tuple[TextFile, ...]
    num_lines: int
    num_sentences: int
    """Distinct sentences."""
    num_tokens: int
    """Tokens of the distinct sentences."""
    num_words: int
    """Distinct words."""
    sizes: dict[str, int]
    """Bytes of each file of the folder."""


def vectors_file(layer: int) -> str:
    """Return the name of a layer's file."""
    return f"vectors-{layer}.f16"


def part_names(num_layers: int) -> list[str]:
    """Return the names of all files that grow while an index is built."""
    return [*map(vectors_file, range(num_layers)), LENGTHS, TOKEN_IDS, WORDS, OFFSETS, LINES]


def to_json(info: IndexInfo) -> dict[str, Any]:
    """Return the content of ``index.json``."""
    return {"format": FORMAT, **asdict(info)}


def read_info(folder: Path) -> IndexInfo:
    """Read ``index.json``, and check that every file of the index is whole."""
    if not (folder / ABOUT).is_file():
        state = "has no index.json" if folder.is_dir() else "is no folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder}: {state}; expected an index, as `elmokit index FILES -o {folder}` writes it")
    try:
        content = json.loads(read_plain(folder / ABOUT))
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        content["files"] = tuple(TextFile(**file) for file in content["files"])
        info = IndexInfo(**content)
        sizes = info.num_layers, info.width, info.num_lines, info.num_sentences, info.num_tokens, info.num_words
        if not all(type(size) is int and size >= 0 for size in sizes) or not 0 < info.num_layers <= MAX_LAYERS:
            raise ValueError("a size is not a whole number, or none that can be")
        for name in part_names(info.num_layers):
            found = (folder / name).stat().st_size
            if found != info.sizes[name] or found != _expected_bytes(info, name, found):
                raise ValueError(f"{name} has {found:,} bytes, expected {info.sizes[name]:,}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise damaged(folder, str(error)) from error
    return info


def damaged(folder: Path, reason: str) -> InputError:
    """Return the error of an index whose files contradict each other."""
    return InputError(f"{folder}: is damaged ({reason}); build it again with `elmokit index`")


def _expected_bytes(info: IndexInfo, name: str, found: int) -> int:
    """Return the size that follows from the number of sentences, tokens and words; words themselves have any."""
    rows = {
        vectors_file(0): 2 * info.width * info.num_words,
        LENGTHS: 4 * info.num_layers * info.num_tokens,
        TOKEN_IDS: 4 * info.num_tokens,
        OFFSETS: 8 * info.num_sentences,
        LINES: 8 * info.num_sentences,
        WORDS: found,
    }
    return rows.get(name, 2 * info.width * info.num_tokens)


def map_numbers(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map a file of numbers into memory, read-only."""
    if 0 in shape:
        return np.empty(shape, dtype=dtype)  # nothing cannot be mapped
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def read_words(path: Path) -> list[str]:
    """Read the distinct words in the order of their ids."""
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            words = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise damaged(path.parent, f"{path.name}: {error}") from error
    if not all(isinstance(word, str) for word in words):
        raise damaged(path.parent, f"{path.name}: a line is not a string")
    return words
