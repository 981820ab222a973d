"""A linear layer's products in bfloat16, for training: operands are rounded, sums are float32.

Shapes: n rows; K inputs; G outputs; q panels; c = PANEL.
"""

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.packed import PANEL
from elmokit.kernels.panels import BF16, outer_panels, pack_columns, pack_rows, repack, room

ACCUMULATE = 1


def multiply(kernels: Kernels, inputs_nK: Tensor, weight_GK: Tensor, bias_G: Tensor) -> Tensor:
    """Return ``inputs . weight^T + bias``, (n, G)."""
    _check(inputs_nK, weight_GK)
    out_nG = bias_G.detach().repeat(len(inputs_nK), 1)
    _multiply(kernels, inputs_nK, pack_rows(kernels, weight_GK.detach(), BF16), out_nG)
    return out_nG


def add_input_gradient(kernels: Kernels, grad_nG: Tensor, weight_GK: Tensor, to_nK: Tensor) -> Tensor:
    """Add ``grad . weight`` to ``to_nK`` and return it."""
    _check(to_nK, weight_GK)
    if grad_nG.shape != (len(to_nK), len(weight_GK)):
        raise InputError(f"a gradient has shape {tuple(grad_nG.shape)}; expected {(len(to_nK), len(weight_GK))}")
    _multiply(kernels, grad_nG, pack_columns(kernels, weight_GK.detach(), BF16), to_nK)
    return to_nK


def weight_gradient(kernels: Kernels, grad_nG: Tensor, inputs_nK: Tensor) -> Tensor:
    """Return ``grad^T . inputs``, (G, K)."""
    if len(grad_nG) != len(inputs_nK):
        raise InputError(f"a gradient has {len(grad_nG)} rows; expected {len(inputs_nK)}, as many as there are inputs")
    num_inputs = inputs_nK.shape[1]
    padded_nK = functional.pad(inputs_nK.to(BF16.dtype), (0, -num_inputs % PANEL))
    panels_qnc = padded_nK.unflatten(1, (-1, PANEL)).transpose(0, 1).contiguous()
    found_qGc = outer_panels(kernels, grad_nG.to(BF16.dtype).contiguous(), panels_qnc, BF16)
    weight_grad_GK = room(grad_nG.shape[1], num_inputs)
    repack(kernels, "unpack_columns", weight_grad_GK, found_qGc, len(weight_grad_GK))
    return weight_grad_GK


def _multiply(kernels: Kernels, rows_nK: Tensor, panels: Tensor, out_nG: Tensor) -> None:
    rows = BF16.rows(rows_nK)
    sizes = out_nG.stride(0), *rows_nK.shape, out_nG.shape[1]
    where = rows.data_ptr(), rows.stride(0), panels.data_ptr(), out_nG.data_ptr()
    kernels.call("matmul_panels_bf16", *where, *sizes, ACCUMULATE)


def _check(inputs_nK: Tensor, weight_GK: Tensor) -> None:
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    for tensor in (inputs_nK, weight_GK):
        if tensor.dtype != torch.float32 or not tensor.is_cpu or tensor.shape[1] != weight_GK.shape[1]:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected torch.float32 with {weight_GK.shape[1]} columns on cpu"
            )
        if tensor.shape[1] > 1 and tensor.stride(1) != 1:
            raise InputError(f"a matrix has strides {tensor.stride()}; expected rows without gaps, call .contiguous()")
