"""An LSTM cell between its matrix products: forward, and backward for a hand-written gradient.

A row of gates is four blocks of C: input, forget, output, candidate. By the compiled kernels where there are any.

Shapes: b rows alive at a step; C cells; G = 4 C gates.
"""

import torch
from torch import Tensor

from elmokit.model.products import kernels_for


def advance_cell(
    gates_bG: Tensor,
    before_bC: Tensor,
    after_bC: Tensor,
    squashed_bC: Tensor,
    clip: float | None,
    *,
    keep_gates: bool,
) -> None:
    """Write the new cell and what it lets out, ``squashed_bC``; ``keep_gates`` squashes the gates in place."""
    kernels = kernels_for(gates_bG)
    if kernels is not None:
        kernels.cell_forward(gates_bG, before_bC, after_bC, squashed_bC, clip=clip, keep_gates=keep_gates)
        return
    num_cells = before_bC.shape[1]
    gates_bG[:, : 3 * num_cells].sigmoid_()
    gates_bG[:, 3 * num_cells :].tanh_()
    let_in, forget, let_out, candidate = gates_bG.chunk(4, dim=1)
    torch.mul(forget, before_bC, out=after_bC)
    after_bC.addcmul_(let_in, candidate)
    if clip is not None:
        after_bC.clamp_(-clip, clip)
    torch.tanh(after_bC, out=squashed_bC).mul_(let_out)


def cell_backward(
    grad_bC: Tensor,
    gates_bG: Tensor,
    after_bC: Tensor,
    before_bC: Tensor,
    cell_grad_bC: Tensor,
    gates_grad_bG: Tensor,
    clip: float | None,
) -> None:
    """From the gradient of what the cell let out to those of its gates; moves ``cell_grad_bC`` one step back."""
    kernels = kernels_for(gates_bG)
    if kernels is not None:
        kernels.cell_backward(grad_bC, gates_bG, after_bC, before_bC, cell_grad_bC, gates_grad_bG, clip=clip)
        return
    let_in, forget, let_out, candidate = gates_bG.chunk(4, dim=1)
    in_grad, forget_grad, out_grad, candidate_grad = gates_grad_bG.chunk(4, dim=1)
    squashed_bC = after_bC.tanh()
    torch.mul(grad_bC * squashed_bC, let_out * (1 - let_out), out=out_grad)
    cell_grad_bC.addcmul_(grad_bC * let_out, 1 - squashed_bC * squashed_bC)
    stop_at_clip(cell_grad_bC, after_bC, clip)
    torch.mul(cell_grad_bC * candidate, let_in * (1 - let_in), out=in_grad)
    torch.mul(cell_grad_bC * before_bC, forget * (1 - forget), out=forget_grad)
    torch.mul(cell_grad_bC * let_in, 1 - candidate * candidate, out=candidate_grad)
    cell_grad_bC.mul_(forget)


def stop_at_clip(grad: Tensor, clipped: Tensor, clip: float | None) -> None:
    """Let no gradient through where a value was clipped."""
    if clip is not None:
        grad.masked_fill_(clipped.abs() >= clip, 0.0)
