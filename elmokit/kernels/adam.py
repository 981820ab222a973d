"""Adam's update in one visit to each weight (``adam.c``), cut into parts of equal size, one per thread.

Shapes: R rows, of which some have a gradient; P width.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels


@dataclass(frozen=True)
class AdamPart:
    """A weight, its two running means, and its gradient, all or some rows of a matrix."""

    weight_RP: Tensor
    mean_RP: Tensor
    square_RP: Tensor
    grad: Tensor  # of all rows, or of the listed ones
    step: int  # the number of updates, this one included
    rows: Tensor | None = None  # rising; the gradient of all others is zero
    first_row: int = 0  # of the matrix that the rows are counted in

    def cut(self, first: int, last: int) -> "AdamPart":
        """Return some rows."""
        return replace(
            self,
            weight_RP=self.weight_RP[first:last],
            mean_RP=self.mean_RP[first:last],
            square_RP=self.square_RP[first:last],
            grad=self.grad if self.rows is not None else self.grad[first:last],
            first_row=self.first_row + first,
        )


@dataclass(frozen=True)
class AdamSettings:
    """Values of one step that all weights share."""

    learning_rate: float
    scale: float  # of the gradients, which clips them
    betas: tuple[float, float]
    eps: float


class _Part(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("weights", "mean", "square", "grad", "rows")],
        *[(name, ctypes.c_int64) for name in ("num_listed", "first_row", "num_rows", "width")],
        *[(name, ctypes.c_float) for name in ("rate", "correction")],
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        ("parts", ctypes.c_void_p),
        ("num_parts", ctypes.c_int64),
        *[(name, ctypes.c_float) for name in ("scale", "new_mean", "keep_square", "new_square", "tiny")],
    ]


def halve(parts: Sequence[AdamPart]) -> tuple[list[AdamPart], list[AdamPart]]:
    """Return the first and the second half of all weights."""
    left = sum(part.weight_RP.numel() for part in parts) // 2
    first: list[AdamPart] = []
    second: list[AdamPart] = []
    for part in parts:
        num_rows, width = part.weight_RP.shape
        rows = min(num_rows, left // max(1, width))
        if rows:
            first.append(part.cut(0, rows))
        if rows < num_rows:
            second.append(part.cut(rows, num_rows))
        left = left - num_rows * width if rows == num_rows else 0
    return first, second


def update(kernels: Kernels, parts: Sequence[AdamPart], settings: AdamSettings) -> None:
    """Update weights and running means in place."""
    for part in parts:
        _check(part)
    keep_mean, keep_square = settings.betas
    jobs = (_Part * len(parts))(
        *[
            _Part(
                *[tensor.data_ptr() for tensor in (part.weight_RP, part.mean_RP, part.square_RP, part.grad)],
                None if part.rows is None else part.rows.data_ptr(),
                0 if part.rows is None else len(part.rows),
                part.first_row,
                *part.weight_RP.shape,
                settings.learning_rate / (1 - keep_mean**part.step),
                (1 - keep_square**part.step) ** 0.5,
            )
            for part in parts
        ]
    )
    shares = 1 - keep_mean, keep_square, 1 - keep_square
    step = _Step(ctypes.addressof(jobs), len(parts), settings.scale, *shares, settings.eps)
    kernels.call("adam", ctypes.byref(step))


def _check(part: AdamPart) -> None:
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    width = part.weight_RP.shape[1]
    grad_shape = part.weight_RP.shape if part.rows is None else (len(part.rows), width)
    for tensor, shape in (
        (part.weight_RP, part.weight_RP.shape),
        (part.mean_RP, part.weight_RP.shape),
        (part.square_RP, part.weight_RP.shape),
        (part.grad, grad_shape),
    ):
        is_plain = tensor.dtype == torch.float32 and tensor.is_cpu and tensor.is_contiguous()
        if tensor.shape != shape or not is_plain:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()} on "
                f"{tensor.device}; expected contiguous torch.float32 of shape {tuple(shape)} on cpu"
            )
    if part.rows is not None and not (part.rows.dtype == torch.int64 and part.rows.is_contiguous()):
        raise InputError(f"rows are {part.rows.dtype} with strides {part.rows.stride()}; expected contiguous int64")
