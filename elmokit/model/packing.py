"""Indices of the positions of sentences that are packed for an LSTM.

Sentences come ragged: all their positions in one row of N, sentence after sentence. Packed, the same
positions are time-major with the longest sentence first, so that step t is the next ``batch_sizes[t]`` of them.

Shapes: B sentences, N positions of all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The plan for one batch; every index tensor is a permutation."""

    batch_sizes: list[int]  # sentences still going at every step
    rows_B: Tensor  # sentence at every packed row
    forward_N: Tensor  # ragged position at every packed position, read left to right
    backward_N: Tensor  # the same, read right to left


def plan_packing(lengths: Sequence[int], device: torch.device) -> Packing:
    """Plan the packing of sentences of these lengths."""
    # In NumPy: some of these operations start OpenMP threads in torch, which then wait busily beside the LSTMs.
    lengths_B = np.asarray(lengths, dtype=np.int64)
    rows_B = np.argsort(-lengths_B, kind="stable")
    sorted_B = lengths_B[rows_B]
    first_B = (np.cumsum(lengths_B) - lengths_B)[rows_B]
    step_T = np.arange(sorted_B[0] if len(lengths) else 0)
    # Rows are sorted, so those longer than t are the first ones: count them by searching the lengths.
    batch_sizes_T = np.searchsorted(-sorted_B, -step_T)
    step_N = np.repeat(step_T, batch_sizes_T)
    row_N = np.arange(len(step_N)) - np.repeat(np.cumsum(batch_sizes_T) - batch_sizes_T, batch_sizes_T)
    forward_N = first_B[row_N] + step_N
    backward_N = first_B[row_N] + sorted_B[row_N] - 1 - step_N
    rows, forward, backward = (torch.from_numpy(part).to(device) for part in (rows_B, forward_N, backward_N))
    return Packing(batch_sizes_T.tolist(), rows, forward, backward)


def invert(permutation_N: Tensor) -> Tensor:
    """Return the inverse of a permutation."""
    inverse_N = torch.empty_like(permutation_N)
    inverse_N[permutation_N] = torch.arange(len(permutation_N), device=permutation_N.device)
    return inverse_N


def steps_of(batch_sizes: Sequence[int]) -> Iterator[slice]:
    """Yield the packed positions of every step."""
    first = 0
    for size in batch_sizes:
        yield slice(first, first + size)
        first += size
