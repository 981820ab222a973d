"""All steps of a bidirectional layer of a task model in one C call, forward and backward: LSTM, GRU.

Shapes: S = 2 directions; B sequences; H width of an output.
Of the LSTM (``bilstm.c``): M rows, those of a step side by side, first of the forward direction, then of the backward
one; G = 4 H gates, in blocks of input, forget, output and candidate.
Of the GRU (``bigru.c``): N packed positions per direction; R = 3 H gates, in blocks of reset, keep and candidate.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import call_job, job_type, pack_columns, pack_rows, room

NUM_DIRECTIONS, LSTM_GATES, GRU_GATES = 2, 4, 3


class _Steps(ctypes.Structure):
    _fields_ = [
        ("batch_sizes", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("num_steps", "num_rows", "num_sequences", "width")],
    ]


_LSTMForward = job_type(_Steps, "weights", "start", "gates", "cells", "outputs")
_LSTMBackward = job_type(_Steps, "weights", "start", "gates", "cells", "outputs_grad", "gates_grad", "cell_grad")
_GRUForward = job_type(_Steps, "weights", "bias", "gates", "read", "heard", "outputs", "room")
_GRUBackward = job_type(_Steps, "weights", "gates", "factors", "outputs_grad", "recurrent_grad")


def lstm_steps(
    kernels: Kernels, gates_MG: Tensor, recurrent_SGH: Tensor, batch_sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return cells and outputs, (M, H). The gates come with the half from the inputs, and are squashed in place."""
    width = _check_weights(recurrent_SGH, LSTM_GATES)
    _check(gates_MG, NUM_DIRECTIONS * sum(batch_sizes), LSTM_GATES * width)
    parts = {
        "weights": _stack_rows(kernels, recurrent_SGH),
        "start": room(batch_sizes[0], width).zero_(),
        "gates": gates_MG,
        "cells": room(len(gates_MG), width),
        "outputs": room(len(gates_MG), width),
    }
    _call(kernels, "bilstm_forward", _LSTMForward, batch_sizes, (len(gates_MG), width), parts)
    return parts["cells"], parts["outputs"]


def lstm_gradients(
    kernels: Kernels,
    outputs_grad_MH: Tensor,
    gates_MG: Tensor,
    cells_MH: Tensor,
    recurrent_SGH: Tensor,
    batch_sizes: Sequence[int],
) -> Tensor:
    """Return the gradient of the gates before squashing, (M, G); uses that of the outputs up.

    Gates and cells are those that `lstm_steps` left and returned.
    """
    width = _check_weights(recurrent_SGH, LSTM_GATES)
    num_rows = NUM_DIRECTIONS * sum(batch_sizes)
    _check(gates_MG, num_rows, LSTM_GATES * width)
    _check(outputs_grad_MH, num_rows, width)
    _check(cells_MH, num_rows, width)
    parts = {
        "weights": _stack_columns(kernels, recurrent_SGH),
        "start": room(batch_sizes[0], width).zero_(),
        "gates": gates_MG,
        "cells": cells_MH,
        "outputs_grad": outputs_grad_MH,
        "gates_grad": room(*gates_MG.shape),
        "cell_grad": room(NUM_DIRECTIONS, batch_sizes[0], width).zero_(),
    }
    _call(kernels, "bilstm_backward", _LSTMBackward, batch_sizes, (num_rows, width), parts)
    return parts["gates_grad"]


@dataclass(frozen=True)
class GRUSteps:
    """Outputs of all steps of a GRU, and what its gradients need."""

    read_SNH: Tensor  # outputs of the step before
    heard_SNH: Tensor  # the recurrent half of the candidate, before the reset gate
    outputs_SNH: Tensor


def gru_steps(
    kernels: Kernels, gates_SNR: Tensor, recurrent_SRH: Tensor, bias_SR: Tensor, batch_sizes: Sequence[int]
) -> GRUSteps:
    """Run all steps. The gates come with the half from the inputs, and are squashed in place."""
    width, num_positions = _check_weights(recurrent_SRH, GRU_GATES), sum(batch_sizes)
    _check(gates_SNR, NUM_DIRECTIONS, num_positions, GRU_GATES * width)
    _check(bias_SR, NUM_DIRECTIONS, GRU_GATES * width)
    found = GRUSteps(*(room(NUM_DIRECTIONS, num_positions, width) for _ in range(3)))
    parts = {
        "weights": _stack_rows(kernels, recurrent_SRH),
        "bias": bias_SR,
        "gates": gates_SNR,
        "read": found.read_SNH,
        "heard": found.heard_SNH,
        "outputs": found.outputs_SNH,
        "room": room(batch_sizes[0], GRU_GATES * width),
    }
    _call(kernels, "bigru_forward", _GRUForward, batch_sizes, (num_positions, width), parts)
    return found


def gru_gradients(
    kernels: Kernels,
    outputs_grad_SNH: Tensor,
    gates_SNR: Tensor,
    factors_SNR: Tensor,
    recurrent_SRH: Tensor,
    batch_sizes: Sequence[int],
) -> Tensor:
    """Return the gradient of the recurrent half of all gates, (S, N, R); adds those of later steps to the outputs'.

    ``factors_SNR`` times the gradient of an output is that of the recurrent half of its gates.
    """
    width, num_positions = _check_weights(recurrent_SRH, GRU_GATES), sum(batch_sizes)
    for tensor_SNR in (gates_SNR, factors_SNR):
        _check(tensor_SNR, NUM_DIRECTIONS, num_positions, GRU_GATES * width)
    _check(outputs_grad_SNH, NUM_DIRECTIONS, num_positions, width)
    parts = {
        "weights": _stack_columns(kernels, recurrent_SRH),
        "gates": gates_SNR,
        "factors": factors_SNR,
        "outputs_grad": outputs_grad_SNH,
        "recurrent_grad": room(*gates_SNR.shape),
    }
    _call(kernels, "bigru_backward", _GRUBackward, batch_sizes, (num_positions, width), parts)
    return parts["recurrent_grad"]


def _stack_rows(kernels: Kernels, recurrent_SGH: Tensor) -> Tensor:
    return torch.stack([pack_rows(kernels, weight_GH) for weight_GH in recurrent_SGH.detach()])


def _stack_columns(kernels: Kernels, recurrent_SGH: Tensor) -> Tensor:
    return torch.stack([pack_columns(kernels, weight_GH) for weight_GH in recurrent_SGH.detach()])


def _call(
    kernels: Kernels,
    name: str,
    job: type[ctypes.Structure],
    batch_sizes: Sequence[int],
    sizes: tuple[int, int],
    parts: dict[str, Tensor],
) -> None:
    """Call a C function; ``sizes`` are rows and width."""
    if list(batch_sizes) != sorted(batch_sizes, reverse=True) or batch_sizes[-1] < 1:
        raise InputError(f"batch sizes are {list(batch_sizes)}; expected falling numbers from 1 up")
    counts = torch.tensor(batch_sizes, dtype=torch.int64, device="cpu")
    steps = _Steps(counts.data_ptr(), len(batch_sizes), sizes[0], batch_sizes[0], sizes[1])
    call_job(kernels, name, job(steps), parts)


# A wrong shape would make a kernel write over other memory, so these are never left out.


def _check_weights(recurrent_SGH: Tensor, num_gates: int) -> int:
    """Return the width."""
    width = recurrent_SGH.shape[2]
    _check(recurrent_SGH, NUM_DIRECTIONS, num_gates * width, width)
    return width


def _check(tensor: Tensor, *shape: int) -> None:
    if tensor.shape != shape or tensor.dtype != torch.float32 or not (tensor.is_cpu and tensor.is_contiguous()):
        raise InputError(
            f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; expected contiguous "
            f"torch.float32 of shape {shape} on cpu"
        )
