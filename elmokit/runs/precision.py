"""Precision of large matrix products in training: the one asked for, or the one that the device is made for."""

from typing import Literal

import torch

from elmokit.config import AskedPrecision
from elmokit.kernels.library import load
from elmokit.kernels.native_bf16 import trains_in_bf16


def precision_on(device: torch.device, asked: AskedPrecision) -> Literal["fp32", "bf16"]:
    """Return the precision asked for; for ``auto`` bfloat16 on a device that has instructions for it."""
    if asked != "auto":
        return asked
    if device.type == "cpu":
        kernels = load()
        return "bf16" if kernels is not None and trains_in_bf16(kernels) else "fp32"
    # Older GPUs emulate bfloat16, which torch counts as supported by default.
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"
