"""An LSTM layer under autograd by the compiled whole-layer kernel: one call forward, one backward.

The states in which it starts and ends carry no gradient: training truncates backpropagation there.

Shapes: N positions of all rows, packed; B rows; P width; C cells; G = 4 C gates.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, autograd
from torch.autograd.function import once_differentiable

from elmokit.kernels.layer import LayerTape, LayerWeights, final_state, layer_gradients, run_layer
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import Items
from elmokit.model.uncompiled import uncompiled


class KernelLayer(autograd.Function):
    """Outputs (N, P), and the hidden (B, P) and cell (B, C) state in which every row ended."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        inputs_NP: Tensor,
        input_weight_GP: Tensor,
        recurrent_weight_GP: Tensor,
        bias_G: Tensor,
        projection_PC: Tensor,
        batch_sizes: Sequence[int],
        start: tuple[Tensor, Tensor],
        clips: tuple[float, float],
        items: Items,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layer. ``bias_G`` includes the forget bias; ``start`` is the hidden and the cell state."""
        weights = LayerWeights(input_weight_GP, recurrent_weight_GP, bias_G, projection_PC, *clips, items)
        tape = run_layer(kernels, inputs_NP, batch_sizes, *start, weights)
        hidden_BP, cell_BC = final_state(tape, *start)
        ctx.kernels, ctx.clips, ctx.items, ctx.is_used = kernels, clips, items, False
        parts = weights.input_GP, weights.recurrent_GP, weights.bias_G, weights.projection_PC
        ctx.save_for_backward(*parts, *tape.tensors())
        ctx.mark_non_differentiable(hidden_BP, cell_BC)
        return tape.outputs_NP, hidden_BP, cell_BC

    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, outputs_grad_NP: Tensor, *_state_grads: None) -> tuple[Tensor | None, ...]:
        """Return the gradients of inputs and weights."""
        (cell_clip, proj_clip), parts = ctx.clips, ctx.saved_tensors
        weights = LayerWeights(parts[0], parts[1], parts[2], parts[3], cell_clip, proj_clip, ctx.items)
        tape = LayerTape(*parts[4:])
        if ctx.is_used:  # a graph that was retained
            tape = tape.rerun(ctx.kernels, weights)
        ctx.is_used = True
        found = layer_gradients(ctx.kernels, tape, outputs_grad_NP, weights)
        grads = found.inputs_NP, found.input_GP, found.recurrent_GP, found.bias_G, found.projection_PC
        return None, *grads, None, None, None, None
