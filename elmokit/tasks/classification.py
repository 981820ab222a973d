"""Shared code of the tasks that assign one of a few classes to an example.

Shapes: B examples, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.tasks.task import Example, mean_arrays

Distribution = np.ndarray[Any, Any]
"""(K,), the probability of every class: the output of a classifier for one example."""


class Labeled(Protocol):
    """Example of a classification task."""

    @property
    def label(self) -> str | None:
        """Name of its class; None if unlabeled."""


class ClassLabels(FrozenConfig):
    """Names of the classes."""

    classes: tuple[str, ...]


@dataclass(frozen=True)
class ClassTarget:
    """Indices of the classes; None without labels."""

    classes_B: Tensor | None


@dataclass(frozen=True)
class Choice:
    """Most probable class, and the probability of each."""

    label: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return f"{self.label} ({self.probabilities[self.label]:.0%})"


def list_classes(examples: Sequence[Labeled], *, order: Sequence[str]) -> ClassLabels:
    """Return the classes that occur, in their natural order."""
    found = {example.label for example in examples}
    return ClassLabels(classes=tuple(name for name in order if name in found))


def number_classes(examples: Sequence[Labeled], known: ClassLabels) -> ClassTarget:
    """Return the class indices of a batch; reject classes that the label space does not have."""
    number = {name: index for index, name in enumerate(known.classes)}
    labels = [example.label for example in examples]
    for label in labels:
        if label is None:
            raise InputError(f"an example has no label; expected one of {', '.join(number)}; leave the example out")
        if label not in number:
            raise InputError(f"the label {label!r} is not in the training data; known: {', '.join(number)}")
    return ClassTarget(torch.tensor([number[label] for label in labels if label is not None]))


def unknown_classes(examples: Sequence[Labeled], known: ClassLabels) -> set[str]:
    """Return the labels that are not among the classes."""
    return {example.label for example in examples if example.label is not None} - set(known.classes)


def distributions(logits_BK: Tensor) -> list[Distribution]:
    """Return the distribution over the classes of every example."""
    return list(logits_BK.softmax(dim=1).cpu().numpy())


def choose(output: Distribution, known: ClassLabels) -> Choice:
    """Return the most probable class; the first of equals."""
    probabilities = dict(zip(known.classes, output.tolist(), strict=True))
    return Choice(known.classes[int(output.argmax())], probabilities)


def accuracy(examples: Sequence[Labeled], choices: Sequence[Choice]) -> dict[str, float]:
    """Return the share of examples with the right class."""
    labels = [example.label for example in examples]
    if not labels or None in labels:
        found = "no examples" if not labels else f"{labels.count(None):,} of {len(labels):,} examples without a label"
        raise InputError(f"{found} to score a model on; give labeled examples")
    right = sum(choice.label == label for label, choice in zip(labels, choices, strict=True))
    return {"accuracy": right / len(labels)}


class Classification:
    """Methods that all tasks with one class per example share."""

    metric = "accuracy"
    labels: type[ClassLabels] = ClassLabels
    reads_paragraphs = False

    def collate(self, examples: Sequence[Labeled], labels: ClassLabels, *, labeled: bool) -> ClassTarget:
        """Return the class indices."""
        return number_classes(examples, labels) if labeled else ClassTarget(None)

    def decode(self, output: Distribution, example: Any, labels: ClassLabels) -> Choice:
        """Return the most probable class."""
        del example
        return choose(output, labels)

    def combine(self, outputs: Sequence[Distribution]) -> Distribution:
        """Return the mean distribution."""
        return mean_arrays(outputs)

    def score(self, examples: Sequence[Labeled], predictions: Sequence[Choice]) -> dict[str, float]:
        """Return the accuracy."""
        return accuracy(examples, predictions)

    def unknown_labels(self, examples: Sequence[Labeled], labels: ClassLabels) -> set[str]:
        """Return classes that are not in the label space."""
        return unknown_classes(examples, labels)

    def vary(self, example: Example, rng: np.random.Generator) -> Example:
        """Return the same example in every epoch."""
        del rng
        return example
