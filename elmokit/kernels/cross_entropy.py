"""Cross-entropy against shared candidates with its gradients, in one C call (``cross_entropy.c``).

Shapes: N positions, P width, K candidates.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.packed import PANEL
from elmokit.kernels.panels import (
    FP32,
    Items,
    call_job,
    job_type,
    num_panels,
    pack_columns,
    pack_rows,
    repack,
    room,
    tiles_room,
)

ROWS_AT_ONCE = 128  # of cross_entropy.c


@dataclass(frozen=True)
class EntropyGrads:
    """A loss summed over positions and its gradients, except that of each target's own weight."""

    loss: Tensor
    hidden_NP: Tensor  # without what comes through the target's own weight
    weight_KP: Tensor
    offset_K: Tensor
    target_N: Tensor  # of the target's logit


class _Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("num_positions", "width", "num_candidates")]


_Entropy = job_type(
    _Sizes,
    *("hidden", "rows", "weights", "transposed", "offset", "own", "target"),
    *("top", "total", "target_grad", "hidden_grad", "weights_grad", "logits", "powers", "scaled", "tiles"),
)


def cross_entropy(
    kernels: Kernels,
    hidden_NP: Tensor,
    weight_KP: Tensor,
    offset_K: Tensor,
    own_column_N: Tensor,
    target_N: Tensor,
    *,
    items: Items = FP32,
) -> EntropyGrads:
    """Compare each target's logit with those of the candidates.

    ``own_column_N`` is the candidate that is a position's target, which does not count against it, or -1. Products read
    ``items``; logits, their largest and their sums are float32.
    """
    (num_positions, width), num_candidates = hidden_NP.shape, len(weight_KP)
    _check(hidden_NP, weight_KP, offset_K, own_column_N, target_N)
    hidden_NP = hidden_NP.contiguous()
    panels = num_panels(num_candidates)
    logits = room(panels, ROWS_AT_ONCE, PANEL)
    parts = {
        "hidden": hidden_NP,
        "rows": items.rows(hidden_NP),
        "weights": pack_rows(kernels, weight_KP, items),
        "transposed": pack_columns(kernels, weight_KP, items),
        "offset": functional.pad(offset_K, (0, -num_candidates % PANEL), value=-torch.inf).contiguous(),
        "own": own_column_N.contiguous(),
        "target": target_N.contiguous(),
        "top": room(num_positions),
        "total": room(num_positions),
        "target_grad": room(num_positions),
        "hidden_grad": room(num_positions, width),
        "weights_grad": room(panels, width + 1, PANEL),
        "logits": logits,
        "powers": logits if items is FP32 else items.room(*logits.shape),
        "scaled": items.room(ROWS_AT_ONCE, width + 1),
        "tiles": tiles_room(items, ROWS_AT_ONCE, width + 1),
    }
    if not num_positions:
        parts["weights_grad"].zero_()
    call_job(kernels, f"cross_entropy{items.suffix}", _Entropy(_Sizes(num_positions, width, num_candidates)), parts)
    weight_grad_KP = room(num_candidates, width)
    repack(kernels, "unpack_rows", weight_grad_KP, parts["weights_grad"], width + 1)
    return EntropyGrads(
        (parts["total"].log() + parts["top"] - target_N).sum(dtype=torch.double),
        parts["hidden_grad"],
        weight_grad_KP,
        parts["weights_grad"][:, width].flatten()[:num_candidates],
        parts["target_grad"],
    )


def _check(hidden_NP: Tensor, weight_KP: Tensor, offset_K: Tensor, own_column_N: Tensor, target_N: Tensor) -> None:
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    (num_positions, width), num_candidates = hidden_NP.shape, len(weight_KP)
    for tensor, shape, dtype in (
        (hidden_NP, (num_positions, width), torch.float32),
        (weight_KP, (num_candidates, width), torch.float32),
        (offset_K, (num_candidates,), torch.float32),
        (own_column_N, (num_positions,), torch.int64),
        (target_N, (num_positions,), torch.float32),
    ):
        if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected {dtype} of shape {shape} on cpu"
            )
    if num_positions and int(own_column_N.max()) >= num_candidates:
        raise InputError(f"a target is candidate {int(own_column_N.max())}; there are {num_candidates}")
    if weight_KP.stride(1) != 1:
        raise InputError(f"a weight has strides {weight_KP.stride()}; expected rows without gaps, call .contiguous()")
