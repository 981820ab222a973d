"""All steps of a bidirectional LSTM without projection in one C call, forward and backward (``bilstm.c``).

Shapes: S = 2 directions; M rows, those of a step side by side, first of the forward direction, then of the backward
one; B sequences; H cells; G = 4 H gates, in blocks of input, forget, output and candidate.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import call_job, job_type, pack_columns, pack_rows, room

NUM_DIRECTIONS, GATES = 2, 4


class _Steps(ctypes.Structure):
    _fields_ = [
        ("batch_sizes", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("num_steps", "num_rows", "num_sequences", "num_cells")],
    ]


_Forward = job_type(_Steps, "weights", "start", "gates", "cells", "outputs")
_Backward = job_type(_Steps, "weights", "start", "gates", "cells", "outputs_grad", "gates_grad", "cell_grad")


def run_steps(
    kernels: Kernels, gates_MG: Tensor, recurrent_SGH: Tensor, batch_sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return cells and outputs, (M, H). The gates come with the half from the inputs, and are squashed in place."""
    num_cells = recurrent_SGH.shape[2]
    sizes = _check(gates_MG, recurrent_SGH, batch_sizes)
    parts = {
        "weights": torch.stack([pack_rows(kernels, weight_GH) for weight_GH in recurrent_SGH.detach()]),
        "start": room(batch_sizes[0], num_cells).zero_(),
        "gates": gates_MG,
        "cells": room(len(gates_MG), num_cells),
        "outputs": room(len(gates_MG), num_cells),
    }
    call_job(kernels, "bilstm_forward", _Forward(_steps(sizes, gates_MG, batch_sizes, num_cells)), parts)
    return parts["cells"], parts["outputs"]


def step_gradients(
    kernels: Kernels,
    outputs_grad_MH: Tensor,
    gates_MG: Tensor,
    cells_MH: Tensor,
    recurrent_SGH: Tensor,
    batch_sizes: Sequence[int],
) -> Tensor:
    """Return the gradient of the gates before squashing, (M, G); uses that of the outputs up.

    Gates and cells are those that `run_steps` left and returned.
    """
    num_cells = recurrent_SGH.shape[2]
    sizes = _check(gates_MG, recurrent_SGH, batch_sizes)
    for tensor_MH in (outputs_grad_MH, cells_MH):
        _check_matrix(tensor_MH, (len(gates_MG), num_cells))
    parts = {
        "weights": torch.stack([pack_columns(kernels, weight_GH) for weight_GH in recurrent_SGH.detach()]),
        "start": room(batch_sizes[0], num_cells).zero_(),
        "gates": gates_MG,
        "cells": cells_MH,
        "outputs_grad": outputs_grad_MH,
        "gates_grad": room(*gates_MG.shape),
        "cell_grad": room(NUM_DIRECTIONS, batch_sizes[0], num_cells).zero_(),
    }
    call_job(kernels, "bilstm_backward", _Backward(_steps(sizes, gates_MG, batch_sizes, num_cells)), parts)
    return parts["gates_grad"]


def _steps(sizes: Tensor, gates_MG: Tensor, batch_sizes: Sequence[int], num_cells: int) -> _Steps:
    return _Steps(sizes.data_ptr(), len(batch_sizes), len(gates_MG), batch_sizes[0], num_cells)


def _check(gates_MG: Tensor, recurrent_SGH: Tensor, batch_sizes: Sequence[int]) -> Tensor:
    """Return the batch sizes as a tensor."""
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    num_cells = recurrent_SGH.shape[2]
    if recurrent_SGH.shape != (NUM_DIRECTIONS, GATES * num_cells, num_cells) or recurrent_SGH.stride(2) != 1:
        raise InputError(f"recurrent weights have shape {tuple(recurrent_SGH.shape)}; expected (2, 4 H, H)")
    _check_matrix(gates_MG, (NUM_DIRECTIONS * sum(batch_sizes), GATES * num_cells))
    if list(batch_sizes) != sorted(batch_sizes, reverse=True) or batch_sizes[-1] < 1:
        raise InputError(f"batch sizes are {list(batch_sizes)}; expected falling numbers from 1 up")
    return torch.tensor(batch_sizes, dtype=torch.int64, device="cpu")


def _check_matrix(tensor: Tensor, shape: tuple[int, int]) -> None:
    if tensor.shape != shape or tensor.dtype != torch.float32 or not (tensor.is_cpu and tensor.is_contiguous()):
        raise InputError(
            f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; expected contiguous "
            f"torch.float32 of shape {shape} on cpu"
        )
