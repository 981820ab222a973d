"""BiLSTM with torch's weights, faster on a CPU than `torch.nn.LSTM` on packed sequences.

Sequences are packed (see `padding`), both directions run in the same step, and the input half is one matrix product
for all steps of both. The backward pass is written by hand: the gradient of the recurrent weight is one product over
all steps, and a step back in time is the cell and the recurrent product. The kernels take all steps in one call.

Shapes: S = 2 directions; N positions of all sequences, packed; M = S N rows, those of a step side by side: first of the
forward direction, then of the backward one; B sequences; b of them active at a step; P width of the inputs; H hidden
width; G = 4 H gates, in blocks of input, forget, output and candidate. BTD are padded sequences and their width.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.kernels.recurrences import lstm_gradients, lstm_steps
from elmokit.model.cell import advance_cell, cell_backward
from elmokit.model.products import kernels_for
from elmokit.model.uncompiled import uncompiled
from elmokit.nn.padding import PaddedPacking, plan_padded

NUM_DIRECTIONS = 2


class BiLSTM(nn.Module):
    """One LSTM layer per direction, outputs concatenated; ``rnn`` has the weights, in torch's names and order."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(input_dim, hidden_dim, batch_first=True, bidirectional=True)

    @uncompiled
    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return forward and backward outputs, (B, T, 2 H), zero on padding."""
        packing = plan_padded(mask_BT)
        ordered = [[_ordered(one) for one in of_direction] for of_direction in self.rnn.all_weights]
        input_SGP, recurrent_SGH, *biases = (torch.stack(both) for both in zip(*ordered, strict=True))
        # Both directions read the same inputs; only their gates are reordered.
        gates_NQ = functional.linear(
            packing.pack(inputs_BTD), input_SGP.flatten(0, 1), (biases[0] + biases[1]).flatten()
        )
        gates_MG = gates_NQ.view(-1, recurrent_SGH.shape[1])
        rows = _plan_rows(packing)
        outputs_MH: Tensor = _Recurrence.apply(gates_MG, recurrent_SGH, rows, packing.batch_sizes)  # type: ignore[no-untyped-call]
        backward_N = rows.backward_N.index_select(0, packing.turn_N)  # left to right
        outputs_NS = torch.stack([rows.forward_N, backward_N], dim=1)
        return packing.unpack(outputs_MH.index_select(0, outputs_NS.flatten()).view(len(outputs_NS), -1))


class _Rows(NamedTuple):
    """Rows of the packed positions of both directions, among all M."""

    forward_N: Tensor
    backward_N: Tensor
    source_M: Tensor  # of every row, its place in (N, S): a position's forward and backward gates side by side
    earlier_N: Tensor  # packed position of the step before, of all positions after the first step


class _Step(NamedTuple):
    rows: slice
    size: int
    size_before: int  # sequences active at the step before; 0 at the first step


def _plan_rows(packing: PaddedPacking) -> _Rows:
    sizes_T = torch.tensor(packing.batch_sizes)
    starts_T = sizes_T.cumsum(0) - sizes_T
    place_N = torch.arange(int(sizes_T.sum()))
    forward_N = place_N + starts_T.repeat_interleave(sizes_T)
    backward_N = forward_N + sizes_T.repeat_interleave(sizes_T)
    device = packing.turn_N.device
    source_M = torch.empty(NUM_DIRECTIONS * len(place_N), dtype=torch.long, device=device)
    forward_N, backward_N, place_N = forward_N.to(device), backward_N.to(device), place_N.to(device)
    source_M[forward_N] = NUM_DIRECTIONS * place_N
    source_M[backward_N] = NUM_DIRECTIONS * packing.turn_N + 1
    earlier_N = place_N[packing.batch_sizes[0] :] - sizes_T[:-1].repeat_interleave(sizes_T[1:]).to(device)
    return _Rows(forward_N, backward_N, source_M, earlier_N)


def _steps(batch_sizes: Sequence[int]) -> Iterator[_Step]:
    start, size_before = 0, 0
    for size in batch_sizes:
        stop = start + NUM_DIRECTIONS * size
        yield _Step(slice(start, stop), size, size_before)
        start, size_before = stop, size


def _ordered(blocks: Tensor) -> Tensor:
    """Return gates in the order of the cell; torch's is input, forget, candidate, output."""
    let_in, forget, candidate, let_out = blocks.chunk(4)
    return torch.cat([let_in, forget, let_out, candidate])


def _still_active(rows_MH: Tensor, step: _Step) -> Tensor:
    """Return what the sequences of a step had in the step before, (S, b, H)."""
    before = slice(step.rows.start - NUM_DIRECTIONS * step.size_before, step.rows.start)
    return rows_MH[before].view(NUM_DIRECTIONS, step.size_before, -1)[:, : step.size]


class _Recurrence(torch.autograd.Function):
    # Per step, with z = (from the inputs) + U h':
    #   i, f, o = sigmoid(z_i, z_f, z_o)    g = tanh(z_g)    c = f * c' + i * g    h = o * tanh(c)
    # `cell_backward` returns dz from dh and dc; then dh' = U^T dz. Over all steps: dU = sum of dz h'^T.
    @staticmethod
    def forward(
        ctx: Any, gates_in_order: Tensor, recurrent_SGH: Tensor, rows: _Rows, batch_sizes: Sequence[int]
    ) -> Tensor:
        gates_MG = gates_in_order.index_select(0, rows.source_M)
        kernels = kernels_for(gates_MG)
        if kernels is not None:
            cells_MH, outputs_MH = lstm_steps(kernels, gates_MG, recurrent_SGH, batch_sizes)
        else:
            cells_MH, outputs_MH = _run_steps(gates_MG, recurrent_SGH, batch_sizes)
        ctx.save_for_backward(recurrent_SGH, gates_MG, cells_MH, outputs_MH)
        ctx.rows, ctx.batch_sizes = rows, batch_sizes
        return outputs_MH

    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, outputs_grad_MH: Tensor) -> tuple[Tensor | None, ...]:
        recurrent_SGH, gates_MG, cells_MH, outputs_MH = ctx.saved_tensors
        rows, kernels = ctx.rows, kernels_for(gates_MG)
        parts = outputs_grad_MH.clone(), gates_MG, cells_MH, recurrent_SGH, ctx.batch_sizes
        gates_grad_MG = _step_gradients(*parts) if kernels is None else lstm_gradients(kernels, *parts)
        num_first = ctx.batch_sizes[0]
        recurrent_grad_SGH = torch.stack(
            [
                gates_grad_MG[of_N[num_first:]].t() @ outputs_MH[of_N[rows.earlier_N]]
                for of_N in (rows.forward_N, rows.backward_N)
            ]
        )
        grad_in_order = torch.empty_like(gates_grad_MG).index_copy_(0, rows.source_M, gates_grad_MG)
        return grad_in_order, recurrent_grad_SGH, None, None


def _run_steps(gates_MG: Tensor, recurrent_SGH: Tensor, batch_sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Do the same as `lstm_steps` on any device and type."""
    hidden_dim = recurrent_SGH.shape[2]
    recurrent_SHG = recurrent_SGH.mT.contiguous()
    cells_MH, outputs_MH = gates_MG.new_empty(2, len(gates_MG), hidden_dim).unbind()
    for step in _steps(batch_sizes):
        gates_bG = gates_MG[step.rows]
        if step.size_before:
            hidden_SbH, cell_SbH = _still_active(outputs_MH, step), _still_active(cells_MH, step)
            gates_bG.view(NUM_DIRECTIONS, step.size, -1).baddbmm_(hidden_SbH, recurrent_SHG)
        else:
            cell_SbH = gates_MG.new_zeros(NUM_DIRECTIONS, step.size, hidden_dim)
        before_bH = cell_SbH.contiguous().view(-1, hidden_dim)
        advance_cell(gates_bG, before_bH, cells_MH[step.rows], outputs_MH[step.rows], None, keep_gates=True)
    return cells_MH, outputs_MH


def _step_gradients(
    outputs_grad_MH: Tensor, gates_MG: Tensor, cells_MH: Tensor, recurrent_SGH: Tensor, batch_sizes: Sequence[int]
) -> Tensor:
    """Do the same as `lstm_gradients` on any device and type."""
    hidden_dim, gates_grad_MG = recurrent_SGH.shape[2], torch.empty_like(gates_MG)
    hidden_grad_SbH = cell_grad_SbH = gates_MG.new_zeros(NUM_DIRECTIONS, 0, hidden_dim)
    for step in reversed(list(_steps(batch_sizes))):
        grad_bH, num_later = outputs_grad_MH[step.rows], hidden_grad_SbH.shape[1]
        grad_bH.view(NUM_DIRECTIONS, step.size, -1)[:, :num_later] += hidden_grad_SbH
        if num_later < step.size:  # sequences that end here
            cell_grad_SbH = functional.pad(cell_grad_SbH, (0, 0, 0, step.size - num_later))
        cells = _still_active(cells_MH, step) if step.size_before else torch.zeros_like(cell_grad_SbH)
        gates_grad_bG = gates_grad_MG[step.rows]
        cell_backward(
            grad_bH,
            gates_MG[step.rows],
            cells_MH[step.rows],
            cells.contiguous().view(-1, hidden_dim),
            cell_grad_SbH.view(-1, hidden_dim),
            gates_grad_bG,
            None,
        )
        if step.size_before:
            hidden_grad_SbH = gates_grad_bG.view(NUM_DIRECTIONS, step.size, -1) @ recurrent_SGH
    return gates_grad_MG
