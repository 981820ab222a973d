"""Functions that `torch.compile` must leave alone.

The compiled kernels get the addresses of tensors. A traced function may free such a tensor before the kernel has
written to it, because the trace no longer sees it used. Besides, a loop over the steps of a batch would be compiled
anew for every batch.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def uncompiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a function, and all that it calls, as it is written, also where its caller is compiled.

    Does what `torch.compiler.disable` does, but imports the compiler only where something else did: that takes seconds.
    """
    disabled: Callable[Arguments, Result] | None = None

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    # The compiler counts its attempts per code object, and gives up loudly after eight: no two functions share one.
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return wraps(function)(call)
