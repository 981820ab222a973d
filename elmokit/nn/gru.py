"""BiGRU in cuDNN's form: the reset gate is applied after the recurrent product.

Sequences are packed (see `padding`), both directions run in the same step, and the input half is one matrix product
for all steps of both. The backward pass is written by hand: the gradient of the recurrent weight is one product over
all steps, and a step back in time is the recurrent product and a few other operations. The kernels take all steps in
one call.

Shapes: S = 2 directions; N positions of all sequences, packed; B sequences; b of them active at a step; P width of the
inputs; H hidden width; R = 3 H gates, in blocks of reset, keep and candidate; Q = 2 R gates of both directions. BTD are
padded sequences and their width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.kernels.recurrences import GRUSteps, gru_gradients, gru_steps
from elmokit.model.packing import steps_of
from elmokit.model.products import kernels_for
from elmokit.nn.padding import plan_padded

NUM_BLOCKS = 3
INITIAL_SPREAD = 0.05  # Clark & Gardner 2018; truncated at twice that


class BiGRU(nn.Module):
    """One GRU layer per direction, outputs concatenated."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.forward_layer = GRULayer(input_dim, hidden_dim)
        self.backward_layer = GRULayer(input_dim, hidden_dim)

    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return forward and backward outputs, (B, T, 2 H), zero on padding."""
        packing = plan_padded(mask_BT)
        layers = self.forward_layer, self.backward_layer
        input_weight_QP, input_bias_Q = (
            torch.cat([getattr(layer, name) for layer in layers]) for name in ("input_weight", "input_bias")
        )
        # Both directions read the same inputs; only the gates, which are narrower, are reversed.
        gates_NQ = functional.linear(packing.pack(inputs_BTD), input_weight_QP, input_bias_Q)
        forward_NR, backward_NR = gates_NQ.chunk(2, dim=1)
        gates_SNR = torch.stack([forward_NR, packing.turn(backward_NR)])
        recurrent = (
            torch.stack([getattr(layer, name) for layer in layers]) for name in ("recurrent_weight", "recurrent_bias")
        )
        outputs_SNH: Tensor = _Recurrence.apply(gates_SNR, *recurrent, packing.batch_sizes)  # type: ignore[no-untyped-call]
        return packing.unpack(torch.cat([outputs_SNH[0], packing.turn(outputs_SNH[1])], dim=1))


class GRULayer(nn.Module):
    """Weights of one direction.

    ``reset`` and ``keep`` are sigmoids. ``candidate = tanh(from inputs + reset * (from the last output))``, and the
    output is ``keep * (the last output) + (1 - keep) * candidate``.
    """

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(NUM_BLOCKS * hidden_dim, input_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(NUM_BLOCKS * hidden_dim, hidden_dim))
        self.input_bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_dim))
        self.recurrent_bias = nn.Parameter(torch.zeros(NUM_BLOCKS * hidden_dim))
        limit = 2 * INITIAL_SPREAD
        for weight in (self.input_weight, self.recurrent_weight):
            nn.init.trunc_normal_(weight, std=INITIAL_SPREAD, a=-limit, b=limit)


class _Recurrence(torch.autograd.Function):
    # With gate inputs a (from x) and u = W h' + b (from the last output h'), per step:
    #   r = sigmoid(a_r + u_r)    k = sigmoid(a_k + u_k)    c = tanh(a_c + r * u_c)    h = k * h' + (1 - k) * c
    # Given dh, the gradient of a step's output (from above and from the next step):
    #   da_c = dh * (1 - k) * (1 - c^2)    du_c = da_c * r
    #   da_k = du_k = dh * (h' - c) * k * (1 - k)
    #   da_r = du_r = da_c * u_c * r * (1 - r) = du_c * u_c * (1 - r)
    #   dh'  = k * dh + W^T du
    # Over all steps: dW = sum of du h'^T, db = sum of du. The factors of dh are computed for all steps at once.
    @staticmethod
    def forward(
        ctx: Any,
        from_inputs_SNR: Tensor,
        recurrent_weight_SRH: Tensor,
        recurrent_bias_SR: Tensor,
        batch_sizes: Sequence[int],
    ) -> Tensor:
        gates_SNR = from_inputs_SNR.clone()
        kernels, parts = kernels_for(gates_SNR), (gates_SNR, recurrent_weight_SRH, recurrent_bias_SR, batch_sizes)
        found = _run_steps(*parts) if kernels is None else gru_steps(kernels, *parts)
        ctx.save_for_backward(recurrent_weight_SRH, gates_SNR, found.read_SNH, found.heard_SNH)
        ctx.batch_sizes = batch_sizes
        return found.outputs_SNH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outputs_grad_SNH: Tensor) -> tuple[Tensor | None, ...]:
        recurrent_weight_SRH, gates_SNR, read_SNH, heard_SNH = ctx.saved_tensors
        reset_SNH, keep_SNH, candidate_SNH = gates_SNR.chunk(NUM_BLOCKS, dim=2)
        # The factors of dh do not depend on later steps.
        to_candidate_SNH = (1 - keep_SNH) * (1 - candidate_SNH.square())
        to_keep_SNH = (read_SNH - candidate_SNH) * keep_SNH * (1 - keep_SNH)
        to_heard_SNH = to_candidate_SNH * reset_SNH
        to_reset_SNH = to_heard_SNH * heard_SNH * (1 - reset_SNH)
        factors_SNR = torch.cat([to_reset_SNH, to_keep_SNH, to_heard_SNH], dim=2)
        grad_SNH, kernels = outputs_grad_SNH.clone(), kernels_for(gates_SNR)
        parts = grad_SNH, gates_SNR, factors_SNR, recurrent_weight_SRH, ctx.batch_sizes
        recurrent_grad_SNR = _step_gradients(*parts) if kernels is None else gru_gradients(kernels, *parts)
        gates_grad_SNR = recurrent_grad_SNR.clone()
        torch.mul(grad_SNH, to_candidate_SNH, out=gates_grad_SNR[:, :, 2 * read_SNH.shape[2] :])
        return gates_grad_SNR, recurrent_grad_SNR.mT @ read_SNH, recurrent_grad_SNR.sum(dim=1), None


def _run_steps(gates_SNR: Tensor, recurrent_SRH: Tensor, bias_SR: Tensor, batch_sizes: Sequence[int]) -> GRUSteps:
    """Do the same as `gru_steps` on any device and type."""
    num_directions, _, hidden_dim = recurrent_SRH.shape
    recurrent_SHR, bias_S1R = recurrent_SRH.mT.contiguous(), bias_SR[:, None]
    shape = 3, num_directions, gates_SNR.shape[1], hidden_dim
    read_SNH, heard_SNH, outputs_SNH = gates_SNR.new_empty(shape).unbind()
    hidden_SbH = gates_SNR.new_zeros(num_directions, batch_sizes[0], hidden_dim)
    for step in steps_of(batch_sizes):
        before_SbH = hidden_SbH[:, : step.stop - step.start]
        recurrent_SbR = torch.baddbmm(bias_S1R, before_SbH, recurrent_SHR)
        switches, candidate_SbH = gates_SNR[:, step].split([2 * hidden_dim, hidden_dim], dim=2)
        from_switches, heard_SbH = recurrent_SbR.split([2 * hidden_dim, hidden_dim], dim=2)
        reset_SbH, keep_SbH = switches.add_(from_switches).sigmoid_().chunk(2, dim=2)
        candidate_SbH.addcmul_(reset_SbH, heard_SbH).tanh_()
        read_SNH[:, step], heard_SNH[:, step] = before_SbH, heard_SbH
        hidden_SbH = outputs_SNH[:, step]
        torch.lerp(candidate_SbH, before_SbH, keep_SbH, out=hidden_SbH)
    return GRUSteps(read_SNH, heard_SNH, outputs_SNH)


def _step_gradients(
    grad_SNH: Tensor, gates_SNR: Tensor, factors_SNR: Tensor, recurrent_SRH: Tensor, batch_sizes: Sequence[int]
) -> Tensor:
    """Do the same as `gru_gradients` on any device and type."""
    num_directions, _, hidden_dim = recurrent_SRH.shape
    keep_SNH, recurrent_grad_SNR = gates_SNR[:, :, hidden_dim : 2 * hidden_dim], torch.empty_like(gates_SNR)
    hidden_grad_SbH = grad_SNH.new_zeros(num_directions, 0, hidden_dim)
    for step in reversed(list(steps_of(batch_sizes))):
        grad_SbH = grad_SNH[:, step]
        grad_SbH[:, : hidden_grad_SbH.shape[1]] += hidden_grad_SbH  # none from sequences that end here
        recurrent_grad_SNR[:, step] = factors_SNR[:, step] * grad_SbH.repeat(1, 1, NUM_BLOCKS)
        hidden_grad_SbH = torch.baddbmm(keep_SNH[:, step] * grad_SbH, recurrent_grad_SNR[:, step], recurrent_SRH)
    return recurrent_grad_SNR
