"""A gated mix of a layer's input and its transform, where a character encoder spends most of its time.

In training on a CPU, everything between the matrix products is one pass over memory forward and one backward.

Shapes: W words, F width.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.kernels.library import Kernels
from elmokit.kernels.linear import add_input_gradient, multiply, weight_gradient
from elmokit.model.products import ProductCache, apply_linear, kernels_for, learns
from elmokit.model.uncompiled import uncompiled


class Highway(nn.Module):
    """A gated mix of a layer's input and its transform.

    The gate opens the *transform*; bilm-tf names the same weights "carry".
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        self.transform = nn.Linear(dim, dim)
        for linear in (self.gate, self.transform):
            nn.init.normal_(linear.weight, std=math.sqrt(1.0 / dim))
            nn.init.zeros_(linear.bias)
        nn.init.constant_(self.gate.bias, -2.0)  # starts near the identity
        self.products = ProductCache()
        self.mixed = False  # whether it is trained with products in bfloat16, by the kernels

    @uncompiled
    def forward(self, inputs_WF: Tensor) -> Tensor:
        """Return the mix, (W, F)."""
        kernels = None if torch.is_autocast_enabled(inputs_WF.device.type) else kernels_for(inputs_WF)
        weights = self.gate.weight, self.gate.bias, self.transform.weight, self.transform.bias
        if kernels is not None and learns(inputs_WF, *weights):
            mixed_WF: Tensor = _LearningMix.apply(  # type: ignore[no-untyped-call]
                kernels, self.mixed, inputs_WF.contiguous(), *weights
            )
            return mixed_WF
        gate_WF = apply_linear(self.gate, inputs_WF, self.products, name="gate")
        transform_WF = apply_linear(self.transform, inputs_WF, self.products, name="transform")
        if kernels is not None:
            return kernels.highway_forward(gate_WF, transform_WF, inputs_WF.contiguous())
        return torch.lerp(inputs_WF, torch.relu(transform_WF), torch.sigmoid(gate_WF))


class _LearningMix(torch.autograd.Function):
    """The mix by the kernels, and its backward pass. With ``mixed``, its products are in bfloat16."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        mixed: bool,  # noqa: FBT001  autograd passes no names
        inputs_WF: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        transform_weight: Tensor,
        transform_bias: Tensor,
    ) -> Tensor:
        if mixed:
            gate_WF = multiply(kernels, inputs_WF, gate_weight, gate_bias)
            transform_WF = multiply(kernels, inputs_WF, transform_weight, transform_bias)
        else:
            gate_WF = torch.addmm(gate_bias, inputs_WF, gate_weight.t())
            transform_WF = torch.addmm(transform_bias, inputs_WF, transform_weight.t())
        mixed_WF = kernels.highway_forward(gate_WF, transform_WF, inputs_WF)
        ctx.kernels, ctx.mixed = kernels, mixed
        ctx.save_for_backward(gate_WF, transform_WF, inputs_WF, gate_weight, transform_weight)
        return mixed_WF

    # y = s * r + (1 - s) * x  with  s = sigmoid(z),  z = x Wg^T + bg,  r = relu(h),  h = x Wt^T + bt
    # Backward, with g = dL/dy:
    #   dz = g * (r - x) * s * (1 - s)          dh = g * s * [h > 0]
    #   dL/dx  = g * (1 - s) + dz Wg + dh Wt
    #   dL/dWg = dz^T x,  dL/dbg = sum over words of dz
    #   dL/dWt = dh^T x,  dL/dbt = sum over words of dh
    # The kernel computes dz, dh and g * (1 - s); the products follow here.
    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, mixed_grad_WF: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of inputs, weights and biases."""
        gate_WF, transform_WF, inputs_WF, *weights = ctx.saved_tensors
        kernels: Kernels = ctx.kernels
        found = kernels.highway_backward(mixed_grad_WF.contiguous(), gate_WF, transform_WF, inputs_WF)
        grads = found.gate_WF, found.transform_WF
        if ctx.needs_input_grad[2]:
            for grad_WF, weight in zip(grads, weights, strict=True):
                if ctx.mixed:
                    add_input_gradient(kernels, grad_WF, weight, found.inputs_WF)
                else:
                    found.inputs_WF.addmm_(grad_WF, weight)
        parameter_grads: list[Tensor | None] = []
        for grad_WF, needed in zip(grads, ctx.needs_input_grad[3::2], strict=True):
            weight_grad = None
            if needed:
                weight_grad = weight_gradient(kernels, grad_WF, inputs_WF) if ctx.mixed else grad_WF.t() @ inputs_WF
            parameter_grads += [weight_grad, grad_WF.sum(dim=0)]
        return None, None, found.inputs_WF if ctx.needs_input_grad[2] else None, *parameter_grads
