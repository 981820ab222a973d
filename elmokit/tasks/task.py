"""What a task is: a value made of functions. The trainer knows no task by name.

An *example* is what a reader gives, a *label space* is what a model has to know of its training data (tags, classes),
a *target* is a batch's labels and further inputs as tensors, a *belief* is what a model says of one example before
anything is decided (log-probabilities, scores), and a *prediction* is the decision.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from torch import Tensor

from elmokit.config import FrozenConfig
from elmokit.tasks.inputs import Column, TokenEncoder
from elmokit.text.tokens import TextRules

Example = TypeVar("Example")
Labels = TypeVar("Labels", bound=FrozenConfig)
Target = TypeVar("Target")
Belief = TypeVar("Belief")
Prediction = TypeVar("Prediction")

Sequences = tuple[Sequence[Sequence[str]], ...]
"""An example's token sequences, in columns: one for a tagger, (premise, hypothesis) for pairs, all the sentences of
a document in a single column. The biLM reads every sequence by itself."""


@dataclass(frozen=True)
class Batch(Generic[Target]):
    """Some examples as a model reads them."""

    columns: tuple[Column, ...]
    target: Target


class TaskModel(Protocol):
    """A torch module that learns a task. Its ``tokens`` is the encoder of what it reads."""

    tokens: TokenEncoder

    def loss(self, batch: Batch[Any]) -> Tensor:
        """The mean loss of a batch, a scalar."""

    def believe(self, batch: Batch[Any]) -> list[Any]:
        """What the model says of each example, without padding; arrays or values on the CPU."""


@dataclass(frozen=True)
class Task(Generic[Example, Labels, Target, Belief, Prediction]):
    """One of the six, or your own."""

    name: str
    metric: str
    """The score that chooses among models on development data; larger is better."""
    settings: type[FrozenConfig]
    """The sizes of the model, the table ``[model]`` of a recipe."""
    labels: type[Labels]
    read: Callable[[Path, bool], list[Example]]
    """(file, whether it is to train on) -> examples."""
    read_text: Callable[[Sequence[str], TextRules], list[Example]]
    """(lines that a person typed, how they are split) -> examples without labels."""
    sequences: Callable[[Example], Sequences]
    learn_labels: Callable[[Sequence[Example]], Labels]
    build: Callable[[Any, Labels, TokenEncoder], Any]
    """(settings, labels, token encoder) -> a `TaskModel`."""
    collate: Callable[[Sequence[Example], Labels, bool], Target]
    """(examples, labels, whether labels are wanted) -> target. A label that is not in the space is an `InputError`."""
    decode: Callable[[Belief, Example, Labels], Prediction]
    combine: Callable[[Sequence[Belief]], Belief]
    """The beliefs of several models about one example -> one: an ensemble."""
    score: Callable[[Sequence[Example], Sequence[Prediction]], dict[str, float]]
    unknown_labels: Callable[[Sequence[Example], Labels], set[str]]
    """Labels of examples that a model with this label space can never predict."""
    show: Callable[[Example, Prediction], str]
    """A prediction as a person reads it."""
    to_json: Callable[[Example, Prediction], dict[str, Any]]
    vary: Callable[[Example, np.random.Generator], Example] | None = None
    """What one visit of training sees of an example (a window of a document, one of several answers)."""


AnyTask = Task[Any, Any, Any, Any, Any]


def mean_arrays(beliefs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Combine distributions, or scores, by their mean."""
    mean: np.ndarray[Any, Any] = np.mean(np.stack(beliefs), axis=0)
    return mean


def mean_of_logs(beliefs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Combine distributions that are given as logarithms by the distributions' mean."""
    total = np.logaddexp.reduce(np.stack(beliefs), axis=0)
    mean: np.ndarray[Any, Any] = total - np.log(len(beliefs), dtype=total.dtype)
    return mean
