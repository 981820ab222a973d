"""Make modules for saved tensors: sizes are compared before memory is allocated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmokit.errors import WeightsError
from elmokit.weights.saved import check_shapes, shapes_of


def check_buildable(build: Callable[[], nn.Module], tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Reject tensors that are not those of the module that ``build`` makes. It is built without memory."""
    try:
        with without_memory():
            expected = shapes_of(build().state_dict())
    except (RuntimeError, OverflowError, TypeError) as error:
        raise WeightsError(f"{source}: the config has sizes that no model can have ({str(error)[:100]})") from error
    check_shapes(shapes_of(tensors), expected, source=source)


@contextmanager
def without_memory() -> Iterator[None]:
    """Make tensors that have shapes but no data, and skip the random start of weights."""
    with _NoDraws(), torch.device("meta"):
        yield


class _NoDraws(TorchFunctionMode):
    """Skip the random start of weights that have no data: the first draw would import torch's compiler, for 1 s."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, unless it is one of ``torch.nn.init``; these take and return the tensor to fill."""
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
