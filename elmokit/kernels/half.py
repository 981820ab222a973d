"""Products of float16 rows with a vector (``half.c``), the rows shared among threads.

Shapes: N rows, D width.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels

ROWS_PER_THREAD = 16_384  # fewer take less time than a thread


def multiply_rows(kernels: Kernels, rows_ND: Tensor, vector_D: Tensor) -> Tensor:
    """Return ``rows . vector`` with float32 sums, (N,). Every product depends on its own row alone.

    Args:
        kernels: the compiled kernels.
        rows_ND: contiguous float16 rows in CPU memory, finite.
        vector_D: contiguous float32.
    """
    _check(rows_ND, vector_D)
    num_rows, width = rows_ND.shape
    products_N = torch.empty(num_rows, dtype=torch.float32, device="cpu")
    num_threads = max(1, min(torch.get_num_threads(), num_rows // ROWS_PER_THREAD))

    def run(part: int) -> None:
        first, last = (num_rows * place // num_threads for place in (part, part + 1))
        rows, products = rows_ND.data_ptr() + 2 * first * width, products_N.data_ptr() + 4 * first
        kernels.call("half_products", rows, vector_D.data_ptr(), products, last - first, width)

    if num_threads == 1:
        run(0)
    else:
        with ThreadPoolExecutor(num_threads) as threads:
            list(threads.map(run, range(num_threads)))
    return products_N


def _check(rows_ND: Tensor, vector_D: Tensor) -> None:
    # A wrong shape would make a kernel read other memory, so this is never left out.
    for tensor, dtype, shape in (
        (rows_ND, torch.float16, (*rows_ND.shape[:1], *vector_D.shape)),
        (vector_D, torch.float32, (vector_D.numel(),)),
    ):
        if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_cpu or not tensor.is_contiguous():
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()} on "
                f"{tensor.device}; expected contiguous {dtype} of shape {tuple(shape)} on cpu"
            )
