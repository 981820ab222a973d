"""Entries that a task run reports while it trains, and its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class LayersRead:
    """Progress of the biLM through the data, before training."""

    num_done: int
    num_tokens: int  # without those cached by an earlier run


@dataclass(frozen=True)
class TaskPlan:
    """Size of a run, and the step at which it starts or resumes."""

    step: int
    num_steps: int
    seconds: float  # of training before this process
    num_examples: int  # to train on
    num_dev: int
    num_parameters: int  # that are trained
    metric: str
    best: float | None = None  # dev score before this process


@dataclass(frozen=True)
class TaskStep:
    """Means over the steps since the entry before."""

    step: int
    epoch: float
    loss: float  # with the penalty of the mixes
    gradient_norm: float  # before the clip
    learning_rate: float
    examples_per_second: float
    seconds: float  # since the run began, with evaluations


@dataclass(frozen=True)
class DevScores:
    """Scores on the dev set."""

    step: int
    epoch: float
    scores: dict[str, float]
    is_best: bool


@dataclass(frozen=True)
class MixWeights:
    """A trained mix of the biLM's layers (Peters et al. 2018, equation 1)."""

    weights: list[float]  # after the softmax, one per layer
    gamma: float


@dataclass(frozen=True)
class RunSizes:
    """Numbers of examples and parameters of a run."""

    num_train: int  # after the recipe's limits
    num_dev: int
    num_test: int | None  # None without test data
    num_parameters: int  # that are trained


@dataclass(frozen=True)
class Finished:
    """Result of a run. The scores and mixes are those of its best weights."""

    step: int
    best_step: int
    dev: dict[str, float]
    test: dict[str, float] | None  # None without test data
    seconds: float
    seed: int
    sizes: RunSizes | None = None  # None in results of older versions, as are the next two
    dev_curve: list[DevScores] | None = None  # every evaluation, in order
    mixes: dict[str, MixWeights] | None = None  # by place, "input" or "output"


Logged = TaskStep | DevScores | Finished
"""Entries that are written to the log."""
Entry = LayersRead | TaskPlan | Logged
Report = Callable[[Entry], None]


def finished_from_json(values: Mapping[str, Any]) -> Finished:
    """Return the result in a result.json; those of older versions lack sizes, dev curve and mixes."""
    known = {field.name: values[field.name] for field in fields(Finished) if field.name in values}
    if known.get("sizes") is not None:
        known["sizes"] = RunSizes(**known["sizes"])
    if known.get("dev_curve") is not None:
        known["dev_curve"] = [DevScores(**point) for point in known["dev_curve"]]
    if known.get("mixes") is not None:
        known["mixes"] = {place: MixWeights(**mix) for place, mix in known["mixes"].items()}
    return Finished(**known)


def curve_values(entry: Logged) -> dict[str, float]:
    """Return the values of an entry by the names of their curves."""
    match entry:
        case TaskStep():
            names = ("loss", "gradient_norm", "learning_rate", "examples_per_second")
            return {f"train/{name}": getattr(entry, name) for name in names}
        case DevScores():
            return {f"dev/{name}": value for name, value in entry.scores.items()}
        case Finished():
            return {f"test/{name}": value for name, value in (entry.test or {}).items()}
