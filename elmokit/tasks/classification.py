"""What the tasks share that give an example one of a few classes.

Shapes: B examples, K classes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.config import FrozenConfig
from elmokit.errors import InputError

Distribution = np.ndarray[Any, Any]
"""(K,), the probability of every class: what a model believes of an example. It has no padding to be cut off."""


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


def list_classes(labels: Iterable[str | None], order: Sequence[str]) -> ClassLabels:
    """The classes that occur, in their natural order."""
    found = set(labels)
    return ClassLabels(classes=tuple(name for name in order if name in found))


def number_classes(labels: Sequence[str | None], known: ClassLabels) -> ClassTarget:
    """The labels of a batch as numbers; one that the model does not learn is refused."""
    number = {name: index for index, name in enumerate(known.classes)}
    for label in labels:
        if label is None:
            raise InputError(f"an example has no label, but must have one of {', '.join(number)}; leave it out")
        if label not in number:
            raise InputError(f"the label {label!r} is not one that the model learns; it knows {', '.join(number)}")
    return ClassTarget(torch.tensor([number[label] for label in labels if label is not None]))


def unknown_classes(labels: Iterable[str | None], known: ClassLabels) -> set[str]:
    """Labels that are none of the classes."""
    return {label for label in labels if label is not None} - set(known.classes)


def distributions(logits_BK: Tensor) -> list[Distribution]:
    """Every example's distribution over the classes."""
    return list(logits_BK.softmax(dim=1).cpu().numpy())


def choose(belief: Distribution, known: ClassLabels) -> Choice:
    """Decide for the likeliest class; of equals, the first."""
    probabilities = dict(zip(known.classes, belief.tolist(), strict=True))
    return Choice(known.classes[int(belief.argmax())], probabilities)


def accuracy(labels: Sequence[str | None], choices: Sequence[Choice]) -> dict[str, float]:
    """The share of examples with the right class."""
    if not labels or None in labels:
        found = "no examples" if not labels else f"{labels.count(None):,} of {len(labels):,} examples without a label"
        raise InputError(f"{found} to score a model on; give examples with labels")
    right = sum(choice.label == label for label, choice in zip(labels, choices, strict=True))
    return {"accuracy": right / len(labels)}
