"""Run a test on each implementation of the kernels: every instruction set of the library, and plain torch."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elmokit.kernels import library

INSTRUCTION_SETS = ("baseline", "avx2", "avx512", "avx512bf16", "amxbf16")
OFF = "off"


def runnable_paths() -> list[str]:
    """Return the instruction sets that this machine can run, and ``off`` for torch alone."""
    compiled = library.open_library()
    if compiled is None:
        return [OFF]
    compiled.best_isa.restype = ctypes.c_char_p
    best = INSTRUCTION_SETS.index(compiled.best_isa().decode())
    return [*INSTRUCTION_SETS[: best + 1], OFF]


@contextmanager
def kernel_path(name: str) -> Iterator[None]:
    """Run the block with the kernels of one instruction set, or with ``off`` in torch alone."""
    with pytest.MonkeyPatch.context() as patch:
        if name == OFF:
            patch.setenv("ELMOKIT_KERNELS", OFF)
        else:
            compiled = library.open_library()
            assert compiled is not None
            patch.delenv("ELMOKIT_KERNELS", raising=False)
            patch.setattr(library, "open_library", lambda: _OneInstructionSet(compiled, name))
        library.load.cache_clear()
        kernels = library.load()
        assert (OFF if kernels is None else kernels.isa) == name
        yield
    library.load.cache_clear()


class _OneInstructionSet:
    """The compiled library, as a machine sees it whose best instruction set is ``isa``."""

    def __init__(self, compiled: ctypes.CDLL, isa: str) -> None:
        self._compiled = compiled
        self.best_isa: Callable[[], bytes] = lambda: isa.encode()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)
