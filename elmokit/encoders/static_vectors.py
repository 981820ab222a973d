"""Static vectors, one per word whatever its sentence: GloVe's, word2vec's.

Shapes: V words, D width, N tokens.
"""

import json
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmokit.atomic import atomic_folder
from elmokit.errors import ElmokitWarning, InputError, OutputError, WeightsError
from elmokit.limits import max_line_bytes
from elmokit.readers.archive import ZIP_DAMAGE
from elmokit.text.grouping import windows
from elmokit.text.lines import Line, decode_lines, read_lines, split_unpacked
from elmokit.weights.npz import read_arrays
from elmokit.weights.sums import SUMS, check_sums, write_sums

Vectors = NDArray[np.floating[Any]]
Lowering = Literal["always", "fallback", "never"]

VECTORS, WORDS = "vectors.safetensors", "words.json"
TENSOR = "vectors"
KNOWN_FILES = {VECTORS, WORDS, SUMS}
LINES_AT_ONCE = 1024


class StaticVectors:
    """Words and their vectors: float16 where they are given as such, else float32."""

    def __init__(self, words: Sequence[str], vectors_VD: Vectors) -> None:
        self.words = tuple(words)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is rejected below
            dtype = np.float16 if vectors_VD.dtype == np.float16 else np.float32
            self.vectors_VD: Vectors = np.asarray(vectors_VD, dtype=dtype)
        if vectors_VD.ndim != 2 or len(vectors_VD) != len(self.words) or not vectors_VD.size:
            raise InputError(
                f"{len(self.words):,} words with vectors of shape {vectors_VD.shape}; expected (words, width), both > 0"
            )
        self._rows = {word: row for row, word in enumerate(self.words, start=1)}
        if len(self._rows) != len(self.words):
            raise InputError(f"{len(self.words):,} words, but only {len(self._rows):,} different ones; give each once")
        if (row := _first_not_finite(self.vectors_VD)) is not None:
            raise InputError(f"the vector of {self.words[row]!r} (word {row + 1:,}) holds NaN or infinite values")

    @property
    def width(self) -> int:
        """Width of a vector."""
        return int(self.vectors_VD.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def rows(self, tokens: Iterable[str], *, lower: Lowering) -> NDArray[np.int64]:
        """Return the tokens' rows of the matrix, (N,): word i has row i + 1, unknown words have row 0.

        Tokens are looked up in lower case always, only where they are not there as they are written, or never.
        """
        if lower not in get_args(Lowering):
            raise InputError(f"lower {lower!r}; expected 'always', 'fallback' or 'never'")
        if lower == "always":
            found = [self._rows.get(token.lower(), 0) for token in tokens]
        elif lower == "never":
            found = [self._rows.get(token, 0) for token in tokens]
        else:
            found = [self._rows.get(token) or self._rows.get(token.lower(), 0) for token in tokens]
        return np.array(found, dtype=np.int64)

    def matrix(self, *, unit_length: bool = False) -> NDArray[np.float32]:
        """Return a row of zeros, then the vector of every word, (V + 1, D), scaled to length 1 if asked for."""
        matrix = np.zeros((len(self.words) + 1, self.width), dtype=np.float32)
        matrix[1:] = self.vectors_VD
        if unit_length:
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix /= np.where(lengths > 0, lengths, 1)
        return matrix

    def save(self, folder: str | Path) -> None:
        """Save as a folder of its own, bit for bit; one that an earlier call made there is replaced."""
        folder = Path(folder)
        ours = folder.is_dir() and {path.name for path in folder.iterdir()} == KNOWN_FILES
        with atomic_folder(folder, replace=ours) as new:
            # Words hold odd white space, U+0085 too: of all forms of a list, JSON brings every one of them back.
            (new / WORDS).write_text(json.dumps(self.words), "utf-8")
            try:
                save_file({TENSOR: np.ascontiguousarray(self.vectors_VD)}, new / VECTORS)
            except SafetensorError as error:
                raise OutputError(f"{folder}: cannot be written: {error}; is the disk full?") from error
            (new / VECTORS).chmod((new / WORDS).stat().st_mode)  # safetensors makes it private to the user
            write_sums(new, (VECTORS, WORDS))

    @classmethod
    def load(cls, folder: str | Path) -> "StaticVectors":
        """Load what `save` saved, after a check of its hashes."""
        folder = Path(folder)
        check_sums(folder, (VECTORS, WORDS))
        try:
            words = json.loads((folder / WORDS).read_bytes())
            vectors_VD = load_file(folder / VECTORS)[TENSOR]
            if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
                raise ValueError(f"{WORDS} is no list of words")
            return cls(words, vectors_VD)
        except (SafetensorError, ValueError, KeyError, OSError, RecursionError) as error:
            raise WeightsError(f"{folder}: no static vectors of ours ({error}); get the folder again") from error


def read_static_vectors(path: str | Path) -> StaticVectors:
    """Read a published file of word vectors.

    ``.npz``: the arrays ``words`` and ``vectors``. All else is text, plain or as .gz, .xz or .zip of one file: a line
    is a word and its numbers, separated by single spaces; word2vec's first line, the counts of words and numbers, may
    be there. Of a word that comes twice the first vector is kept, with a warning.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    return _read_text(path)


def _read_npz(path: Path) -> StaticVectors:
    arrays = read_arrays(path, ("words", "vectors"))
    words_V, vectors_VD = arrays["words"], arrays["vectors"]
    fitting = words_V.ndim == 1 and vectors_VD.ndim == 2 and len(words_V) == len(vectors_VD)
    if not (fitting and words_V.dtype.kind == "U" and vectors_VD.dtype.kind == "f"):
        raise InputError(
            f"{path}: 'words' is {words_V.dtype} of shape {words_V.shape}, 'vectors' {vectors_VD.dtype} of shape "
            f"{vectors_VD.shape}; expected strings, and a vector of floats for each"
        )
    return _without_repeats(words_V.tolist(), vectors_VD, path)


class _Header(NamedTuple):
    """The first line of word2vec's text format."""

    num_words: int
    dim: int


def _read_text(path: Path) -> StaticVectors:
    lines = _read_zip(path) if path.suffix.lower() == ".zip" else read_lines([path])
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: is empty; expected lines of a word and its numbers")
    header = _find_header(first)
    dim = _num_fields(first) - 1 if header is None else header.dim
    if dim < 1:
        raise InputError(f"{path}, line 1: {first.text[:40]!r}; expected a word and its numbers, separated by spaces")
    words: list[str] = []
    parts: list[NDArray[np.float32]] = []
    for block in windows(chain([first] if header is None else [], lines), LINES_AT_ONCE):
        block_words, block_vectors = _parse_block(block, dim)
        words += block_words
        parts.append(block_vectors)
    if not words:
        raise InputError(f"{path}: holds no word; expected lines of a word and its numbers")
    if header is not None and header.num_words != len(words):
        raise InputError(
            f"{path}: line 1 says {header.num_words:,} words, but {len(words):,} follow; get the whole file again"
        )
    return _without_repeats(words, _join(parts, dim), path)


def _find_header(line: Line) -> _Header | None:
    match = re.fullmatch(r"([0-9]{1,15}) ([0-9]{1,9}) *", line.text)
    return None if match is None else _Header(int(match[1]), int(match[2]))


def _num_fields(line: Line) -> int:
    return line.text.rstrip(" ").count(" ") + 1


def _parse_block(lines: Sequence[Line], dim: int) -> tuple[list[str], NDArray[np.float32]]:
    """Words and vectors of some lines: all at once, or, where there is anything unusual, one by one."""
    split = [line.text.rstrip(" ").partition(" ") for line in lines]
    numbers = [rest for _, _, rest in split]
    if all(word for word, _, _ in split) and all(rest.count(" ") == dim - 1 for rest in numbers):
        vectors = _parse_numbers(numbers)
        if vectors is not None and np.isfinite(vectors).all():
            return [word for word, _, _ in split], vectors
    parsed = [_parse_line(line, dim) for line in lines]
    return [word for word, _ in parsed], np.concatenate([vector for _, vector in parsed])


def _parse_numbers(texts: Sequence[str]) -> NDArray[np.float32] | None:
    """Lines of numbers; None if one of them is anything else, or they are not equally many."""
    if not all(texts):
        return None  # numpy would pass over an empty line
    try:
        return np.loadtxt(texts, dtype=np.float32, comments=None, delimiter=" ", ndmin=2)
    except ValueError:
        return None


def _parse_line(line: Line, dim: int) -> tuple[str, NDArray[np.float32]]:
    """Return the word and the vector of a line. A word may contain spaces, as some of GloVe 840B do."""
    where = f"{line.path}, line {line.number}"
    word, *numbers = line.text.rstrip(" ").rsplit(" ", dim)
    if len(numbers) < dim or not word or word != word.strip(" "):
        raise InputError(
            f"{where}: {_num_fields(line)} fields ({line.text[:40]!r}); expected a word and {dim} numbers, "
            "separated by single spaces"
        )
    first, *others = word.split(" ")
    if others and _parse_numbers(others[-1:]) is not None:
        raise InputError(f"{where}: more than {dim} numbers after {first[:40]!r}; other lines have {dim}")
    vector = _parse_numbers([" ".join(numbers)])
    if vector is None:
        faulty = next(number for number in numbers if _parse_numbers([number]) is None)
        raise InputError(f"{where}: {faulty[:40]!r} is no number; expected a word and {dim} numbers")
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: the vector of {word[:40]!r} holds NaN or infinite values; leave the word out")
    return word, vector


def _join(parts: list[NDArray[np.float32]], dim: int) -> NDArray[np.float32]:
    """Return all parts as one array. They are released one by one, so that memory holds the vectors about once."""
    joined = np.empty((sum(map(len, parts)), dim), dtype=np.float32)
    end = len(joined)
    while parts:
        part = parts.pop()
        joined[end - len(part) : end] = part
        end -= len(part)
    return joined


def _without_repeats(words: list[str], vectors_VD: Vectors, path: Path) -> StaticVectors:
    first: dict[str, int] = {}
    repeats = [(row, word) for row, word in enumerate(words) if first.setdefault(word, row) != row]
    if repeats:
        row, word = repeats[0]
        warnings.warn(
            f"{path}: {len(repeats):,} of {len(words):,} words were there before (first: {word!r}, words "
            f"{first[word] + 1:,} and {row + 1:,}); the first vector of each is used",
            ElmokitWarning,
            stacklevel=4,
        )
        words, vectors_VD = list(first), vectors_VD[list(first.values())]
    try:
        return StaticVectors(words, vectors_VD)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read_zip(path: Path) -> Iterator[Line]:
    """Yield the lines of the only file in an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.filename.endswith("/")]
            if len(members) != 1:
                names = ", ".join(member.filename for member in members[:4])
                raise InputError(f"{path}: holds {len(members)} files ({names}); expected one, unpack the one you want")
            with archive.open(members[0]) as stream:
                lines = split_unpacked(cast(BinaryIO, stream), str(path), max_line_bytes())
                yield from decode_lines(lines, str(path))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}") from None
    except ZIP_DAMAGE as error:
        raise InputError(f"{path}: damaged, cut short or locked ({error}); get the file again") from error


def _first_not_finite(vectors_VD: Vectors) -> int | None:
    with np.errstate(invalid="ignore"):
        finite_V = np.isfinite(vectors_VD.sum(axis=1, dtype=np.float64))  # not a mask as large as the vectors
    return None if finite_V.all() else int(np.flatnonzero(~finite_V)[0])
