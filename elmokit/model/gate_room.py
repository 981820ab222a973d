"""Memory for gates that are computed ahead of the recurrence, without the whole-stack kernel."""

import threading
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CHUNK_BYTES = 32 * 2**20  # bounds memory for long sequences


class GateRoom(threading.local):
    """A thread's memory for the gates of a chunk, kept: given back and asked for again, it would leave holes."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, Tensor] = {}

    def of(self, like: Tensor, num_values: int) -> Tensor:
        """Room for so many values, to be written over by the thread's next call."""
        most_values = CHUNK_BYTES // like.element_size()
        # Not for one step of very many rows, nor on a GPU, where two streams of one thread would share it.
        if num_values > most_values or not like.is_cpu:
            return like.new_empty(num_values)
        kept = self._kept.get(like.dtype)
        if kept is None or kept.numel() < num_values:
            with torch.inference_mode(mode=False):  # what is made inside it may not be written outside
                kept = self._kept[like.dtype] = torch.empty(most_values, dtype=like.dtype, device="cpu")
        return kept[:num_values]


gate_room = GateRoom()


def chunks_of(batch_sizes: Sequence[int], *, bytes_a_row: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield runs of steps whose gates fit into CHUNK_BYTES: (first position, batch sizes)."""
    most_rows = max(1, CHUNK_BYTES // bytes_a_row)
    first, start, num_rows = 0, 0, 0
    for index, size in enumerate(batch_sizes):
        if num_rows and num_rows + size > most_rows:
            yield first, batch_sizes[start:index]
            first, start, num_rows = first + num_rows, index, 0
        num_rows += size
    if num_rows:
        yield first, batch_sizes[start:]
