"""Classes: their names, their numbers, and the choice among them."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from elmokit.errors import InputError
from elmokit.tasks.classification import (
    Choice,
    ClassLabels,
    accuracy,
    choose,
    distributions,
    list_classes,
    number_classes,
    unknown_classes,
)

COLORS = ClassLabels(classes=("red", "green", "blue"))


@dataclass(frozen=True)
class Example:
    label: str | None


def examples(*labels: str | None) -> list[Example]:
    return [Example(label) for label in labels]


RED = Example("red")


def test_classes_are_those_that_occur_in_their_natural_order():
    order = tuple("gfedcba")
    assert list_classes(examples("a", None, *"bcdfg", "b"), order=order).classes == tuple("gfdcba")


def test_labels_become_the_numbers_of_their_classes():
    assert number_classes(examples("blue", "red", "green"), COLORS).classes_B.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("mauve", "the label 'mauve' is not in the training data; known: red, green, blue"),
        (None, "an example has no label; expected one of red, green, blue; leave the example out"),
    ],
)
def test_a_label_that_cannot_be_learned_is_rejected(label, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        number_classes([RED, Example(label)], COLORS)


def test_unknown_classes_are_named_and_missing_labels_are_none():
    assert unknown_classes(examples("red", None, "mauve", "teal", "mauve"), COLORS) == {"mauve", "teal"}


def test_the_most_probable_class_is_chosen_and_the_first_of_equals():
    (output,) = distributions(torch.tensor([[0.0, 2.0, 1.0]]))
    choice = choose(output, COLORS)
    assert choice.label == "green"
    assert list(choice.probabilities) == ["red", "green", "blue"]
    assert sum(choice.probabilities.values()) == pytest.approx(1.0)
    assert choice.probabilities["green"] / choice.probabilities["blue"] == pytest.approx(np.e)
    assert str(choice) == "green (67%)"
    assert choose(np.array([0.2, 0.4, 0.4]), COLORS).label == "green"


def test_accuracy_is_the_share_that_is_right():
    choices = [Choice(name, {name: 1.0}) for name in ("red", "red", "blue", "green", "red")]
    assert accuracy(examples("red", "green", "blue", "green", "blue"), choices) == {"accuracy": 0.6}


@pytest.mark.parametrize(
    ("labels", "message"), [([], "no examples to score"), (["red", None], r"1 of 2 examples without a label to score")]
)
def test_nothing_to_score_on_is_an_error(labels, message):
    with pytest.raises(InputError, match=message):
        accuracy(examples(*labels), [Choice("red", {"red": 1.0})] * len(labels))
