"""torch's optimizers by name, as every training loop builds them."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

FIRST_SUM = 1.0  # of squared gradients. TensorFlow's Adagrad starts there, and has no epsilon


TINY = 1e-10


# Fused: one pass over the weights where the plain form takes seven, each of them as slow as memory is.
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adagrad": lambda parameters: torch.optim.Adagrad(
        parameters, initial_accumulator_value=FIRST_SUM, eps=TINY, fused=_all_on_cpu(parameters)
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, fused=_all_on_cpu(parameters)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, fused=True),
}


def _all_on_cpu(parameters: Iterable[nn.Parameter]) -> bool:
    # On a GPU torch has no fused Adagrad, and keeps the steps of a fused Adam elsewhere than those of a plain one.
    return all(parameter.is_cpu for parameter in parameters)
