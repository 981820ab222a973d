"""The character CNN by table look-up.

A convolution over characters is a sum of terms that each depend on one place of the window and one character. All
terms are computed once per step, a few million operations whatever the text; words then look them up.

Shapes: W words, C characters per word, F filters together.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.kernels.library import CharTables, Kernels, build_char_tables, conv_gradients
from elmokit.model.products import Version, version_of
from elmokit.model.uncompiled import uncompiled


class TableCache:
    """The tables of a character CNN, built at first use and again whenever a weight has changed."""

    def __init__(self) -> None:
        self.packed = False
        self._built: tuple[list[Version], CharTables] | None = None

    def __reduce__(self) -> tuple[type["TableCache"], tuple[()]]:
        """Start empty in a copy, and on another machine."""
        return TableCache, ()

    def get(
        self, char_embedding: Tensor, convs: Sequence[tuple[Tensor, Tensor]], *, activation: Literal["relu", "tanh"]
    ) -> CharTables:
        """Return the tables of these weights; ``convs`` are (weight, bias) per filter width."""
        versions = [version_of(weight) for weight in (char_embedding, *(part for conv in convs for part in conv))]
        if self._built is None or self._built[0] != versions:
            self._built = versions, build_char_tables(char_embedding, convs, activation=activation)
        return self._built[1]


class TablePool(torch.autograd.Function):
    """Maximum of every filter over the word, after bias and activation, (W, F).

    The input is integer, so gradients flow to the character embedding, the filters and their biases alone.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        char_ids_WC: Tensor,
        activation: Literal["relu", "tanh"],
        char_embedding: Tensor,
        *convs: Tensor,
    ) -> Tensor:
        """``convs`` are the filters of every width, then their biases."""
        weights, biases = convs[: len(convs) // 2], convs[len(convs) // 2 :]
        filters = list(zip(weights, biases, strict=True))
        tables = build_char_tables(char_embedding, filters, activation=activation, precision=torch.float32)
        pooled_WF, winners_WF = kernels.char_pool_learning(char_ids_WC, tables)
        ctx.kernels, ctx.tables, ctx.counts = kernels, tables, [len(bias) for bias in biases]
        ctx.save_for_backward(char_ids_WC, winners_WF, pooled_WF, char_embedding, *weights)
        return pooled_WF

    # For filter f of width w, word k and window t, with character c_j at place j:
    #   T[f, i, c] = sum_e embedding[c, e] * weight[f, e, i]            the table
    #   a[k, f]    = max_t sum_i T[f, i, c_(t+i)] + bias[f],  t* its window
    # and y = act(a) is returned.
    # Backward, with g = dL/dy * act'(a), where act'(a) = [y > 0] for relu and 1 - y^2 for tanh:
    #   dL/dbias[f]         = sum_k g[k, f]
    #   dL/dT[f, i, c]      = sum of g[k, f] over words k with character c at place t* + i
    #   dL/dweight[f, e, i] = sum_c embedding[c, e] * dL/dT[f, i, c]
    #   dL/dembedding[c, e] = sum_(f, i) weight[f, e, i] * dL/dT[f, i, c]
    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, pooled_grad_WF: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the character embedding, the filters and their biases."""
        char_ids_WC, winners_WF, pooled_WF, char_embedding, *weights = ctx.saved_tensors
        slope_WF = (pooled_WF > 0) if ctx.tables.activation == "relu" else 1 - pooled_WF * pooled_WF
        answer_grad_WF = (pooled_grad_WF * slope_WF).contiguous()
        table_grad = ctx.kernels.char_pool_backward(char_ids_WC, winners_WF, answer_grad_WF, ctx.tables)
        found = conv_gradients(table_grad, char_embedding, weights)
        bias_grads = answer_grad_WF.sum(dim=0).split(ctx.counts)
        return None, None, None, found.char_embedding, *found.weights, *bias_grads
