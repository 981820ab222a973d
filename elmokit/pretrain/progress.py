"""Entries that a pretraining run reports: its plan, its losses, its held-out perplexities."""

from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RunPlan:
    """Progress of a run when it starts or is resumed, and its end."""

    step: int
    num_steps: int | None  # None if only hours end it
    hours: float | None
    seconds: float  # of earlier sessions
    num_tokens: int  # in the training text
    num_words: int  # in the vocabulary
    num_negatives: int | None  # None with the full softmax
    num_processes: int


@dataclass(frozen=True)
class StepDone:
    """One training step. It is reported at once, and not logged."""

    step: int
    loss: float  # mean of the trained directions
    seconds: float  # since the start of the run, without the time between sessions


@dataclass(frozen=True)
class BuildStarted:
    """Start of building the model, once the texts are prepared. It is not logged."""

    step: int = 0


@dataclass(frozen=True)
class EvaluationStarted:
    """Start of an evaluation on held-out text. It is not logged."""

    step: int


@dataclass(frozen=True)
class LogLine:
    """Means over the steps since the last log line."""

    step: int
    epoch: float
    tokens_per_second: float  # targets of one direction
    sampled: bool  # whether the losses are those of a sampled softmax, from which no perplexity follows
    forward_loss: float  # 0 if the direction is not trained
    backward_loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float  # since the start of the run, without the time between sessions

    @property
    def loss(self) -> float:
        """Mean loss of the trained directions."""
        return mean_loss(self.forward_loss, self.backward_loss)


@dataclass(frozen=True)
class HeldOut:
    """An evaluation on held-out text, always with the full softmax.

    A direction that is not trained predicts from the biases of the softmax alone, and counts in no mean.
    """

    step: int
    forward_perplexity: float
    backward_perplexity: float
    perplexity: float  # the arithmetic mean of both; the model with the lowest is the best
    geometric_mean: float  # of both
    unknown_share: float  # fraction of targets that are out of vocabulary; <UNK> is easy to predict
    text: str  # its fingerprint and number of words: perplexities of different texts cannot be compared


@dataclass(frozen=True)
class MachineChanged:
    """A run that was resumed on another kind of machine: from here on it rounds differently."""

    step: int
    before: str
    now: str


Logged = LogLine | HeldOut | MachineChanged
"""Entries that are written to the log."""
Entry = RunPlan | StepDone | BuildStarted | EvaluationStarted | Logged
Report = Callable[[Entry], None]


def mean_loss(forward: float, backward: float) -> float:
    """Return the mean of two losses; 0 stands for a direction that is not trained."""
    return (forward + backward) / ((forward != 0) + (backward != 0) or 1)


def curve_values(entry: Logged) -> dict[str, float]:
    """Return the numbers of an entry by the names of their curves."""
    return {_name(name, entry): value for name, value in asdict(entry).items() if isinstance(value, float)}


def _name(name: str, entry: Logged) -> str:
    if isinstance(entry, HeldOut):
        return f"heldout/{name}"
    sampled = isinstance(entry, LogLine) and entry.sampled
    return f"train/{name}_sampled" if sampled and name.endswith("_loss") else f"train/{name}"
