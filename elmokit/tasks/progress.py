"""What a task run tells of itself; whoever starts one shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class LayersRead:
    """How far the biLM has read the data, before anything is learned."""

    num_done: int
    num_tokens: int  # that it has not read in an earlier run


@dataclass(frozen=True)
class TaskPlan:
    """Where the run stands as it begins or goes on, and where it ends at the latest."""

    step: int
    num_steps: int
    seconds: float  # of earlier pieces of the run
    num_examples: int  # to learn from
    num_dev: int
    num_parameters: int  # that are learned
    metric: str
    best: float | None = None  # on the development data, in earlier pieces of the run


@dataclass(frozen=True)
class TaskStep:
    """What the log says of the steps since the line before."""

    step: int
    epoch: float
    loss: float  # with the penalty of the mixes
    gradient_norm: float  # before the clip
    learning_rate: float
    examples_per_second: float
    seconds: float  # since the run began, looks at the development data included


@dataclass(frozen=True)
class DevScores:
    """A look at the development data."""

    step: int
    epoch: float
    scores: dict[str, float]
    is_best: bool


@dataclass(frozen=True)
class Finished:
    """How a run ended. The scores are those of its best weights."""

    step: int
    best_step: int
    dev: dict[str, float]
    test: dict[str, float] | None  # None without test data
    seconds: float
    seed: int


Logged = TaskStep | DevScores | Finished
"""Entries that are written to the log."""
Entry = LayersRead | TaskPlan | Logged
Report = Callable[[Entry], None]


def curve_values(entry: Logged) -> dict[str, float]:
    """What is drawn of an entry, by the names of the curves."""
    match entry:
        case TaskStep():
            names = ("loss", "gradient_norm", "learning_rate", "examples_per_second")
            return {f"train/{name}": getattr(entry, name) for name in names}
        case DevScores():
            return {f"dev/{name}": value for name, value in entry.scores.items()}
        case Finished():
            return {f"test/{name}": value for name, value in (entry.test or {}).items()}
