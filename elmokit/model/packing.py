"""Indices of the positions of sentences that are packed for an LSTM.

Sentences come ragged: all their positions in one row of N, sentence after sentence. Packed, the same
positions are time-major with the longest sentence first, so that step t is the next ``batch_sizes[t]`` of them.

Shapes: B sentences, N positions of all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    lengths_B = torch.tensor(lengths, dtype=torch.long, device="cpu")  # small, and its numbers are looked at
    rows_B = torch.argsort(lengths_B, descending=True, stable=True)
    sorted_B = lengths_B[rows_B]
    first_B = (torch.cumsum(lengths_B, 0) - lengths_B)[rows_B]
    num_steps = int(sorted_B[0]) if len(lengths) else 0
    # Not by repeat_interleave: it starts OpenMP threads for any size, which then wait busily beside the LSTMs.
    is_alive_TB = torch.arange(num_steps, device="cpu")[:, None] < sorted_B
    step_N, row_N = is_alive_TB.nonzero(as_tuple=True)
    forward_N = first_B[row_N] + step_N
    backward_N = first_B[row_N] + sorted_B[row_N] - 1 - step_N
    batch_sizes = is_alive_TB.sum(dim=1).tolist()
    return Packing(batch_sizes, rows_B.to(device), forward_N.to(device), backward_N.to(device))


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
