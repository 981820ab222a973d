"""Entries that the training run of an encoder reports."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EncoderPlan:
    """Position of a run as it starts or resumes."""

    step: int
    num_steps: int | None  # None if only hours or the falling rate end it
    hours: float | None
    seconds: float  # of earlier sessions
    steps_per_epoch: int
    num_parameters: int


@dataclass(frozen=True)
class EncoderStep:
    """Means over the steps since the last entry of the log."""

    step: int
    epoch: float
    loss: float  # per target, in nats
    gradient_norm: float  # before the clip
    learning_rate: float
    num_targets: int
    targets_per_second: float
    seconds: float


@dataclass(frozen=True)
class EncoderEvaluation:
    """An evaluation on the dev set."""

    step: int
    dev_loss: float  # per target, in nats
    is_best: bool
    learning_rate: float  # from here on

    @property
    def perplexity(self) -> float:
        """Perplexity of the dev set, for a translation model."""
        return math.exp(min(self.dev_loss, 700.0))


Entry = EncoderPlan | EncoderStep | EncoderEvaluation
Logged = EncoderStep | EncoderEvaluation
Report = Callable[[Entry], None]


def curve_values(entry: Logged) -> dict[str, float]:
    """Return an entry's numbers by the names of their curves."""
    if isinstance(entry, EncoderEvaluation):
        return {"dev/loss": entry.dev_loss}
    names = ("loss", "gradient_norm", "learning_rate", "targets_per_second")
    return {f"train/{name}": getattr(entry, name) for name in names}
