"""Weights that are mapped from a file: their pages can be given back and are read again when they are needed.

A model from a folder of ours lies in the pages of its file. Once its matrices are packed for the kernels, the originals
are read only to save or to hash the model.
"""

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np
from torch import Tensor

PAGEMAP = Path("/proc/self/pagemap")  # 64 bits per page of this process, see proc(5)
ENTRY_BYTES, FIRST_KIND_BIT = 8, 61
NOWHERE, OF_A_FILE, SWAPPED, IN_MEMORY = 0, 1, 2, 4  # the three highest bits


def release_pages(tensor: Tensor) -> bool:
    """Give back the pages of a tensor that is mapped from a file and unchanged; return whether that was done.

    A tensor of which any page was written to, and one that is no file's, stays as it is. The next access reads the
    pages from the file, mostly from the system's cache. Without effect where pages cannot be looked at.
    """
    if not (sys.platform == "linux" and tensor.is_cpu and tensor.is_contiguous()):
        return False
    size = mmap.PAGESIZE
    begin = -(-tensor.data_ptr() // size) * size
    end = (tensor.data_ptr() + tensor.nbytes) // size * size
    if end <= begin or not _is_unchanged(begin // size, end // size):
        return False
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return bool(madvise(begin, end - begin, mmap.MADV_DONTNEED) == 0)


def _is_unchanged(first: int, last: int) -> bool:
    """Return whether all pages in memory are a file's own: those written to are copies, which belong to no file."""
    try:
        with PAGEMAP.open("rb", buffering=0) as file:
            file.seek(first * ENTRY_BYTES)
            kinds = np.frombuffer(file.read((last - first) * ENTRY_BYTES), dtype=np.uint64) >> FIRST_KIND_BIT
    except OSError:
        return False
    # A page that is nowhere is a file's and was not read yet, or one of new memory, which is zero anyway.
    return len(kinds) == last - first and bool(np.isin(kinds, (NOWHERE, IN_MEMORY | OF_A_FILE)).all())
