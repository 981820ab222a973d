"""BiLSTM with coupled input and forget gates, for coreference (Lee et al. 2017).

Sequences are packed (see `padding`) and the input half is one matrix product for all steps. The backward pass is
written by hand: the gradients of the weights are one product over all steps.

Shapes: N positions of all sequences, packed; B sequences; b of them active at a step; P width of the inputs; H hidden
width; R = 3 H gates, in blocks of keep, output and candidate; G = 4 H, the same after a block of 1 - keep, so that
a row is one of the plain LSTM's cell. BTD are padded sequences and their width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.model.cell import advance_cell, cell_backward
from elmokit.model.packing import steps_of
from elmokit.model.products import exact_product
from elmokit.model.uncompiled import uncompiled
from elmokit.nn.basic import check_dropout, draw_mask
from elmokit.nn.padding import plan_padded

NUM_BLOCKS = 3


class CoupledBiLSTM(nn.Module):
    """One layer per direction, outputs concatenated.

    Dropout has one mask per sequence. It is applied to the recurrent input only, not to the outputs.
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, dropout: float) -> None:
        super().__init__()
        self.forward_layer = CoupledLSTMLayer(input_dim, hidden_dim)
        self.backward_layer = CoupledLSTMLayer(input_dim, hidden_dim)
        self.dropout = check_dropout(dropout)

    @uncompiled
    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return forward and backward outputs, (B, T, 2 H), zero on padding."""
        packing = plan_padded(mask_BT)
        inputs_NP = packing.pack(inputs_BTD)
        forward_NH = self._read(self.forward_layer, inputs_NP, packing.batch_sizes)
        backward_NH = self._read(self.backward_layer, packing.turn(inputs_NP), packing.batch_sizes)
        return packing.unpack(torch.cat([forward_NH, packing.turn(backward_NH)], dim=1))

    def _read(self, layer: "CoupledLSTMLayer", inputs_NP: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        drop_BH = None
        if self.training and self.dropout:
            drop_BH = draw_mask((batch_sizes[0], layer.hidden_dim), self.dropout, inputs_NP)
        outputs_NH: Tensor = layer(inputs_NP, batch_sizes, drop_BH)
        return outputs_NH


class CoupledLSTMLayer(nn.Module):
    """One direction: ``c = keep c + (1 - keep) tanh(candidate)``, from a learned initial state.

    The original's input gate is 1 - keep: the same function with the sign of that block's weights changed.
    """

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.input_weight = nn.Parameter(torch.empty(NUM_BLOCKS * hidden_dim, input_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(NUM_BLOCKS * hidden_dim, hidden_dim))
        self.bias = nn.Parameter(torch.empty(NUM_BLOCKS * hidden_dim))
        self.initial_hidden = nn.Parameter(torch.empty(hidden_dim))
        self.initial_cell = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize each gate orthonormally over inputs and recurrence together, the rest Glorot-uniform."""
        input_dim = self.input_weight.shape[1]
        blocks = zip(
            self.input_weight.split(self.hidden_dim), self.recurrent_weight.split(self.hidden_dim), strict=True
        )
        for input_block, recurrent_block in blocks:
            whole = nn.init.orthogonal_(torch.empty(self.hidden_dim, input_dim + self.hidden_dim))
            input_block.copy_(whole[:, :input_dim])
            recurrent_block.copy_(whole[:, input_dim:])
        nn.init.uniform_(self.bias, -((3 / len(self.bias)) ** 0.5), (3 / len(self.bias)) ** 0.5)
        for state_H in (self.initial_hidden, self.initial_cell):
            nn.init.xavier_uniform_(state_H[None])

    def forward(self, inputs_NP: Tensor, batch_sizes: Sequence[int], drop_BH: Tensor | None) -> Tensor:
        """Return the outputs for packed rows, (N, H); a step reads the last output times the dropout mask."""
        weights = (self.input_weight, self.recurrent_weight, self.bias, self.initial_hidden, self.initial_cell)
        outputs_NH: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
            inputs_NP, *weights, drop_BH, batch_sizes
        )
        return outputs_NH


class _Recurrence(torch.autograd.Function):
    # Per step, with z = W x + U (m * h') + b and dropout mask m of the sequence:
    #   k, o = sigmoid(z_k, z_o)    g = tanh(z_g)    c = k * c' + (1 - k) * g    h = o * tanh(c)
    # This is a plain LSTM with the input gate i = sigmoid(-z_k), so that `cell_backward` returns dz_i and dz_f of
    # independent gates, and dz_k = dz_f - dz_i. Given dh, from above and from the next step:
    #   dc += dh * o * (1 - tanh(c)^2)    dz_o = dh * tanh(c) * o * (1 - o)
    #   dz_g = dc * (1 - k) * (1 - g^2)    dz_k = dc * (c' - g) * k * (1 - k)    dc' = dc * k    dh' = m * (U^T dz)
    # Over all steps: dW = sum of dz x^T, dU = sum of dz (m * h')^T, db = sum of dz, dx = W^T dz. What is left of dh'
    # and dc' before the first step are the gradients of the trained initial state.
    @staticmethod
    def forward(
        ctx: Any,
        inputs_NP: Tensor,
        input_weight_RP: Tensor,
        recurrent_weight_RH: Tensor,
        bias_R: Tensor,
        initial_hidden_H: Tensor,
        initial_cell_H: Tensor,
        drop_BH: Tensor | None,
        batch_sizes: Sequence[int],
    ) -> Tensor:
        num_cells = len(initial_cell_H)
        gates_NG = inputs_NP.new_empty(len(inputs_NP), 4 * num_cells)
        torch.addmm(bias_R, inputs_NP, input_weight_RP.t(), out=gates_NG[:, num_cells:])
        # m * h', c and h of every step
        read_NH, cells_NH, outputs_NH = gates_NG.new_empty(3, len(gates_NG), num_cells).unbind()
        recurrent = exact_product(recurrent_weight_RH)
        hidden_bH, before_bH = (state_H.repeat(batch_sizes[0], 1) for state_H in (initial_hidden_H, initial_cell_H))
        for step in steps_of(batch_sizes):
            size = step.stop - step.start
            gates_bG = gates_NG[step]
            read_NH[step] = hidden_bH[:size] if drop_BH is None else hidden_bH[:size] * drop_BH[:size]
            recurrent.add_to(gates_bG[:, num_cells:], read_NH[step])
            # 1 - sigmoid(x) = sigmoid(-x)
            torch.neg(gates_bG[:, num_cells : 2 * num_cells], out=gates_bG[:, :num_cells])
            advance_cell(gates_bG, before_bH[:size], cells_NH[step], outputs_NH[step], None, keep_gates=True)
            hidden_bH, before_bH = outputs_NH[step], cells_NH[step]
        ctx.save_for_backward(
            inputs_NP, input_weight_RP, recurrent_weight_RH, initial_cell_H, drop_BH, gates_NG, read_NH, cells_NH
        )
        ctx.batch_sizes = batch_sizes
        return outputs_NH

    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, outputs_grad_NH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_NP, input_weight_RP, recurrent_weight_RH, initial_cell_H, drop_BH, gates_NG, read_NH, cells_NH = (
            ctx.saved_tensors
        )
        num_cells = len(initial_cell_H)
        gates_grad_NG = torch.empty_like(gates_NG)
        gates_grad_NR = gates_grad_NG[:, num_cells:]
        hidden_grad_BH = cells_NH.new_zeros(ctx.batch_sizes[0], num_cells)
        cell_grad_BH = torch.zeros_like(hidden_grad_BH)
        start_BH = initial_cell_H.repeat(ctx.batch_sizes[0], 1)
        through_recurrence = exact_product(recurrent_weight_RH.t())
        steps = list(steps_of(ctx.batch_sizes))
        for index in reversed(range(len(steps))):
            step = steps[index]
            size = step.stop - step.start
            before_bH = cells_NH[steps[index - 1]][:size] if index else start_BH
            grad_bH = outputs_grad_NH[step] + hidden_grad_BH[:size]
            cell_backward(
                grad_bH, gates_NG[step], cells_NH[step], before_bH, cell_grad_BH[:size], gates_grad_NG[step], None
            )
            gates_grad_NR[step, :num_cells].sub_(gates_grad_NG[step, :num_cells])  # dz_k
            through_recurrence.write_to(hidden_grad_BH[:size], gates_grad_NR[step])
            if drop_BH is not None:
                hidden_grad_BH[:size].mul_(drop_BH[:size])
        return (
            gates_grad_NR @ input_weight_RP if ctx.needs_input_grad[0] else None,
            gates_grad_NR.t() @ inputs_NP,
            gates_grad_NR.t() @ read_NH,
            gates_grad_NR.sum(dim=0),
            hidden_grad_BH.sum(dim=0),
            cell_grad_BH.sum(dim=0),
            None,
            None,
        )
