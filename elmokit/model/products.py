"""A model's matrix products: by torch, or by the compiled kernels.

Shapes: b rows, P inputs, G outputs.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from elmokit.kernels.library import Kernels, load
from elmokit.kernels.mapped import release_pages
from elmokit.kernels.panels import pack_panels

Version = tuple[int, int]


class Product(Protocol):
    """A matrix (G, P) that rows are multiplied with."""

    def write_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Write the product to ``out_bG``."""

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to ``out_bG``."""


class TorchProduct:
    """The weights unchanged, multiplied by torch."""

    def __init__(self, weight_GP: Tensor) -> None:
        self.weight_GP = weight_GP.detach()

    def write_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Write the product to ``out_bG``."""
        torch.mm(inputs_bP, self.weight_GP.t(), out=out_bG)

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to ``out_bG``."""
        out_bG.addmm_(inputs_bP, self.weight_GP.t())


class PanelProduct:
    """The weights laid out for the kernel: a copy, which does not follow later changes."""

    def __init__(self, weight_GP: Tensor, kernels: Kernels) -> None:
        self.weight = pack_panels(kernels, weight_GP)
        self.kernels = kernels

    def write_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Write the product to ``out_bG``."""
        self.kernels.matmul_panels(out_bG, inputs_bP, self.weight, accumulate=False)

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to ``out_bG``."""
        self.kernels.matmul_panels(out_bG, inputs_bP, self.weight, accumulate=True)


class MixedProduct:
    """Weights, inputs and their product rounded to bfloat16, sums in float32: for GPUs, and without kernels."""

    def __init__(self, weight_GP: Tensor) -> None:
        self.weight_GP = weight_GP.detach().bfloat16()

    def write_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Write the product to ``out_bG``."""
        out_bG.copy_(inputs_bP.bfloat16() @ self.weight_GP.t())

    def add_to(self, out_bG: Tensor, inputs_bP: Tensor) -> None:
        """Add the product to ``out_bG``."""
        out_bG += inputs_bP.bfloat16() @ self.weight_GP.t()


class ProductCache:
    """Products with a module's weights: by torch, or by the kernels once the module is packed.

    Packed weights are copies, made at first use and again whenever a weight has changed. A write through ``.data``
    leaves no trace, so only the owner of a model may pack it.
    """

    def __init__(self) -> None:
        self.packed = False
        self._made: dict[str, tuple[Version, Product]] = {}

    def __reduce__(self) -> tuple[type["ProductCache"], tuple[()]]:
        """Start empty in a copy, and on another machine."""
        return ProductCache, ()

    def get(self, name: str, weight_GP: Tensor, make: Callable[[Tensor], Product]) -> Product:
        """Return the product with a weight; one weight always has the same name and the same maker."""
        if not self.packed:
            return TorchProduct(weight_GP)
        version = version_of(weight_GP)
        made = self._made.get(name)
        if made is None or made[0] != version:
            made = self._made[name] = version, make(weight_GP)
            if not isinstance(made[1], TorchProduct):
                release_pages(weight_GP)
        return made[1]


def version_of(weight: Tensor) -> Version:
    """Return what changes whenever a weight is replaced or written to."""
    # A tensor made in inference mode has no version, and cannot be written to outside of it.
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def exact_product(weight_GP: Tensor) -> Product:
    """Return the fastest product with the weights as they are now."""
    kernels = kernels_for(weight_GP)
    return TorchProduct(weight_GP) if kernels is None else PanelProduct(weight_GP, kernels)


def apply_linear(linear: nn.Linear, inputs_bP: Tensor, ready: ProductCache, *, name: str = "") -> Tensor:
    """Return the layer's outputs, (b, G).

    With packed weights the bits of a row do not depend on the other rows.
    """
    if learns(inputs_bP, linear.weight, linear.bias):
        outputs: Tensor = linear(inputs_bP)
        return outputs.to(inputs_bP.dtype)  # under autocast only the product is in fewer bits
    out_bG = linear.bias.detach().repeat(len(inputs_bP), 1)
    ready.get(name, linear.weight, exact_product).add_to(out_bG, inputs_bP)
    return out_bG


def learns(*tensors: Tensor) -> bool:
    """Return whether any of the tensors needs a gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def kernels_for(tensor: Tensor) -> Kernels | None:
    """Return the compiled kernels if there are any and they support such a tensor, else None."""
    return load() if tensor.dtype == torch.float32 and tensor.is_cpu else None
