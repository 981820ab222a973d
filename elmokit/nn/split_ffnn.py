"""Feed-forward scorer of items made of several parts, which are never concatenated.

The first layer is linear: ``W [a; b] = W_a a + W_b b``. Where many items share few parts, such as spans that begin at
the same token, every part is multiplied once by its block of the weights, and the products are added.

Shapes: N items, H hidden width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.nn.basic import check_dropout, draw_kept


class SplitFFNN(nn.Module):
    """Hidden layers with ReLU and dropout, then one score per item."""

    def __init__(self, part_dims: Sequence[int], hidden_dims: Sequence[int], *, dropout: float) -> None:
        super().__init__()
        self.part_dims = tuple(part_dims)
        sizes = [sum(part_dims), *hidden_dims]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.score = nn.Linear(sizes[-1], 1)
        self.dropout = check_dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize weights Glorot-uniformly, each layer as one matrix, and biases with zeros."""
        for layer in (*self.layers, self.score):
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        """Blocks of the first layer's weights, one per part, each (H, width of the part)."""
        pieces: tuple[Tensor, ...] = self._first.weight.split(self.part_dims, dim=1)
        return pieces

    @property
    def bias(self) -> Tensor:
        """Bias of the first layer, (H,)."""
        return self._first.bias

    def forward(self, first_NH: Tensor) -> Tensor:
        """Return the scores of items, (N,), from their first layer before the ReLU: products of the parts, and bias."""
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
    """ReLU, then dropout. For all pairs of spans, torch's own takes as long as the matrix products."""

    # y = m * max(x, 0) / (1 - p), with m = 0 for dropped values and 1 for the others.
    # dx = dy / (1 - p) where y > 0, else 0: y is positive exactly where x is positive and not dropped, so that
    # neither x nor m is saved.

    @staticmethod
    def forward(ctx: Any, sums_NH: Tensor, rate: float) -> Tensor:
        scale = 1 / (1 - rate)
        activated_NH = (sums_NH * scale).clamp_(min=0)
        activated_NH.mul_(draw_kept(sums_NH.shape, rate, sums_NH.device))
        ctx.save_for_backward(activated_NH)
        ctx.scale = scale
        return activated_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, activated_grad_NH: Tensor) -> tuple[Tensor, None]:
        (activated_NH,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(activated_grad_NH, activated_NH, 0).mul_(ctx.scale), None
