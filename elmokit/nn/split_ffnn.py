"""A feed-forward network that scores things made of several parts, without ever setting the parts side by side.

Its first layer is linear: ``W [a; b] = W_a a + W_b b``. Where many things share few parts, such as spans that begin at
the same token, every part is multiplied once by its piece of the weights, and the results are added up.

Shapes: N things, H hidden width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.nn.basic import check_dropout, draw_dropped


class SplitFFNN(nn.Module):
    """Hidden layers with relu and dropout, then one score a thing."""

    def __init__(self, part_dims: Sequence[int], hidden_dims: Sequence[int], *, dropout: float) -> None:
        super().__init__()
        self.part_dims = tuple(part_dims)
        sizes = [sum(part_dims), *hidden_dims]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.score = nn.Linear(sizes[-1], 1)
        self.dropout = check_dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights, each layer as the one matrix that it is; zero biases."""
        for layer in (*self.layers, self.score):
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        """The first layer's weights for every part, each (H, width of the part)."""
        pieces: tuple[Tensor, ...] = self._first.weight.split(self.part_dims, dim=1)
        return pieces

    @property
    def bias(self) -> Tensor:
        """What the first layer adds to the parts' sum, (H,)."""
        return self._first.bias

    def forward(self, first_NH: Tensor) -> Tensor:
        """The scores of things, (N,), from the sum of their parts, each times its piece, and of the bias."""
        hidden_NH = self._activate(first_NH)
        for layer in self.layers[1:]:
            hidden_NH = self._activate(layer(hidden_NH))
        scores_N: Tensor = self.score(hidden_NH).squeeze(-1)
        return scores_N

    @property
    def _first(self) -> nn.Linear:
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        return layer

    def _activate(self, sums_NH: Tensor) -> Tensor:
        if not self.training or not self.dropout:
            return sums_NH.relu()
        activated_NH: Tensor = _ReluDropout.apply(sums_NH, self.dropout)  # type: ignore[no-untyped-call]
        return activated_NH


class _ReluDropout(torch.autograd.Function):
    """Relu, then dropout. There are so many pairs that torch's own takes as long as the products before it.

    What is positive in the end is what has a gradient.
    """

    @staticmethod
    def forward(ctx: Any, sums_NH: Tensor, rate: float) -> Tensor:
        scale = 1 / (1 - rate)
        activated_NH = (sums_NH * scale).clamp_(min=0)
        activated_NH.masked_fill_(draw_dropped(sums_NH.shape, rate, sums_NH.device), 0.0)
        ctx.save_for_backward(activated_NH)
        ctx.scale = scale
        return activated_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, activated_grad_NH: Tensor) -> tuple[Tensor, None]:
        (activated_NH,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(activated_grad_NH, activated_NH, 0).mul_(ctx.scale), None
