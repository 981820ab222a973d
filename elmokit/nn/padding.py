"""Conversion between padded batches and the packed rows that recurrences read.

Packed positions are time-major with the longest sequence first: step t is the next ``batch_sizes[t]`` rows, and no work
is done on padding. The backward direction reads the same rows with every sequence reversed.

Shapes: B sequences, T positions of the longest, N positions of all of them, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.model.packing import invert, plan_packing


@dataclass(frozen=True)
class PaddedPacking:
    """Packing of one padded batch."""

    batch_sizes: list[int]  # sequences active at every step
    shape_BT: torch.Size
    forward_N: Tensor  # padded position, of B x T, at every packed position
    turn_N: Tensor  # packed position that every packed position moves to when sequences are reversed

    def pack(self, inputs_BTD: Tensor) -> Tensor:
        """Return the packed positions of a padded batch, left to right, (N, D)."""
        if inputs_BTD.shape[:2] != self.shape_BT:
            raise InputError(f"sequences of shape {tuple(inputs_BTD.shape)} with a mask of {tuple(self.shape_BT)}")
        return inputs_BTD.flatten(0, 1).index_select(0, self.forward_N)

    def turn(self, packed_ND: Tensor) -> Tensor:
        """Return the rows with every sequence reversed."""
        return packed_ND.index_select(0, self.turn_N)

    def unpack(self, packed_ND: Tensor) -> Tensor:
        """Return packed rows, left to right, as a padded batch, (B, T, D), zero on padding."""
        flat_PD = packed_ND.new_zeros(self.shape_BT.numel(), packed_ND.shape[1])
        return flat_PD.index_copy(0, self.forward_N, packed_ND).view(*self.shape_BT, -1)


def plan_padded(mask_BT: Tensor) -> PaddedPacking:
    """Plan the packing of a padded batch."""
    lengths_B = sequence_lengths(mask_BT)
    plan = plan_packing(lengths_B.tolist(), mask_BT.device)
    ragged_N = mask_BT.flatten().nonzero().squeeze(1)
    return PaddedPacking(
        batch_sizes=plan.batch_sizes,
        shape_BT=mask_BT.shape,
        forward_N=ragged_N[plan.forward_N],
        turn_N=invert(plan.forward_N)[plan.backward_N],
    )


def sequence_lengths(mask_BT: Tensor) -> Tensor:
    """Return the length of every sequence, (B,); reject a mask with a gap or an empty sequence."""
    if mask_BT.ndim != 2 or mask_BT.dtype != torch.bool:
        raise InputError(
            f"a mask of {mask_BT.dtype} and shape {tuple(mask_BT.shape)}; expected torch.bool of (sequences, positions)"
        )
    if bool((mask_BT[:, 1:] & ~mask_BT[:, :-1]).any()):
        raise InputError("a mask is false before a sequence's last position; pad on the right only")
    lengths_B = mask_BT.sum(dim=1)
    if not bool(lengths_B.all()):
        empty = (lengths_B == 0).nonzero().squeeze(1).tolist()
        raise InputError(f"empty sequences at rows {empty} of a batch; leave them out")
    return lengths_B
