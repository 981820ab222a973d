"""Interface of a task: one plain class per task. The loop and the command line know no task by name.

An *example* is what a reader returns. A *label space* is what a model must know of its training data (tags, classes). A
*target* holds the labels and further inputs of a batch as tensors. An *output* is what a model computes for one example
before decoding (log-probabilities, scores). A *prediction* is decoded from outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from torch import Tensor, nn

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.tasks.inputs import Column, TokenEncoder
from elmokit.text.rules import RAW_ENGLISH, TextRules

Example = TypeVar("Example")
Labels = TypeVar("Labels", bound=FrozenConfig)
Target = TypeVar("Target")
TargetOut = TypeVar("TargetOut", covariant=True)
Output = TypeVar("Output")
Prediction = TypeVar("Prediction")

Sequences = tuple[Sequence[Sequence[str]], ...]
"""Token sequences of an example, in columns: one for a tagger, (premise, hypothesis) for pairs, all sentences of a
document in a single column. The biLM reads every sequence by itself."""


@dataclass(frozen=True)
class Batch(Generic[Target]):
    """Examples as a model reads them."""

    columns: tuple[Column, ...]
    target: Target


class TaskModule(Protocol):
    """Torch module of a task. Its ``tokens`` encodes the tokens it reads."""

    tokens: TokenEncoder

    def loss(self, batch: Batch[Any]) -> Tensor:
        """Return the loss of a batch, a scalar."""

    def outputs(self, batch: Batch[Any]) -> list[Any]:
        """Return one output per example, without padding; arrays or values on the CPU."""


class Task(Protocol[Example, Labels, TargetOut, Output, Prediction]):
    """One of the tasks of `elmokit.tasks.names`, or your own."""

    name: str
    metric: str
    """Dev score that selects the best weights; higher is better."""
    settings: type[FrozenConfig]
    """Sizes of the model, the table ``[model]`` of a recipe."""
    labels: type[Labels]
    reads_paragraphs: bool
    """True if typed text comes in paragraphs between blank lines; else every line stands alone."""

    def read_training(self, path: Path) -> list[Example]:
        """Read the examples of a training file."""

    def read(self, path: Path) -> list[Example]:
        """Read the examples of a labeled file, to evaluate on."""

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[Example]:
        """Return the unlabeled examples in a typed line, or in a paragraph if the task reads those."""

    def sequences(self, example: Example) -> Sequences:
        """Return the token sequences of an example."""

    def learn_labels(self, examples: Sequence[Example]) -> Labels:
        """Return the label space of training examples."""

    def build(self, settings: Any, labels: Labels, tokens: TokenEncoder) -> nn.Module:
        """Return a new `TaskModule`; its weights follow from torch's seed."""

    def collate(self, examples: Sequence[Example], labels: Labels, *, labeled: bool) -> TargetOut:
        """Return the target of a batch; with its labels if ``labeled``.

        Raises:
            InputError: a label is missing, or is not in the label space.
        """

    def decode(self, output: Output, example: Example, labels: Labels) -> Prediction:
        """Return the best prediction for an example."""

    def combine(self, outputs: Sequence[Output]) -> Output:
        """Return the ensemble's output for one example from those of several models."""

    def score(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Return the scores of predictions, `metric` among them."""

    def unknown_labels(self, examples: Sequence[Example], labels: Labels) -> set[str]:
        """Return the labels of examples that a model with this label space can never predict."""

    def vary(self, example: Example, rng: np.random.Generator) -> Example:
        """Return what one epoch of training sees of an example (a window of a document, one of several answers)."""

    def show(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction as a person reads it."""

    def to_json(self, example: Example, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as JSON values."""


AnyTask = Task[Any, Any, Any, Any, Any]


def read_words(text: str, rules: TextRules) -> tuple[str, ...]:
    """Return the tokens of a typed sentence, one or more."""
    tokens = tuple(rules.tokens(text))
    if not tokens:
        raise InputError(f"no words in {text[:80]!r}; expected a sentence")
    return tokens


def mean_arrays(outputs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the mean of distributions or scores."""
    mean: np.ndarray[Any, Any] = np.mean(np.stack(outputs), axis=0)
    return mean


def mean_of_logs(outputs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the logarithm of the mean of distributions that are given as logarithms."""
    total = np.logaddexp.reduce(np.stack(outputs), axis=0)
    mean: np.ndarray[Any, Any] = total - np.log(len(outputs), dtype=total.dtype)
    return mean
