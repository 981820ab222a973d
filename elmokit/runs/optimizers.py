"""torch's optimizers by name, as every training loop builds them."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from elmokit.errors import ConfigError

FIRST_SUM = 1.0  # Adagrad's initial sum of squared gradients, as in TensorFlow, which has no epsilon
TINY = 1e-10

# Fused: one pass over the weights instead of seven. Each pass is limited by memory bandwidth.
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adagrad": lambda parameters: torch.optim.Adagrad(
        parameters, initial_accumulator_value=FIRST_SUM, eps=TINY, fused=_all_on_cpu(parameters)
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, fused=_all_on_cpu(parameters)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, fused=True),
}


def check_finite(name: str, value: float) -> None:
    """Raise ConfigError if a loss or a norm is infinite or NaN: training has diverged."""
    if not math.isfinite(value):
        raise ConfigError(
            f"{name} is {value}: training has diverged; start a new run in another folder, "
            "with a lower training.learning_rate or training.clip_norm"
        )


def _all_on_cpu(parameters: Iterable[nn.Parameter]) -> bool:
    # On a GPU torch has no fused Adagrad, and stores a fused Adam's step counts on another device than a plain one's.
    return all(parameter.is_cpu for parameter in parameters)
