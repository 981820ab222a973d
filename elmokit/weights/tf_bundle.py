"""Read tensors of a TensorFlow checkpoint without TensorFlow. Its files may be damaged or hostile.

A checkpoint is ``X.index``, a sorted table in LevelDB's format, and ``X.data-00000-of-00001`` and so on with the bare
numbers. The table's first value describes the files; every other value says where a tensor is: its type, shape, file,
place and checksum, as protocol buffers. All sizes are checked before memory is asked for, all checksums are verified.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import WeightsError
from elmokit.weights.crc32c import crc32c, unmask
from elmokit.weights.saved import Shape, all_finite, list_names

FOOTER = 48
MAGIC = 0xDB4775248B80FB57
TRAILER = 5  # compression type and checksum after every block
MAX_INDEX_BYTES = 2**26
DT_FLOAT, FLOAT_BYTES = 1, 4
FIXED64 = 1  # wire type of protocol buffers

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Entry:
    """The place of one tensor."""

    dtype: int
    shape: Shape
    shard: int
    offset: int
    num_bytes: int
    checksum: int
    has_slices: bool


@dataclass(frozen=True)
class Bundle:
    """A checkpoint whose index was read."""

    prefix: Path
    num_shards: int
    entries: dict[str, Entry]

    def read(self, expected: Mapping[str, Shape]) -> dict[str, Array]:
        """Read the float32 tensors that ``expected`` names, of exactly these shapes and finite."""
        if missing := [name for name in expected if name not in self.entries]:
            raise WeightsError(
                f"{self.prefix}.index: has no {list_names(missing)}; are options.json and the checkpoint of one model?"
            )
        for name, shape in expected.items():
            self._check(name, shape)
        return {name: self._read(name) for name in expected}

    def _check(self, name: str, shape: Shape) -> None:
        entry, where = self.entries[name], f"{self.prefix}.index: {name}"
        if entry.has_slices:
            raise WeightsError(f"{where}: is stored in slices (a partitioned variable); save the model unpartitioned")
        if entry.dtype != DT_FLOAT:
            raise WeightsError(f"{where}: has TensorFlow type {entry.dtype}; expected 1, float32")
        if entry.shape != shape:
            raise WeightsError(f"{where}: has shape {entry.shape}; the options say {shape}, are both of one model?")
        if entry.num_bytes != FLOAT_BYTES * prod(shape) or not 0 <= entry.shard < self.num_shards:
            raise WeightsError(f"{where}: its place in the data files cannot be; copy or download the checkpoint again")

    def _read(self, name: str) -> Array:
        entry = self.entries[name]
        path = Path(f"{self.prefix}.data-{entry.shard:05d}-of-{self.num_shards:05d}")
        try:
            with path.open("rb") as file:
                file.seek(entry.offset)
                array = np.fromfile(file, dtype="<f4", count=entry.num_bytes // FLOAT_BYTES)
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read: {error.strerror}; a checkpoint needs all its files") from error
        if array.nbytes != entry.num_bytes:
            raise WeightsError(f"{path}: ends inside {name}; the file was cut short, copy or download it again")
        if crc32c(array.view(np.uint8)) != unmask(entry.checksum):
            raise WeightsError(f"{path}: {name} has another checksum than the index says; copy or download it again")
        if not all_finite(array):
            raise WeightsError(f"{path}: {name} holds NaN or infinite values; the model was damaged in training")
        return array.reshape(entry.shape)


def open_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint; ``prefix`` is the path that its files' names begin with."""
    path = Path(f"{prefix}.index")
    try:
        if path.stat().st_size > MAX_INDEX_BYTES:
            raise WeightsError(f"{path}: is larger than {MAX_INDEX_BYTES:,} bytes; expected the index of a checkpoint")
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        values = dict(_table_values(content))
        header = dict(_fields(values.pop(b"")))
        if header.get(2, 0) != 0:
            raise WeightsError(f"{path}: was written on a big-endian machine; convert it there with dump_weights.py")
        num_shards = _as_int(header.get(1, 1))
        entries = {key.decode(): _entry(value) for key, value in values.items()}
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise WeightsError(
            f"{path}: not the index of a TensorFlow checkpoint, or a damaged one ({error}); copy or download it again"
        ) from error
    return Bundle(prefix, num_shards, entries)


# The table


def _table_values(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in LevelDB's format."""
    if len(content) < FOOTER or struct.unpack("<Q", content[-8:])[0] != MAGIC:
        raise ValueError("it has no table's end")
    footer = content[-FOOTER:]
    place = 0
    for _ in range(2):  # the list of meta blocks, which is empty
        _, place = _varint(footer, place)
    index_offset, place = _varint(footer, place)
    index_size, _ = _varint(footer, place)
    for _, handle in _block_values(_block(content, index_offset, index_size)):
        offset, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        yield from _block_values(_block(content, offset, size))


def _block(content: bytes, offset: int, size: int) -> bytes:
    """Return a block after a check of its checksum."""
    end = offset + size + TRAILER
    if end > len(content):
        raise ValueError("a block reaches beyond the file")
    if content[offset + size] != 0:
        raise ValueError("a block is compressed, which TensorFlow's own checkpoints never are")
    (stored,) = struct.unpack("<I", content[end - 4 : end])
    if crc32c(content[offset : offset + size + 1]) != unmask(stored):
        raise ValueError("a block has a wrong checksum")
    return content[offset : offset + size]


def _block_values(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; a key leaves out what it shares with the one before it."""
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (num_restarts + 1)
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        num_new, place = _varint(block, place)
        size, place = _varint(block, place)
        if shared > len(key) or place + num_new + size > end:
            raise ValueError("an entry reaches beyond its block")
        key = key[:shared] + block[place : place + num_new]
        place += num_new
        yield key, block[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number stored in groups of seven bits, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


# Protocol buffers


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of every field."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        match tag & 7:
            case 0:
                value, place = _varint(message, place)
                yield tag >> 3, value
            case 2:
                size, place = _varint(message, place)
                yield tag >> 3, message[place : place + size]
                place += size
            case 1 | 5 as wire:
                size = 8 if wire == FIXED64 else 4
                yield tag >> 3, int.from_bytes(message[place : place + size], "little")
                place += size
            case other:
                raise ValueError(f"a field has wire type {other}")


def _entry(message: bytes) -> Entry:
    fields: dict[int, int | bytes] = {}
    has_slices = False
    for number, value in _fields(message):
        has_slices |= number == 7
        fields[number] = value
    numbers = {number: _as_int(value) for number, value in fields.items() if number in (1, 3, 4, 5, 6)}
    return Entry(
        dtype=numbers.get(1, 0),
        shape=_shape(fields.get(2, b"")),
        shard=numbers.get(3, 0),
        offset=numbers.get(4, 0),
        num_bytes=numbers.get(5, 0),
        checksum=numbers.get(6, 0),
        has_slices=has_slices,
    )


def _shape(message: int | bytes) -> Shape:
    if not isinstance(message, bytes):
        raise ValueError("a shape is a number")
    sizes = []
    for number, dim in _fields(message):
        if number == 2 and isinstance(dim, bytes):
            sizes.append(next((_as_int(size) for field, size in _fields(dim) if field == 1), 0))
    return tuple(sizes)


def _as_int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a number is stored as text")
    return value
