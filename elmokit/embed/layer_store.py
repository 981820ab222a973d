"""The layers that a frozen biLM gives token sequences, computed once and kept on disk for all runs that read them.

Every biLM has a folder of its own, named by the fingerprint of all that vectors depend on:

layers.f16   the sequences' layers, float16, (L, T, D) each, one after the other; it only grows
index        which sequences these are: blocks of records (digest of the tokens, place in layers.f16)
lock         held by the process that adds

Layers are flushed to the disk before the block that tells of them, and a block has a checksum. So at any moment the
index tells of what is surely there. What is torn, because a process or the machine died, never happened: readers pass
over it, and the next one to add cuts it off.

Shapes: L layers, T tokens of a sequence, N of several, D width.
"""

import hashlib
import json
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from elmokit.atomic import explained
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Vectors
from elmokit.errors import InputError
from elmokit.locking import locked
from elmokit.text.grouping import group_by_size

LAYERS, INDEX = "layers.f16", "index"
BLOCK = struct.Struct("<II")  # number of records, checksum of their bytes
RECORD = np.dtype([("digest", "V16"), ("start", "<i8"), ("num_tokens", "<i8")])  # start: in float16 numbers
LARGEST = float(np.finfo(np.float16).max)

# Added together, so that no more than that is lost with a process: so many sequences, or fewer with so many bytes.
MOST_SEQUENCES, MOST_BYTES = 4096, 96 * 2**20

Tokens = Sequence[str]
Progress = Callable[[int, int], None]
"""(tokens done, tokens in all)"""


class LayerStore:
    """The layers of token sequences under one biLM. Many processes can read, and one at a time can add."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        self.folder = folder
        self.num_layers, self.width = embedder.num_layers, embedder.width
        self._embedder = embedder
        self._load()

    @classmethod
    def open(cls, root: str | Path, embedder: Embedder) -> "LayerStore":
        """Open the store of this biLM below ``root``, or begin one."""
        if embedder.state == "carry":
            raise InputError("state 'carry' gives a sequence other vectors every time; keep those of 'reset' or 'warm'")
        folder = Path(root) / embedder.fingerprint()
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, embedder)

    def __len__(self) -> int:
        return len(self._kept.starts)

    def __contains__(self, tokens: Tokens) -> bool:
        return _digest(tokens) in self._kept.starts

    def add(self, sequences: Iterable[Tokens], *, progress: Progress | None = None) -> None:
        """Compute and keep the layers of those that are not here yet. A kill loses no more than the last few."""
        missing = {_digest(tokens): tokens for tokens in sequences}
        if missing.keys() <= self._kept.starts.keys():
            return
        with locked(self.folder, work="adding to it"), explained(self.folder):
            self._load()  # another process may have added since
            missing = {digest: tokens for digest, tokens in missing.items() if digest not in self._kept.starts}
            try:
                self._compute(missing, progress)
            finally:
                self._load()

    def join(self, sequences: Sequence[Tokens]) -> Tensor:
        """Return the layers of sequences one after the other, (L, N, D) float32."""
        joined_LND = torch.empty(self.num_layers, sum(map(len, sequences)), self.width)
        for layers_LTD, tokens in zip(
            joined_LND.split([len(tokens) for tokens in sequences], dim=1), sequences, strict=True
        ):
            start = self._kept.starts.get(_digest(tokens))
            if start is None:
                raise InputError(f"{self.folder}: has no layers of {_quote(tokens)}; add the sequence first")
            kept_LTD = self._numbers[start : start + len(tokens) * self.num_layers * self.width]
            layers_LTD.copy_(kept_LTD.view(layers_LTD.shape))
        return joined_LND

    def _load(self) -> None:
        """Take up what the index surely tells of."""
        self._kept = _read_kept(self.folder, self.num_layers * self.width)
        self._numbers = _map(self.folder / LAYERS, self._kept.num_numbers)

    def _compute(self, missing: dict[bytes, Tokens], progress: Progress | None) -> None:
        num_tokens, done = sum(map(len, missing.values())), 0
        with (
            _open_end(self.folder / LAYERS, 2 * self._kept.num_numbers) as layers_file,
            _open_end(self.folder / INDEX, self._kept.index_bytes) as index_file,
        ):
            for window in self._windows(missing):
                records = np.empty(len(window), dtype=RECORD)
                digests, sequences = zip(*window, strict=True)
                for place, (number, layers_LTD) in enumerate(self._embedder.iter_unordered(sequences)):
                    tokens = sequences[number]
                    records[place] = (digests[number], layers_file.tell() // 2, len(tokens))
                    layers_file.write(_halve(layers_LTD, tokens))
                    done += len(tokens)
                    if progress is not None:
                        progress(done, num_tokens)
                _flush(layers_file)  # first: the index tells only of what is there
                content = records.tobytes()
                index_file.write(BLOCK.pack(len(records), zlib.crc32(content)) + content)
                _flush(index_file)

    def _windows(self, missing: dict[bytes, Tokens]) -> Iterator[list[tuple[bytes, Tokens]]]:
        most_tokens = MOST_BYTES // (2 * self.num_layers * self.width)
        return group_by_size(
            missing.items(), size_of=lambda item: len(item[1]), enough=most_tokens, max_items=MOST_SEQUENCES
        )


@dataclass(frozen=True)
class _Kept:
    """The part of a store that is whole."""

    starts: dict[bytes, int]
    num_numbers: int
    index_bytes: int


def _read_kept(folder: Path, numbers_a_token: int) -> _Kept:
    """Read the index up to the first block that is not whole, or tells of layers that are not there."""
    try:
        content = (folder / INDEX).read_bytes()
        most_numbers = (folder / LAYERS).stat().st_size // 2
    except FileNotFoundError:
        content, most_numbers = b"", 0
    starts: dict[bytes, int] = {}
    num_numbers = index_bytes = 0
    while index_bytes + BLOCK.size <= len(content):
        num_records, checksum = BLOCK.unpack_from(content, index_bytes)
        block_end = index_bytes + BLOCK.size + num_records * RECORD.itemsize
        block = content[index_bytes + BLOCK.size : block_end]
        # Zeros where there was never anything to write are no block either.
        if not num_records or block_end > len(content) or zlib.crc32(block) != checksum:
            break
        records = np.frombuffer(block, dtype=RECORD)
        block_numbers = int((records["start"] + records["num_tokens"] * numbers_a_token).max())
        if block_numbers > most_numbers:
            break
        starts.update(zip(records["digest"].tolist(), records["start"].tolist(), strict=True))
        num_numbers, index_bytes = block_numbers, block_end
    return _Kept(starts, num_numbers, index_bytes)


def _map(path: Path, num_numbers: int) -> Tensor:
    """Map the numbers of a file into memory."""
    if not num_numbers:
        return torch.empty(0, dtype=torch.float16)  # nothing cannot be mapped
    mapped = np.memmap(path, dtype="<f2", mode="r", shape=(num_numbers,))
    with warnings.catch_warnings():
        # Torch has no tensors that cannot be written to. Nobody writes to this one, nor hands it out.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(mapped)


@contextmanager
def _open_end(path: Path, num_bytes: int) -> Iterator[BinaryIO]:
    """Open a file to write on after its first bytes; whatever follows them is cut off."""
    path.touch()
    with path.open("r+b") as file:
        file.truncate(num_bytes)
        file.seek(num_bytes)
        yield file


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _halve(layers_LTD: Vectors, tokens: Tokens) -> bytes:
    highest = np.abs(layers_LTD).max(initial=0)
    if not highest <= LARGEST:  # nor is NaN
        raise InputError(
            f"the biLM gives {_quote(tokens)} a value of {highest}; float16 ends at {LARGEST:.0f}, and a sound biLM "
            "stays far below it: is this one damaged?"
        )
    return layers_LTD.astype("<f2").tobytes()


def _digest(tokens: Tokens) -> bytes:
    # JSON tells where a token ends, whatever is in it.
    return hashlib.blake2b(json.dumps(list(tokens)).encode(), digest_size=16).digest()


def _quote(tokens: Tokens) -> str:
    text = " ".join(tokens)
    return repr(text if len(text) <= 40 else text[:40] + "…")
