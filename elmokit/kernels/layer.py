"""A whole LSTM layer with projection in one C call per pass (``layer.c``), for training.

Cells are cut into blocks of PANEL, the last one filled up. Tensors with a value per cell are stored block by
block, with the positions inside a block: the layout that the next product reads.

Shapes: N positions of all rows, packed; B rows; P width; J = 2 P, a position's input beside its row's last output;
C cells; G = 4 C gates; b blocks; c = PANEL cells of a block.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.packed import PANEL
from elmokit.kernels.panels import (
    DEPTH,
    FP32,
    Items,
    call_job,
    job_type,
    outer_panels,
    pack_columns,
    pack_rows,
    repack,
    room,
)

GATES = 4
LARGE = 4 * 2**20  # input weights of a layer that leave a core's share of the last cache between two steps
GROUP = 128  # positions for which such a layer multiplies its inputs at once


@dataclass(frozen=True)
class LayerWeights:
    """Weights of a layer in the layout of its module. A clip of NaN disables clipping."""

    input_GP: Tensor
    recurrent_GP: Tensor
    bias_G: Tensor  # forget bias included
    projection_PC: Tensor
    cell_clip: float
    proj_clip: float
    items: Items = FP32
    """Type that weights, inputs, outputs and gradients are rounded to where they are only multiplied."""


@dataclass(frozen=True)
class LayerTape:
    """Tensors that a forward pass saves for the backward pass."""

    batch_sizes: Tensor  # (steps,)
    start_cells_bBc: Tensor
    joined_NJ: Tensor  # items
    gates_b4Nc: Tensor  # squashed; the backward pass writes over them if items are float32
    cells_bNc: Tensor
    squashed_bNc: Tensor  # items
    outputs_NP: Tensor

    def rerun(self, kernels: Kernels, weights: LayerWeights) -> "LayerTape":
        """Repeat the forward pass and return its tape, for a graph that is used twice."""
        width, num_rows = self.outputs_NP.shape[1], self.start_cells_bBc.shape[1]
        sizes = self.batch_sizes.tolist()
        hidden_BP = torch.zeros(num_rows, width, dtype=torch.float32, device="cpu")
        hidden_BP[: sizes[0]] = self.joined_NJ[: sizes[0], width:]  # the others take no step
        cell_BC = _from_blocks(self.start_cells_bBc, weights.projection_PC.shape[1])
        return run_layer(kernels, self.joined_NJ[:, :width].float(), sizes, hidden_BP, cell_BC, weights)

    def tensors(self) -> list[Tensor]:
        """Return all parts in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]


@dataclass(frozen=True)
class LayerGradients:
    """The gradients of a layer's inputs and weights."""

    inputs_NP: Tensor
    input_GP: Tensor
    recurrent_GP: Tensor
    bias_G: Tensor
    projection_PC: Tensor


class _Layer(ctypes.Structure):
    _fields_ = [
        ("batch_sizes", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("num_steps", "num_positions", "num_rows", "width", "num_cells", "group")],
        *[(name, ctypes.c_float) for name in ("cell_clip", "proj_clip")],
    ]


_Forward = job_type(
    _Layer,
    *("gate_panels", "bias", "projection", "start_hidden", "start_cells"),
    *("joined", "gates", "cells", "squashed", "outputs"),
)
_Backward = job_type(
    _Layer,
    *("gate_panels", "projection", "start_cells", "gates", "gates_grad", "cells", "outputs", "outputs_grad"),
    *("projected_grad", "joined_grad", "bias_grad", "cell_grad", "squashed_grad"),
)


def run_layer(
    kernels: Kernels,
    inputs_NP: Tensor,
    batch_sizes: Sequence[int],
    hidden_BP: Tensor,
    cell_BC: Tensor,
    weights: LayerWeights,
) -> LayerTape:
    """Run all steps of a packed batch from a state and return the tape."""
    num_positions, width = inputs_NP.shape
    num_rows, num_cells = cell_BC.shape
    _check(weights, inputs_NP, hidden_BP, cell_BC)
    sizes = torch.tensor(batch_sizes, dtype=torch.int64, device="cpu")
    check_sizes(batch_sizes, num_positions, num_rows)
    num_blocks, items = -(-num_cells // PANEL), weights.items
    joined_NJ = items.room(num_positions, 2 * width)
    joined_NJ[:, :width] = inputs_NP
    tape = LayerTape(
        sizes,
        _to_blocks(cell_BC),
        joined_NJ,
        room(num_blocks, GATES, num_positions, PANEL),
        room(num_blocks, num_positions, PANEL),
        items.room(num_blocks, num_positions, PANEL),
        room(num_positions, width),
    )
    gate_panels, pack = items.room(num_blocks, GATES, 2 * width, PANEL), f"pack_rows{items.suffix}"
    for gate in range(GATES):
        for first, weight_GP in ((0, weights.input_GP), (width, weights.recurrent_GP)):
            repack(kernels, pack, _gate(weight_GP, gate), gate_panels[:, gate], 2 * width, first, GATES)
    projection = pack_rows(kernels, weights.projection_PC, items)
    bias = _to_blocks(weights.bias_G.view(GATES, num_cells)).contiguous()
    hidden_BP = hidden_BP.contiguous()
    parts = {
        "gate_panels": gate_panels,
        "bias": bias,
        "projection": projection,
        "start_hidden": hidden_BP,
        "start_cells": tape.start_cells_bBc,
        "joined": tape.joined_NJ,
        "gates": tape.gates_b4Nc,
        "cells": tape.cells_bNc,
        "squashed": tape.squashed_bNc,
        "outputs": tape.outputs_NP,
    }
    call_job(kernels, f"layer_forward{items.suffix}", _Forward(_sizes_of(tape, weights)), parts)
    return tape


def final_state(tape: LayerTape, hidden_BP: Tensor, cell_BC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden (B, P) and cell (B, C) state in which every row ended, given the state it started from."""
    hidden_BP, cell_BC = hidden_BP.clone(), cell_BC.clone()
    first = 0
    for size, next_size in pairwise([*tape.batch_sizes.tolist(), 0]):
        ended = slice(first + next_size, first + size)
        if next_size < size:
            hidden_BP[next_size:size] = tape.outputs_NP[ended]
            cell_BC[next_size:size] = _from_blocks(tape.cells_bNc[:, ended], cell_BC.shape[1])
        first += size
    return hidden_BP, cell_BC


def layer_gradients(
    kernels: Kernels, tape: LayerTape, outputs_grad_NP: Tensor, weights: LayerWeights
) -> LayerGradients:
    """Return the gradients that follow from that of the outputs. The state carries none, neither in nor out.

    Uses the tape up: if items are float32, the gates' gradients are written over the gates.
    """
    items = weights.items
    width = tape.outputs_NP.shape[1]
    num_cells, num_rows = weights.projection_PC.shape[1], tape.start_cells_bBc.shape[1]
    num_blocks = len(tape.cells_bNc)
    num_gates = num_blocks * GATES * PANEL
    gate_panels, pack = items.room(-(-2 * width // PANEL), num_gates, PANEL), f"pack_columns{items.suffix}"
    joined_GJ = torch.cat([weights.input_GP.detach(), weights.recurrent_GP.detach()], dim=1)
    for gate in range(GATES):
        repack(kernels, pack, _gate(joined_GJ, gate), gate_panels, num_gates, gate * PANEL, GATES)
    projection = pack_columns(kernels, weights.projection_PC, items)
    bias_grad_b4c = room(num_blocks, GATES, PANEL)
    joined_grad_NJ = room(*tape.joined_NJ.shape)
    projected_grad_NP = items.room(len(tape.outputs_NP), items.whole_pairs(width))
    gates_grad_b4Nc = tape.gates_b4Nc if items is FP32 else items.room(*tape.gates_b4Nc.shape)
    if outputs_grad_NP.shape != tape.outputs_NP.shape or outputs_grad_NP.dtype != torch.float32:
        raise InputError(f"a gradient has shape {tuple(outputs_grad_NP.shape)} and {outputs_grad_NP.dtype}")
    parts = {
        "gate_panels": gate_panels,
        "projection": projection,
        "start_cells": tape.start_cells_bBc,
        "gates": tape.gates_b4Nc,
        "gates_grad": gates_grad_b4Nc,
        "cells": tape.cells_bNc,
        "outputs": tape.outputs_NP,
        "outputs_grad": outputs_grad_NP.contiguous(),
        "projected_grad": projected_grad_NP,
        "joined_grad": joined_grad_NJ,
        "bias_grad": bias_grad_b4c,
        "cell_grad": room(num_blocks, num_rows, PANEL),
        "squashed_grad": room(num_rows, PANEL),
    }
    call_job(kernels, f"layer_backward{items.suffix}", _Backward(_sizes_of(tape, weights)), parts)
    input_GP, recurrent_GP = _gate_weight_gradients(kernels, tape.joined_NJ, gates_grad_b4Nc, num_cells, items)
    return LayerGradients(
        joined_grad_NJ[:, :width],
        input_GP,
        recurrent_GP,
        _from_blocks(bias_grad_b4c, num_cells).flatten(),
        _projection_gradient(kernels, projected_grad_NP[:, :width], tape.squashed_bNc, num_cells, items),
    )


def _gate_weight_gradients(
    kernels: Kernels, joined_NJ: Tensor, gates_grad_b4Nc: Tensor, num_cells: int, items: Items
) -> tuple[Tensor, Tensor]:
    width = joined_NJ.shape[1] // 2
    found_b4Jc = outer_panels(kernels, joined_NJ, gates_grad_b4Nc.flatten(0, 1), items).unflatten(0, (-1, GATES))
    grads = torch.empty(2, GATES * num_cells, width, dtype=torch.float32, device="cpu").unbind()
    for gate in range(GATES):
        for half, grad_GP in enumerate(grads):
            to = _gate(grad_GP, gate)
            repack(kernels, "unpack_rows", to, found_b4Jc[:, gate], 2 * width, half * width, GATES)
    return grads[0], grads[1]


def _projection_gradient(
    kernels: Kernels, projected_grad_NP: Tensor, squashed_bNc: Tensor, num_cells: int, items: Items
) -> Tensor:
    found_bPc = outer_panels(kernels, projected_grad_NP, squashed_bNc, items)
    grad_PC = room(projected_grad_NP.shape[1], num_cells)
    repack(kernels, "unpack_columns", grad_PC, found_bPc, len(grad_PC))
    return grad_PC


def _sizes_of(tape: LayerTape, weights: LayerWeights) -> _Layer:
    num_positions, width = tape.outputs_NP.shape
    return _Layer(
        batch_sizes=tape.batch_sizes.data_ptr(),
        num_steps=len(tape.batch_sizes),
        num_positions=num_positions,
        num_rows=tape.start_cells_bBc.shape[1],
        width=width,
        num_cells=weights.projection_PC.shape[1],
        group=GROUP if width % DEPTH == 0 and weights.input_GP.numel() >= LARGE else 0,
        cell_clip=weights.cell_clip,
        proj_clip=weights.proj_clip,
    )


def _gate(weight_GP: Tensor, gate: int) -> Tensor:
    num_cells = len(weight_GP) // GATES
    return weight_GP.detach()[gate * num_cells : (gate + 1) * num_cells]


def _to_blocks(cells_BC: Tensor) -> Tensor:
    padded = functional.pad(cells_BC.detach(), (0, -cells_BC.shape[1] % PANEL))
    blocks_bBc: Tensor = padded.unflatten(1, (-1, PANEL)).transpose(0, 1)
    return blocks_bBc.contiguous()


def _from_blocks(cells_bBc: Tensor, num_cells: int) -> Tensor:
    return cells_bBc.transpose(0, 1).flatten(1)[:, :num_cells]


def _check(weights: LayerWeights, inputs_NP: Tensor, hidden_BP: Tensor, cell_BC: Tensor) -> None:
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    (num_rows, num_cells), width = cell_BC.shape, inputs_NP.shape[1]
    for tensor, shape in (
        (inputs_NP, tuple(inputs_NP.shape)),
        (cell_BC, tuple(cell_BC.shape)),
        (hidden_BP, (num_rows, width)),
        (weights.input_GP, (GATES * num_cells, width)),
        (weights.recurrent_GP, (GATES * num_cells, width)),
        (weights.bias_G, (GATES * num_cells,)),
        (weights.projection_PC, (width, num_cells)),
    ):
        if tensor.shape != shape or tensor.dtype != torch.float32 or not tensor.is_cpu:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected torch.float32 of shape {shape} on cpu"
            )
    for weight in (weights.input_GP, weights.recurrent_GP, weights.projection_PC):
        if weight.stride(1) != 1:
            raise InputError(f"a weight has strides {weight.stride()}; expected rows without gaps, call .contiguous()")


def check_sizes(batch_sizes: Sequence[int], num_positions: int, num_rows: int) -> None:
    """Reject batch sizes that grow, or that do not add up to the positions."""
    falls = all(after <= before for before, after in pairwise([num_rows, *batch_sizes]))
    if not falls or min(batch_sizes, default=0) < 0 or sum(batch_sizes) != num_positions:
        raise InputError(
            f"batch sizes {list(batch_sizes)} do not fall from {num_rows} rows to the end of {num_positions} positions"
        )
