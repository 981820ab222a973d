"""An LSTM's matrix products when nothing is learned: with float32 weights, or with eight-bit ones.

Shapes: b rows, P inputs, G outputs.
"""

from typing import Protocol

import torch
from torch import Tensor

from elmokit.kernels import MOST_FEW_ROWS, Kernels, load, quantise, round_to_int8


class Product(Protocol):
    """A matrix that inputs are multiplied with."""

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to what is there."""

    def __call__(self, inputs_bP: Tensor) -> Tensor:
        """Return the product, (b, G)."""


class FloatProduct:
    """The weights as they are."""

    def __init__(self, weight_GP: Tensor) -> None:
        self.weight_GP = weight_GP

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to what is there."""
        kernels = kernels_for(out_bG) if len(inputs_bP) <= MOST_FEW_ROWS else None
        if kernels is None:
            out_bG.addmm_(inputs_bP, self.weight_GP.t())
        else:
            kernels.add_matmul_few_rows(out_bG, inputs_bP, self.weight_GP)

    def __call__(self, inputs_bP: Tensor) -> Tensor:
        """Return the product, (b, G)."""
        kernels = kernels_for(inputs_bP) if len(inputs_bP) <= MOST_FEW_ROWS else None
        if kernels is None:
            return inputs_bP @ self.weight_GP.t()
        out_bG = inputs_bP.new_zeros(len(inputs_bP), len(self.weight_GP))
        kernels.add_matmul_few_rows(out_bG, inputs_bP, self.weight_GP)
        return out_bG


class Int8Product:
    """The weights rounded to eight bits, each output by its own scale; inputs are rounded row by row as they come."""

    def __init__(self, weight_GP: Tensor, kernels: Kernels) -> None:
        self.weight = quantise(weight_GP)
        self.kernels = kernels

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to what is there."""
        self.kernels.matmul_int8(out_bG, inputs_bP, self.weight, accumulate=True)

    def __call__(self, inputs_bP: Tensor) -> Tensor:
        """Return the product, (b, G)."""
        out_bG = torch.empty(len(inputs_bP), self.weight.num_outputs)
        self.kernels.matmul_int8(out_bG, inputs_bP, self.weight, accumulate=False)
        return out_bG


def rounded_product(weight_GP: Tensor) -> Product:
    """A product with the weights in eight bits. Without kernels it is as exact and no faster than float32."""
    kernels = kernels_for(weight_GP)
    return FloatProduct(round_to_int8(weight_GP)) if kernels is None else Int8Product(weight_GP, kernels)


def kernels_for(tensor: Tensor) -> Kernels | None:
    """The compiled kernels, if there are any and they can take such a tensor."""
    return load() if tensor.dtype == torch.float32 and tensor.is_cpu else None
