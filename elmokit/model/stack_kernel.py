"""The layers of one direction by one C call, wherever no gradient is asked for.

Shapes: N positions of all rows, packed; P width; C cells; G = 4 C gates.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from elmokit.kernels.library import Kernels
from elmokit.kernels.mapped import release_pages
from elmokit.kernels.stack import PackedStack, Precision, StackLayer, choose_form, pack_stack
from elmokit.model.products import Version, version_of

FORGET_BIAS = 1.0  # added at run time, never stored: the published files hold the bias without it
DEFAULT: Precision = "fp32"
WORTH_PACKING = 128  # positions; weights that are not kept are packed for one call only if it has as many


def limit(clip: float | None) -> float:
    """Return a clip as the kernels expect it: NaN for none."""
    return math.nan if clip is None else clip


def with_forget_bias(bias_G: Tensor) -> Tensor:
    """Return a copy of the biases, the forget gates' increased."""
    num_cells = bias_G.shape[0] // 4
    bias_G = bias_G.clone()
    bias_G[num_cells : 2 * num_cells] += FORGET_BIAS
    return bias_G


class StackCache:
    """The packed weights of one direction.

    Packed weights are copies, made at first use and again whenever a weight has changed. A write through ``.data``
    leaves no trace, so they are kept only if the owner of the model has asked for it.
    """

    def __init__(self) -> None:
        self.keeps, self.precision = False, DEFAULT
        self._made: tuple[tuple[list[Version], Precision], PackedStack] | None = None

    def __reduce__(self) -> tuple[type["StackCache"], tuple[()]]:
        """Start empty in a copy, and on another machine."""
        return StackCache, ()

    def get(
        self, kernels: Kernels, layers: Sequence[StackLayer], *, has_skip: bool, num_positions: int
    ) -> PackedStack | None:
        """Return the packed weights; None if packing them takes longer than such a short call gains.

        The biases of ``layers`` are those of the modules, without the forget bias.
        """
        if not self.keeps:
            return self._pack(kernels, layers, has_skip=has_skip) if num_positions >= WORTH_PACKING else None
        key = [version_of(weight) for layer in layers for weight in _tensors(layer)], self.precision
        if self._made is None or self._made[0] != key:
            self._made = key, self._pack(kernels, layers, has_skip=has_skip)
            for layer in layers:
                for weight in _tensors(layer):
                    release_pages(weight)
        return self._made[1]

    def _pack(self, kernels: Kernels, layers: Sequence[StackLayer], *, has_skip: bool) -> PackedStack:
        biased = [replace(layer, bias_G=with_forget_bias(layer.bias_G.detach())) for layer in layers]
        return pack_stack(kernels, biased, has_skip=has_skip, form=choose_form(kernels, self.precision))


def _tensors(layer: StackLayer) -> list[Tensor]:
    parts = layer.input_GP, layer.recurrent_GP, layer.bias_G, layer.projection_PC
    return [part for part in parts if part is not None]
