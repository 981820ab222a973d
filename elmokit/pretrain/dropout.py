"""Dropout whose masks depend only on the seed, the step and the row, not on the rank or thread.

Shapes: T unrolled steps, R rows of the whole batch, r of this rank, N = T r positions, P width.
"""

import numpy as np
import torch
from torch import Tensor

LEVELS = 2**16


class RowDropout:
    """Dropout of one direction in one step; each call draws a new mask."""

    def __init__(self, rate: float, *, num_rows: int, rows: range, key: tuple[int, ...]) -> None:
        self.rate = rate
        self.num_rows = num_rows
        self.rows = rows
        self.random = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))

    def __call__(self, inputs_NP: Tensor) -> Tensor:
        """Return the inputs with a fraction ``rate`` of them zero, and the others scaled up to keep the mean."""
        if self.rate == 0:
            return inputs_NP
        num_steps = inputs_NP.shape[0] // len(self.rows)
        shape = (num_steps, self.num_rows, inputs_NP.shape[1])
        # Every rank draws the whole batch's mask, so that the number of ranks changes nothing.
        levels = np.frombuffer(self.random.bytes(2 * int(np.prod(shape))), dtype="<u2").reshape(shape)
        kept = levels[:, self.rows.start : self.rows.stop] >= round(self.rate * LEVELS)
        mask_NP = torch.from_numpy(kept.reshape(inputs_NP.shape)).to(inputs_NP.device)
        return inputs_NP * mask_NP * (1 / (1 - self.rate))
