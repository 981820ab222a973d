"""File formats of vectors: how a line is appended to the data files, and how they become the finished file.

Data files only grow (`elmokit.embed.partial`). Three of the formats have rows, one per token (or one per line, if
pooled), and the end of each line's rows. Lines are counted from 0 over all inputs.

safetensors  ``vectors`` (rows, [layers,] width) and ``offsets`` (lines + 1): line i is
             vectors[offsets[i]:offsets[i + 1]].
             ``tokens`` (bytes) and ``token_offsets`` (rows + 1): the token of row r is the UTF-8 text
             tokens[token_offsets[r]:token_offsets[r + 1]]. Metadata: ``model``, ``layers``, ``pool``, ``state``.
npy          the first two, offsets in a second file, NAME.offsets.npy
hdf5         one dataset per line, named by its number: ([layers,] tokens, width), as AllenNLP's ``elmo`` command wrote
jsonl        one object per line: {"line": 0, "tokens": […], "vectors": …}, shaped as in hdf5

Pooled, a line is one row, there are no offsets and no tokens, and in jsonl the key is ``vector``.

Shapes: L layers, T tokens, D width; L or T can be absent.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.atomic import atomic_file
from elmokit.errors import InputError

FormatName = Literal["safetensors", "hdf5", "npy", "jsonl"]
DTypeName = Literal["float16", "float32"]
Parts = Mapping[str, BinaryIO]

VECTORS, OFFSETS, LINES = "vectors", "offsets", "lines"
TOKENS, TOKEN_OFFSETS = "tokens", "token_offsets"
SAFETENSORS_HEADER, NPY_HEADER = 2048, 128  # bytes; both formats allow blanks at a header's end
OFFSET_BYTES = 8
DIGITS = {"float16": 5, "float32": 9}  # decimal digits that give the same number again
SAFETENSORS_TYPES = {"float16": "F16", "float32": "F32"}


@dataclass(frozen=True)
class Layout:
    """Type and shape of a row of vectors."""

    dtype: DTypeName
    num_layers: int | None
    """None if the layers are mixed or one is picked."""
    width: int
    pooled: bool

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return (self.width,) if self.num_layers is None else (self.num_layers, self.width)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.row_shape)) * self.numpy_dtype.itemsize

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The stored type, little-endian on every machine."""
        return np.dtype(self.dtype).newbyteorder("<")


@dataclass(frozen=True)
class EmbeddedLine:
    """A line and its vectors."""

    number: int
    tokens: list[str]
    vectors: NDArray[np.floating[Any]]  # (L, T, D), (T, D), (L, D) or (D,), as stored


@dataclass(frozen=True)
class Unfinished:
    """Complete data files that are not yet in their format."""

    folder: Path
    target: Path
    """Path of the finished file."""
    layout: Layout
    first_line: int
    num_lines: int
    sizes: Mapping[str, int]
    """Number of valid bytes per data file."""
    about: Mapping[str, str]
    """Metadata, for formats that can store it."""


@dataclass(frozen=True)
class FileFormat:
    """A kind of file, and the functions that write it."""

    name: FormatName
    suffixes: tuple[str, ...]
    dtype: DTypeName
    """The default type."""
    reserved: Mapping[str, int]
    """The data files, and the number of zero bytes at the start of each: space for a header, or the first offset."""
    write_line: Callable[[Parts, EmbeddedLine, Layout], None]
    finish: Callable[[Unfinished], Path]
    """Write the finished file into the folder, and files beside the target; can be repeated after a crash."""
    beside: Callable[[Path], list[Path]] = lambda _: []
    """Names of files beside the target."""


def find_format(output: Path, name: FormatName | None) -> FileFormat:
    """Return the format of a given name, or the one of the output's suffix."""
    if name is not None:
        if name not in FORMATS:
            raise InputError(f"format {name!r}; expected one of {', '.join(FORMATS)}")
        return FORMATS[name]
    for file_format in FORMATS.values():
        if output.suffix.lower() in file_format.suffixes:
            return file_format
    known = ", ".join(suffix for file_format in FORMATS.values() for suffix in file_format.suffixes)
    raise InputError(
        f"{output}: the suffix {output.suffix!r} is no known format; use one of {known}, or name the format"
    )


def to_stored(vectors: NDArray[np.float32], layout: Layout) -> NDArray[np.floating[Any]]:
    """Return the vectors in the stored type; values beyond its range raise instead of becoming infinite."""
    with np.errstate(over="raise"):
        try:
            return vectors.astype(layout.numpy_dtype, copy=False)
        except FloatingPointError:
            largest = float(np.abs(vectors).max())
            raise InputError(f"a vector has the value {largest:g}, too large for {layout.dtype}; use float32") from None


def _write_rows(parts: Parts, line: EmbeddedLine, layout: Layout, *, header_bytes: int) -> None:
    vectors = line.vectors
    if layout.num_layers is not None and not layout.pooled:
        vectors = vectors.swapaxes(0, 1)  # a token's layers side by side, so that a line is one piece
    parts[VECTORS].write(vectors.tobytes())
    num_rows = (parts[VECTORS].tell() - header_bytes) // layout.row_bytes
    parts[OFFSETS].write(num_rows.to_bytes(OFFSET_BYTES, "little"))


def _write_rows_and_tokens(parts: Parts, line: EmbeddedLine, layout: Layout) -> None:
    _write_rows(parts, line, layout, header_bytes=SAFETENSORS_HEADER)
    if layout.pooled:
        return
    for token in line.tokens:
        parts[TOKENS].write(token.encode("utf-8", "replace"))
        parts[TOKEN_OFFSETS].write(parts[TOKENS].tell().to_bytes(OFFSET_BYTES, "little"))


def _write_json_line(parts: Parts, line: EmbeddedLine, layout: Layout) -> None:
    head = json.dumps({"line": line.number, "tokens": line.tokens}, ensure_ascii=False).removesuffix("}")
    key = "vector" if layout.pooled else "vectors"
    text = f'{head}, "{key}": {_json_array(line.vectors, DIGITS[layout.dtype])}}}\n'
    # A lone surrogate has no UTF-8 form. No file contains one, only strings that a program makes.
    parts[LINES].write(text.encode("utf-8"))


def _json_array(array: NDArray[np.floating[Any]], digits: int) -> str:
    if array.ndim > 1:
        return "[" + ", ".join(_json_array(part, digits) for part in array) + "]"
    return "[" + ", ".join(map(f"%.{digits}g".__mod__, array.tolist())) + "]"


def _finish_safetensors(work: Unfinished) -> Path:
    start, vectors_bytes = 0, work.sizes[VECTORS] - SAFETENSORS_HEADER
    num_rows = vectors_bytes // work.layout.row_bytes
    tensors: dict[str, tuple[str, list[int], int]] = {
        VECTORS: (SAFETENSORS_TYPES[work.layout.dtype], [num_rows, *work.layout.row_shape], vectors_bytes)
    }
    if not work.layout.pooled:
        tensors[OFFSETS] = "I64", [work.num_lines + 1], work.sizes[OFFSETS]
        tensors[TOKEN_OFFSETS] = "I64", [num_rows + 1], work.sizes[TOKEN_OFFSETS]
        tensors[TOKENS] = "U8", [work.sizes[TOKENS]], work.sizes[TOKENS]
    header: dict[str, Any] = {"__metadata__": dict(work.about)}
    path = work.folder / VECTORS
    with path.open("r+b") as file:
        file.truncate(work.sizes[VECTORS])
        file.seek(0, 2)
        for name, (dtype, shape, num_bytes) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + num_bytes]}
            start += num_bytes
            if name != VECTORS:
                _append(work, name, file)
        text = json.dumps(header, ensure_ascii=False).encode("utf-8", "replace")
        room = SAFETENSORS_HEADER - 8
        assert len(text) <= room
        file.seek(0)
        file.write(room.to_bytes(8, "little") + text.ljust(room))
    return path


def _finish_npy(work: Unfinished) -> Path:
    if not work.layout.pooled:
        with atomic_file(offsets_path(work.target)) as temporary, temporary.open("wb") as file:
            file.write(_npy_header("<i8", (work.num_lines + 1,)))
            _append(work, OFFSETS, file)
    path = work.folder / VECTORS
    num_rows = (work.sizes[VECTORS] - NPY_HEADER) // work.layout.row_bytes
    with path.open("r+b") as file:
        file.write(_npy_header(work.layout.numpy_dtype.str, (num_rows, *work.layout.row_shape)))
    return path


def _npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return an .npy header of version 1.0 with a fixed length, so that it can be written last."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    start = b"\x93NUMPY\x01\x00" + (NPY_HEADER - 10).to_bytes(2, "little")
    return (start + text).ljust(NPY_HEADER - 1) + b"\n"


def offsets_path(output: Path) -> Path:
    """Return the path of the offsets of an .npy file of vectors."""
    return output.with_name(f"{output.stem}.offsets.npy")


def _append(work: Unfinished, name: str, file: BinaryIO) -> None:
    with (work.folder / name).open("rb") as part:
        shutil.copyfileobj(part, file)


def _finish_hdf5(work: Unfinished) -> Path:
    import h5py

    path = work.folder / "finished.hdf5"
    # Through Python's file a full disk is an OSError; HDF5's own driver notices late, and then crashes.
    with path.open("wb+") as stream, h5py.File(stream, "w") as file:
        for number, vectors in _stored_lines(work):
            file.create_dataset(str(number), data=vectors, track_times=False)
    return path


def _stored_lines(work: Unfinished) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield the stored vectors line by line, in the shape of `EmbeddedLine.vectors`."""
    layout = work.layout
    with (work.folder / VECTORS).open("rb") as vectors, (work.folder / OFFSETS).open("rb") as offsets:
        start = int.from_bytes(offsets.read(OFFSET_BYTES), "little")
        for number in range(work.first_line, work.first_line + work.num_lines):
            end = int.from_bytes(offsets.read(OFFSET_BYTES), "little")
            content = vectors.read((end - start) * layout.row_bytes)
            rows = np.frombuffer(content, dtype=layout.numpy_dtype).reshape(end - start, *layout.row_shape)
            if layout.pooled:
                yield number, rows[0]
            else:
                yield number, rows if layout.num_layers is None else rows.swapaxes(0, 1)
            start = end


def _finish_jsonl(work: Unfinished) -> Path:
    return work.folder / LINES


FORMATS: dict[str, FileFormat] = {
    file_format.name: file_format
    for file_format in (
        FileFormat(
            name="safetensors",
            suffixes=(".safetensors",),
            dtype="float16",
            reserved={VECTORS: SAFETENSORS_HEADER, OFFSETS: OFFSET_BYTES, TOKENS: 0, TOKEN_OFFSETS: OFFSET_BYTES},
            write_line=_write_rows_and_tokens,
            finish=_finish_safetensors,
        ),
        FileFormat(
            name="hdf5",
            suffixes=(".hdf5", ".h5"),
            dtype="float32",
            reserved={VECTORS: 0, OFFSETS: OFFSET_BYTES},
            write_line=partial(_write_rows, header_bytes=0),
            finish=_finish_hdf5,
        ),
        FileFormat(
            name="npy",
            suffixes=(".npy",),
            dtype="float16",
            reserved={VECTORS: NPY_HEADER, OFFSETS: OFFSET_BYTES},
            write_line=partial(_write_rows, header_bytes=NPY_HEADER),
            finish=_finish_npy,
            beside=lambda target: [offsets_path(target)],
        ),
        FileFormat(
            name="jsonl",
            suffixes=(".jsonl",),
            dtype="float32",
            reserved={LINES: 0},
            write_line=_write_json_line,
            finish=_finish_jsonl,
        ),
    )
}
