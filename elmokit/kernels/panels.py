"""Helpers of the larger kernels: matrices in panels, and C functions that take a struct of pointers.

Shapes: n rows; M columns of them; q panels; c = PANEL; G outputs; K inputs of a matrix.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.kernels.library import Kernels
from elmokit.kernels.packed import PANEL, PanelWeight

DEPTH, COLUMNS_AT_ONCE = 256, 256  # of panels.h and outer.h


@dataclass(frozen=True)
class Items:
    """Type of the operands of a kernel's products (``items.h``). Sums are float32 either way."""

    dtype: torch.dtype
    suffix: str  # of the kernels' names
    pair: int  # neighbors along a sum that lie side by side in a panel

    def room(self, *shape: int) -> Tensor:
        """Allocate memory for a kernel to write."""
        return torch.empty(shape, dtype=self.dtype, device="cpu")

    def whole_pairs(self, count: int) -> int:
        """Return the count, filled up to whole pairs."""
        return -(-count // self.pair) * self.pair

    def rows(self, matrix_nK: Tensor) -> Tensor:
        """Return the rows of a matrix, rounded and filled up with zeros to whole pairs."""
        return functional.pad(matrix_nK.to(self.dtype), (0, -matrix_nK.shape[1] % self.pair)).contiguous()


FP32, BF16 = Items(torch.float32, "", 1), Items(torch.bfloat16, "_bf16", 2)


def room(*shape: int) -> Tensor:
    """Allocate memory for a kernel to write."""
    # Written out: a program may have set other defaults than C writes.
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def num_panels(count: int) -> int:
    """Return the number of panels that ``count`` columns fill."""
    return -(-count // PANEL)


def repack(
    kernels: Kernels, name: str, matrix: Tensor, panels: Tensor, depth: int, first: int = 0, step: int = 1
) -> None:
    """Pack a matrix into panels, or unpack it, by one of the functions of ``pack.c``."""
    kernels.call(name, matrix.data_ptr(), matrix.stride(0), *matrix.shape, panels.data_ptr(), depth, first, step)


def pack_rows(kernels: Kernels, matrix_GK: Tensor, items: Items = FP32) -> Tensor:
    """Return panels whose columns are rows of the matrix, (q, K, c)."""
    num_rows, num_columns = matrix_GK.shape
    panels_qKc = items.room(num_panels(num_rows), items.whole_pairs(num_columns), PANEL)
    repack(kernels, f"pack_rows{items.suffix}", matrix_GK, panels_qKc, num_columns)
    return panels_qKc


def pack_panels(kernels: Kernels, weight_GK: Tensor) -> PanelWeight:
    """Return a float32 matrix laid out so that a product reads it from beginning to end."""
    return PanelWeight(pack_rows(kernels, weight_GK.detach().contiguous()), *weight_GK.shape)


def pack_columns(kernels: Kernels, matrix_GK: Tensor, items: Items = FP32) -> Tensor:
    """Return panels whose columns are columns of the matrix, (q, G, c)."""
    num_rows, num_columns = matrix_GK.shape
    panels_qGc = items.room(num_panels(num_columns), items.whole_pairs(num_rows), PANEL)
    repack(kernels, f"pack_columns{items.suffix}", matrix_GK, panels_qGc, num_rows)
    return panels_qGc


def outer_panels(kernels: Kernels, rows_nM: Tensor, panels_qnc: Tensor, items: Items = FP32) -> Tensor:
    """Return the sums over n of rows times panels, (q, M, c). Both are items, and neither is in pairs."""
    num_rows, num_columns = rows_nM.shape
    found_qMc = room(len(panels_qnc), num_columns, PANEL)
    if not num_rows:
        return found_qMc.zero_()
    tiles = tiles_room(items, num_rows, num_columns)
    where = rows_nM.data_ptr(), rows_nM.stride(0), panels_qnc.data_ptr()
    counts = num_rows, num_columns, len(panels_qnc)
    kernels.call(f"outer_panels{items.suffix}", *where, *counts, tiles.data_ptr(), found_qMc.data_ptr())
    return found_qMc


def tiles_room(items: Items, num_rows: int, num_columns: int) -> Tensor:
    """Allocate memory in which a product over rows lays them out (``outer.h``)."""
    return items.room(max(COLUMNS_AT_ONCE * DEPTH, items.whole_pairs(num_rows) * num_columns))


def job_type(head: type[ctypes.Structure], *names: str) -> type[ctypes.Structure]:
    """Return the type of a C struct: ``head``, then one pointer per name."""
    members = [("head", head), *[(name, ctypes.c_void_p) for name in names]]
    return type("Job", (ctypes.Structure,), {"_fields_": members})


def call_job(kernels: Kernels, name: str, job: ctypes.Structure, parts: dict[str, Tensor]) -> None:
    """Fill the pointers of a struct and call a C function with it."""
    for part, tensor in parts.items():
        setattr(job, part, tensor.data_ptr())
    kernels.call(name, ctypes.byref(job))
