"""Check of a CPU for training in bfloat16: it has the instructions, and they give the gradients of float32."""

import math
from functools import cache

import torch

from elmokit.kernels.layer import LayerWeights, layer_gradients, run_layer
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import BF16, FP32, Items

CELLS, WIDTH, ROWS, STEPS = 33, 17, 5, 3  # none a multiple of a register
LARGEST_ERROR = 0.03  # relative; rounding operands to 8 bits leaves a third of it


@cache
def trains_in_bf16(kernels: Kernels) -> bool:
    """Return True if the CPU has bfloat16 and a small layer has the same gradients in it, within its rounding."""
    return kernels.has_bf16 and bf16_error(kernels) < LARGEST_ERROR


def bf16_error(kernels: Kernels) -> float:
    """Return how far the gradients of a small layer in bfloat16 are from those in float32, relative to their norm."""
    exact, rounded = (_gradients(kernels, items) for items in (FP32, BF16))
    return float((exact - rounded).norm() / exact.norm())


def _gradients(kernels: Kernels, items: Items) -> torch.Tensor:
    random = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(shape, generator=random, dtype=torch.float32, device="cpu")
        return drawn.div(math.sqrt(shape[-1]))

    gates = 4 * CELLS
    weights = LayerWeights(
        draw(gates, WIDTH), draw(gates, WIDTH), draw(gates), draw(WIDTH, CELLS), torch.nan, torch.nan, items
    )
    tape = run_layer(kernels, draw(ROWS * STEPS, WIDTH), [ROWS] * STEPS, draw(ROWS, WIDTH), draw(ROWS, CELLS), weights)
    found = layer_gradients(kernels, tape, draw(ROWS * STEPS, WIDTH), weights)
    parts = found.inputs_NP, found.input_GP, found.recurrent_GP, found.bias_G, found.projection_PC
    return torch.cat([part.flatten() for part in parts])
