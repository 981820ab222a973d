"""Layers of a frozen biLM or other encoder, computed once per token sequence and cached on disk for all runs.

Each encoder has its own folder, named by the fingerprint of everything that its vectors depend on:

layers.f16   the layers of all sequences, float16, (L, T, D) each, concatenated; the file only grows
index        blocks of records: digest of a sequence's tokens, position in layers.f16, checksum of its layers
lock         held by the process that adds sequences

Layers are flushed to disk before the index block that lists them, and each block has a checksum. The index therefore
lists only layers that are on disk. If a process dies while it writes, readers ignore the incomplete block, and the next
process that adds sequences truncates it. A process verifies the checksum of a sequence when it first reads its layers.

Shapes: L layers, T tokens of one sequence, N tokens of several sequences, D width.
"""

import hashlib
import json
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from elmokit.atomic import explained
from elmokit.embed.picking import Vectors
from elmokit.encoders.layer_sources import LayerSource
from elmokit.errors import ElmokitWarning, InputError
from elmokit.locking import locked
from elmokit.plain_file import open_at
from elmokit.text.grouping import group_by_size

LAYERS, INDEX = "layers.f16", "index"
BLOCK = struct.Struct("<II")  # number of records, checksum of their bytes
OLD_RECORD = np.dtype([("digest", "V16"), ("start", "<i8"), ("num_tokens", "<i8")])  # start: in float16 numbers
RECORD = np.dtype([*OLD_RECORD.descr, ("checksum", "<u4")])
HAS_CHECKSUMS = 1 << 31  # in the number of records; blocks of older versions have none
LARGEST = float(np.finfo(np.float16).max)

# Size of a block. A process that is killed loses at most one.
MAX_SEQUENCES, MAX_BYTES = 4096, 96 * 2**20

Tokens = Sequence[str]
Progress = Callable[[int, int], None]
"""Callback that receives the number of embedded tokens and their total."""


class LayerStore:
    """Cached layers of one source. Many processes can read; one at a time can add."""

    def __init__(self, folder: Path, source: LayerSource) -> None:
        self.folder = folder
        self.num_layers, self.width = source.num_layers, source.width
        self._source = source
        self._verified: set[bytes] = set()
        self._load()
        if len(self._cached.checksums) < len(self):
            warnings.warn(
                f"{folder}: {len(self) - len(self._cached.checksums):,} cached sequences are of an older version and "
                "have no checksums, so that damage can go unnoticed; delete the folder to compute them again",
                ElmokitWarning,
                stacklevel=2,
            )

    @classmethod
    def open(cls, root: str | Path, source: LayerSource) -> "LayerStore":
        """Open the store of this source below ``root``; create it if absent."""
        if source.state == "carry":
            raise InputError(
                "state is 'carry', under which vectors depend on earlier sentences; cache layers with 'reset' or 'warm'"
            )
        folder = Path(root) / source.fingerprint()
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, source)

    def __len__(self) -> int:
        return len(self._cached.starts)

    def __contains__(self, tokens: Tokens) -> bool:
        return _digest(tokens) in self._cached.starts

    def add(self, sequences: Iterable[Tokens], *, progress: Progress | None = None) -> None:
        """Compute and cache the layers of sequences that are missing. A killed process loses at most one block."""
        missing = {_digest(tokens): tokens for tokens in sequences}
        if missing.keys() <= self._cached.starts.keys():
            return
        with locked(self.folder, work="adding to it"), explained(self.folder):
            self._load()  # another process may have added since
            missing = {digest: tokens for digest, tokens in missing.items() if digest not in self._cached.starts}
            try:
                self._compute(missing, progress)
            finally:
                self._load()

    def join(self, sequences: Sequence[Tokens]) -> Tensor:
        """Return the concatenated layers of cached sequences, (L, N, D) float32."""
        joined_LND = torch.empty(self.num_layers, sum(map(len, sequences)), self.width)
        for layers_LTD, tokens in zip(
            joined_LND.split([len(tokens) for tokens in sequences], dim=1), sequences, strict=True
        ):
            layers_LTD.copy_(self._read(tokens).view(layers_LTD.shape))
        return joined_LND

    def _read(self, tokens: Tokens) -> Tensor:
        """Return the numbers of a cached sequence. They are checked once per process."""
        digest = _digest(tokens)
        start = self._cached.starts.get(digest)
        if start is None:
            raise InputError(f"{self.folder}: has no layers of {_quote(tokens)}; add the sequence first")
        num_numbers = len(tokens) * self.num_layers * self.width
        numbers = self._numbers[start : start + num_numbers]
        if digest not in self._verified:
            checksum = self._cached.checksums.get(digest)
            same = checksum is None or zlib.crc32(numbers.numpy().data) == checksum
            if not same or len(numbers) != num_numbers:
                raise InputError(
                    f"{self.folder / LAYERS}: the layers of {_quote(tokens)} are damaged; delete {self.folder}, and "
                    "they are computed again"
                )
            self._verified.add(digest)
        return numbers

    def _load(self) -> None:
        """Read the index and map the layers that it lists."""
        self._cached = _read_index(self.folder, self.num_layers * self.width)
        self._numbers = _map(self.folder / LAYERS, self._cached.num_numbers)
        self._verified.clear()

    def _compute(self, missing: dict[bytes, Tokens], progress: Progress | None) -> None:
        num_tokens, done = sum(map(len, missing.values())), 0
        with (
            open_at(self.folder / LAYERS, 2 * self._cached.num_numbers) as layers_file,
            open_at(self.folder / INDEX, self._cached.index_bytes) as index_file,
        ):
            for window in self._windows(missing):
                records = np.empty(len(window), dtype=RECORD)
                digests, sequences = zip(*window, strict=True)
                for place, (number, layers_LTD) in enumerate(self._source.iter_unordered(sequences)):
                    tokens = sequences[number]
                    numbers = _to_float16(layers_LTD, tokens)
                    records[place] = (digests[number], layers_file.tell() // 2, len(tokens), zlib.crc32(numbers))
                    layers_file.write(numbers)
                    done += len(tokens)
                    if progress is not None:
                        progress(done, num_tokens)
                _flush(layers_file)  # first: the index lists only what is on disk
                content = records.tobytes()
                index_file.write(BLOCK.pack(len(records) | HAS_CHECKSUMS, zlib.crc32(content)) + content)
                _flush(index_file)

    def _windows(self, missing: dict[bytes, Tokens]) -> Iterator[list[tuple[bytes, Tokens]]]:
        max_tokens = MAX_BYTES // (2 * self.num_layers * self.width)
        return group_by_size(
            missing.items(), size_of=lambda item: len(item[1]), enough=max_tokens, max_items=MAX_SEQUENCES
        )


@dataclass(frozen=True)
class _Cached:
    """Contents of a store, up to the first incomplete block."""

    starts: dict[bytes, int]
    """Position in the layers file by digest, counted in float16 numbers."""
    checksums: dict[bytes, int]
    """CRC-32 of the layers by digest; entries of older versions have none."""
    num_numbers: int
    index_bytes: int


def _read_index(folder: Path, numbers_per_token: int) -> _Cached:
    """Read the index up to the first block that is incomplete or lists layers that are not on disk."""
    try:
        content = (folder / INDEX).read_bytes()
        max_numbers = (folder / LAYERS).stat().st_size // 2
    except FileNotFoundError:
        content, max_numbers = b"", 0
    starts: dict[bytes, int] = {}
    checksums: dict[bytes, int] = {}
    num_numbers = index_bytes = 0
    while index_bytes + BLOCK.size <= len(content):
        header, checksum = BLOCK.unpack_from(content, index_bytes)
        kind, num_records = (RECORD if header & HAS_CHECKSUMS else OLD_RECORD), header & ~HAS_CHECKSUMS
        block_end = index_bytes + BLOCK.size + num_records * kind.itemsize
        block = content[index_bytes + BLOCK.size : block_end]
        # A crash of the machine can leave zeros; their checksum would be right.
        if not num_records or block_end > len(content) or zlib.crc32(block) != checksum:
            break
        records = np.frombuffer(block, dtype=kind)
        if records["num_tokens"].max() > max_numbers:
            break
        block_numbers = int((records["start"] + records["num_tokens"] * numbers_per_token).max())
        # A forged index could point anywhere.
        if block_numbers > max_numbers or records["start"].min() < 0 or records["num_tokens"].min() < 0:
            break
        digests = records["digest"].tolist()
        starts.update(zip(digests, records["start"].tolist(), strict=True))
        if kind is RECORD:
            checksums.update(zip(digests, records["checksum"].tolist(), strict=True))
        num_numbers, index_bytes = block_numbers, block_end
    return _Cached(starts, checksums, num_numbers, index_bytes)


def _map(path: Path, num_numbers: int) -> Tensor:
    """Map the numbers of a file into memory."""
    if not num_numbers:
        return torch.empty(0, dtype=torch.float16)  # an empty file cannot be mapped
    mapped = np.memmap(path, dtype="<f2", mode="r", shape=(num_numbers,))
    with warnings.catch_warnings():
        # Torch has no read-only tensors. This one is private and never written to.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(mapped)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _to_float16(layers_LTD: Vectors, tokens: Tokens) -> bytes:
    highest = np.abs(layers_LTD).max(initial=0)
    if not highest <= LARGEST:  # also rejects NaN
        raise InputError(
            f"the layers of {_quote(tokens)} contain {highest}; expected at most {LARGEST:.0f}, the largest float16. "
            "Are the weights damaged?"
        )
    return layers_LTD.astype("<f2").tobytes()


def _digest(tokens: Tokens) -> bytes:
    # JSON separates tokens unambiguously, whatever characters they contain.
    return hashlib.blake2b(json.dumps(list(tokens)).encode(), digest_size=16).digest()


def _quote(tokens: Tokens) -> str:
    text = " ".join(tokens)
    return repr(text if len(text) <= 40 else text[:40] + "…")
