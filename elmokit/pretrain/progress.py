"""Entries that a pretraining run reports: its plan, its losses, its held-out perplexities."""

from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RunPlan:
    """Where the run stands as it begins or goes on, and where it ends."""

    step: int
    num_steps: int | None  # None if only hours end it
    hours: float | None
    seconds: float  # that earlier pieces of the run took
    num_tokens: int  # of the text
    num_words: int  # that the model can predict
    num_negatives: int | None  # None where the softmax is full
    num_processes: int


@dataclass(frozen=True)
class StepDone:
    """One training step. It is reported at once, and not logged."""

    step: int
    loss: float  # mean of both directions
    seconds: float  # since the run began, time between its pieces left out


@dataclass(frozen=True)
class EvaluationStarted:
    """Start of an evaluation on held-out text. It is not logged."""

    step: int


@dataclass(frozen=True)
class LogLine:
    """What the log says of the steps since the line before."""

    step: int
    epoch: float
    tokens_per_second: float  # targets of one direction
    sampled: bool  # whether the losses are a sampled softmax's, which say nothing of perplexity
    forward_loss: float
    backward_loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float  # since the run began, time between its pieces left out


@dataclass(frozen=True)
class HeldOut:
    """A look at the held-out text, always with the full softmax."""

    step: int
    forward_perplexity: float
    backward_perplexity: float
    perplexity: float  # the arithmetic mean of both: the lowest is the best
    geometric_mean: float  # of both
    unknown_share: float  # of the targets, those that are <UNK>, which is easy to predict
    text: str  # names it, and how much of it was read: perplexities of different ones cannot be compared


Logged = LogLine | HeldOut
"""Entries that are written to the log."""
Entry = RunPlan | StepDone | EvaluationStarted | Logged
Report = Callable[[Entry], None]


def curve_values(entry: Logged) -> dict[str, float]:
    """Return the numbers of an entry by the names of their curves."""
    return {_name(name, entry): value for name, value in asdict(entry).items() if isinstance(value, float)}


def _name(name: str, entry: Logged) -> str:
    if isinstance(entry, HeldOut):
        return f"heldout/{name}"
    return f"train/{name}_sampled" if entry.sampled and name.endswith("_loss") else f"train/{name}"
