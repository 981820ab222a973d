"""Deep LSTM with highway gates and alternating directions, for semantic roles (He et al. 2017).

Sequences are packed (see `padding`) and the input half of a layer is one matrix product for all its steps. The backward
pass is written by hand: the gradients of the weights are one product over all steps.

Shapes: N positions of all sequences, packed; B sequences; b of them active at a step; P width of a layer's inputs;
H hidden width; G = 6 H gates, in blocks of input, forget, output, candidate, highway gate and highway input; the
first 5 blocks, R = 5 H, have a recurrent half. BTD are padded sequences and their width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.model.cell import advance_cell, cell_backward
from elmokit.model.packing import steps_of
from elmokit.model.products import exact_product
from elmokit.model.stack_kernel import FORGET_BIAS
from elmokit.model.uncompiled import uncompiled
from elmokit.nn.basic import check_dropout, draw_mask
from elmokit.nn.padding import plan_padded

NUM_INPUT_BLOCKS, NUM_RECURRENT_BLOCKS = 6, 5


class HighwayLSTM(nn.Module):
    """Stack of layers that read left to right, right to left, and so on.

    Dropout has one mask per sequence and layer. It is applied to the outputs, for the next step and for the next
    layer, as in deep_srl.
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, num_layers: int, dropout: float) -> None:
        super().__init__()
        widths = [input_dim, *[hidden_dim] * (num_layers - 1)]
        self.layers = nn.ModuleList(HighwayLSTMLayer(width, hidden_dim) for width in widths)
        self.dropout = check_dropout(dropout)

    @uncompiled
    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the last layer's outputs, (B, T, H), zero on padding."""
        packing = plan_padded(mask_BT)
        below_NP = packing.pack(inputs_BTD)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, HighwayLSTMLayer)
            drop_BH = None
            if self.training and self.dropout:
                drop_BH = draw_mask((packing.batch_sizes[0], layer.hidden_dim), self.dropout, below_NP)
            below_NP = layer(packing.turn(below_NP) if index else below_NP, packing.batch_sizes, drop_BH)
        return packing.unpack(below_NP if len(self.layers) % 2 else packing.turn(below_NP))


class HighwayLSTMLayer(nn.Module):
    """One layer; the highway gate interpolates between the LSTM's output and a linear function of the input.

    The forget gate's +1 is added at run time, as in `elmokit.model.lstm`.
    """

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.input_weight = nn.Parameter(torch.empty(NUM_INPUT_BLOCKS * hidden_dim, input_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(NUM_RECURRENT_BLOCKS * hidden_dim, hidden_dim))
        self.bias = nn.Parameter(torch.empty(NUM_INPUT_BLOCKS * hidden_dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize every block orthogonally, biases with zeros."""
        for weight in (self.input_weight, self.recurrent_weight):
            for block in weight.split(self.hidden_dim):
                nn.init.orthogonal_(block)
        nn.init.zeros_(self.bias)

    def forward(self, inputs_NP: Tensor, batch_sizes: Sequence[int], drop_BH: Tensor | None) -> Tensor:
        """Return the outputs for packed rows, (N, H), times the dropout mask of their sequence."""
        outputs_NH: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
            inputs_NP, self.input_weight, self.recurrent_weight, self.bias, drop_BH, batch_sizes
        )
        return outputs_NH


class _Recurrence(torch.autograd.Function):
    # Per step, with gate inputs z = W x + U h' + b (no U for the linear input l) and dropout mask m of the sequence:
    #   i, f, o, r = sigmoid(z_i, z_f + 1, z_o, z_r)    g = tanh(z_g)    l = z_l
    #   c = f * c' + i * g    s = o * tanh(c)    h = m * (r * s + (1 - r) * l)
    # Given dh, from above and from the next step, and e = m * dh:
    #   dz_l = e * (1 - r)    dz_r = e * (s - l) * r * (1 - r)    ds = e * r
    #   dc += ds * o * (1 - tanh(c)^2)    dz_o = ds * tanh(c) * o * (1 - o)        (`cell_backward`, as for any LSTM)
    #   dz_i = dc * g * i * (1 - i)    dz_f = dc * c' * f * (1 - f)    dz_g = dc * i * (1 - g^2)    dc' = dc * f
    #   dh' = U^T dz
    # Over all steps: dW = sum of dz x^T, dU = sum of dz h'^T, db = sum of dz, dx = W^T dz.
    @staticmethod
    def forward(
        ctx: Any,
        inputs_NP: Tensor,
        input_weight_GP: Tensor,
        recurrent_weight_RH: Tensor,
        bias_G: Tensor,
        drop_BH: Tensor | None,
        batch_sizes: Sequence[int],
    ) -> Tensor:
        num_recurrent, num_cells = recurrent_weight_RH.shape
        bias_G = bias_G.clone()
        bias_G[num_cells : 2 * num_cells] += FORGET_BIAS
        gates_NG = torch.addmm(bias_G, inputs_NP, input_weight_GP.t())
        cells_NH, squashed_NH, outputs_NH = gates_NG.new_empty(3, len(gates_NG), num_cells).unbind()
        recurrent = exact_product(recurrent_weight_RH)
        before_bH = gates_NG.new_zeros(batch_sizes[0], num_cells)
        hidden_bH = None
        for step in steps_of(batch_sizes):
            size = step.stop - step.start
            gates_bG = gates_NG[step]
            if hidden_bH is not None:
                recurrent.add_to(gates_bG[:, :num_recurrent], hidden_bH[:size])
            advance_cell(
                gates_bG[:, : 4 * num_cells],
                before_bH[:size],
                cells_NH[step],
                squashed_NH[step],
                None,
                keep_gates=True,
            )
            highway_bH = gates_bG[:, 4 * num_cells : num_recurrent].sigmoid_()
            hidden_bH = torch.lerp(gates_bG[:, num_recurrent:], squashed_NH[step], highway_bH, out=outputs_NH[step])
            if drop_BH is not None:
                hidden_bH.mul_(drop_BH[:size])
            before_bH = cells_NH[step]
        ctx.save_for_backward(
            inputs_NP, input_weight_GP, recurrent_weight_RH, drop_BH, gates_NG, cells_NH, squashed_NH, outputs_NH
        )
        ctx.batch_sizes = batch_sizes
        return outputs_NH

    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, outputs_grad_NH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_NP, input_weight_GP, recurrent_weight_RH, drop_BH, gates_NG, cells_NH, squashed_NH, outputs_NH = (
            ctx.saved_tensors
        )
        num_recurrent, num_cells = recurrent_weight_RH.shape
        gates_grad_NG = torch.empty_like(gates_NG)
        highway_NH, linear_NH = gates_NG[:, 4 * num_cells : num_recurrent], gates_NG[:, num_recurrent:]
        slope_NH = (squashed_NH - linear_NH) * highway_NH * (1 - highway_NH)
        mixed_grad_NH = torch.empty_like(outputs_NH)  # e, before the highway gate
        hidden_grad_BH = outputs_NH.new_zeros(ctx.batch_sizes[0], num_cells)
        cell_grad_BH = torch.zeros_like(hidden_grad_BH)
        start_BH = torch.zeros_like(hidden_grad_BH)
        through_recurrence = exact_product(recurrent_weight_RH.t())
        steps = list(steps_of(ctx.batch_sizes))
        for index in reversed(range(len(steps))):
            step = steps[index]
            size = step.stop - step.start
            before_bH = cells_NH[steps[index - 1]][:size] if index else start_BH
            grad_bH = torch.add(outputs_grad_NH[step], hidden_grad_BH[:size], out=mixed_grad_NH[step])
            if drop_BH is not None:
                grad_bH.mul_(drop_BH[:size])
            gates_grad_bG = gates_grad_NG[step]
            torch.mul(grad_bH, slope_NH[step], out=gates_grad_bG[:, 4 * num_cells : num_recurrent])
            cell_backward(
                grad_bH * highway_NH[step],
                gates_NG[step][:, : 4 * num_cells],
                cells_NH[step],
                before_bH,
                cell_grad_BH[:size],
                gates_grad_bG[:, : 4 * num_cells],
                None,
            )
            if index:
                through_recurrence.write_to(hidden_grad_BH[:size], gates_grad_bG[:, :num_recurrent])
        torch.mul(mixed_grad_NH, 1 - highway_NH, out=gates_grad_NG[:, num_recurrent:])
        return (
            gates_grad_NG @ input_weight_GP if ctx.needs_input_grad[0] else None,
            gates_grad_NG.t() @ inputs_NP,
            _recurrent_grad(gates_grad_NG[:, :num_recurrent], outputs_NH, steps),
            gates_grad_NG.sum(dim=0),
            None,
            None,
        )


def _recurrent_grad(gates_grad_NR: Tensor, outputs_NH: Tensor, steps: Sequence[slice]) -> Tensor:
    """Return dU, one product over all steps except the first, which reads zeros."""
    read = [outputs_NH[before][: now.stop - now.start] for before, now in pairwise(steps)]
    return gates_grad_NR[steps[0].stop :].t() @ torch.cat([outputs_NH[:0], *read])
