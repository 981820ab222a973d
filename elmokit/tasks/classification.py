"""What the tasks share that give an example one of a few classes.

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

Distribution = np.ndarray[Any, Any]
"""(K,), the probability of every class: what a model believes of an example. It has no padding to be cut off."""


class Labelled(Protocol):
    """An example of such a task."""

    @property
    def label(self) -> str | None:
        """The name of its class; None if it is not known."""


class ClassLabels(FrozenConfig):
    """The names of the classes."""

    classes: tuple[str, ...]


@dataclass(frozen=True)
class ClassTarget:
    """The numbers of the classes; None where they are not asked for."""

    classes_B: Tensor | None


@dataclass(frozen=True)
class Choice:
    """The likeliest class, and how likely each is."""

    label: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return f"{self.label} ({self.probabilities[self.label]:.0%})"


def list_classes(examples: Sequence[Labelled], *, order: Sequence[str]) -> ClassLabels:
    """The classes that occur, in their natural order."""
    found = {example.label for example in examples}
    return ClassLabels(classes=tuple(name for name in order if name in found))


def number_classes(examples: Sequence[Labelled], known: ClassLabels, labelled: bool) -> ClassTarget:  # noqa: FBT001
    """The classes of a batch as numbers, if they are asked for; one that the model does not learn is refused."""
    if not labelled:
        return ClassTarget(None)
    number = {name: index for index, name in enumerate(known.classes)}
    labels = [example.label for example in examples]
    for label in labels:
        if label is None:
            raise InputError(f"an example has no label, but must have one of {', '.join(number)}; leave it out")
        if label not in number:
            raise InputError(f"the label {label!r} is not one that the model learns; it knows {', '.join(number)}")
    return ClassTarget(torch.tensor([number[label] for label in labels if label is not None]))


def unknown_classes(examples: Sequence[Labelled], known: ClassLabels) -> set[str]:
    """Labels that are none of the classes: the training data has no example of them."""
    return {example.label for example in examples if example.label is not None} - set(known.classes)


def distributions(logits_BK: Tensor) -> list[Distribution]:
    """Every example's distribution over the classes."""
    return list(logits_BK.softmax(dim=1).cpu().numpy())


def choose(belief: Distribution, example: Labelled, known: ClassLabels) -> Choice:
    """Decide for the likeliest class; of equals, the first."""
    del example
    probabilities = dict(zip(known.classes, belief.tolist(), strict=True))
    return Choice(known.classes[int(belief.argmax())], probabilities)


def accuracy(examples: Sequence[Labelled], choices: Sequence[Choice]) -> dict[str, float]:
    """The share of examples with the right class."""
    labels = [example.label for example in examples]
    if not labels or None in labels:
        found = "no examples" if not labels else f"{labels.count(None):,} of {len(labels):,} examples without a label"
        raise InputError(f"{found} to score a model on; give examples with labels")
    right = sum(choice.label == label for label, choice in zip(labels, choices, strict=True))
    return {"accuracy": right / len(labels)}
