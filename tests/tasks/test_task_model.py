"""What a task model says of examples depends on nothing but the example."""

import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from task_models import build_model, compute_outputs, predict
from torch import Tensor
from toy_inputs import LetterLayers
from toy_task import RHYMES, Verse, VerseLabels, changed, recipe, verses

from elmokit.errors import ElmokitWarning, InputError
from elmokit.tasks.batches import AHEAD
from elmokit.tasks.columns import ColumnMaker, JoinedLayers, learn_inputs
from elmokit.tasks.task_model import TaskModel, predict_examples, warn_of_unknown_labels

LABELS = VerseLabels(tags=("plain", "rhyme"))
EXAMPLES = verses(40, seed=4, shortest=1, longest=20)


def untrained(seed: int, labels: VerseLabels = LABELS, layers: JoinedLayers | None = None) -> TaskModel:
    asked = recipe(bilm=None if layers is None else "toy")
    columns = ColumnMaker(asked, learn_inputs([one.tokens for one in EXAMPLES], asked), vectors=None, layers=layers)
    torch.manual_seed(seed)
    model = build_model(RHYMES, asked, labels, columns).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))  # strong opinions
        model.emit.bias.zero_()
    return TaskModel(RHYMES, asked, labels, columns, model)


def parts(loaded: TaskModel) -> tuple:
    return loaded.task, loaded.module, loaded.columns, loaded.labels


def test_outputs_do_not_depend_on_batch_or_order():
    loaded = untrained(1)
    together = compute_outputs(*parts(loaded), EXAMPLES, batch_size=40)
    assert [len(output) for output in together] == [len(one.tokens) for one in EXAMPLES]
    backwards = compute_outputs(*parts(loaded), EXAMPLES[::-1], batch_size=7)[::-1]
    alone = [compute_outputs(*parts(loaded), [one], batch_size=1)[0] for one in EXAMPLES]
    for other in (backwards, alone):
        for output, expected in zip(other, together, strict=True):
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_predictions_come_in_the_order_of_the_examples():
    loaded = untrained(1)
    outputs = compute_outputs(*parts(loaded), EXAMPLES, batch_size=3)
    expected = [tuple(LABELS.tags[k] for k in output.argmax(axis=1)) for output in outputs]
    assert len({tag for tags in expected for tag in tags}) == 2
    assert predict(*parts(loaded), EXAMPLES, batch_size=6) == expected
    assert predict(*parts(loaded), [], batch_size=6) == []


def test_scores_are_those_of_the_predictions():
    loaded = untrained(2)
    expected = RHYMES.score(EXAMPLES, predict(*parts(loaded), EXAMPLES, batch_size=8))
    assert 0 < expected["accuracy"] < 1
    assert loaded.evaluate_examples(EXAMPLES, source="verses") == expected


def test_a_model_predicts_without_dropout_and_then_learns_on():
    loaded = untrained(1)
    expected = compute_outputs(*parts(loaded), EXAMPLES[:3], batch_size=3)
    loaded.module.train()
    for output, again in zip(expected, compute_outputs(*parts(loaded), EXAMPLES[:3], batch_size=3), strict=True):
        assert np.array_equal(output, again)
    assert loaded.module.training


def test_predicting_needs_no_labels():
    unlabeled = [Verse(one.tokens) for one in EXAMPLES]
    loaded = untrained(1)
    assert predict(*parts(loaded), unlabeled, batch_size=8) == predict(*parts(loaded), EXAMPLES, batch_size=8)


def test_an_example_without_tokens_is_named():
    with pytest.raises(InputError, match="example 2 of 2 has a sentence without tokens"):
        predict(*parts(untrained(1)), [EXAMPLES[0], Verse(())], batch_size=8)


def test_labels_that_the_model_cannot_know_are_reported_with_their_counts():
    strange = [Verse(("ba",) * 2, (f"tag{i}", "echo")) for i in range(7)] + EXAMPLES
    message = r"verses: 7 of 47 examples .* predict them: echo \(7\), tag0 \(1\), .* and 3 more; "
    with pytest.warns(ElmokitWarning, match=message):
        scores = untrained(1).evaluate_examples(strange, source="verses")
    assert scores["num_tags"] == sum(len(one.tags) for one in strange)
    warn_of_unknown_labels(RHYMES, LABELS, EXAMPLES, source="verses")  # warns of nothing


def test_an_ensemble_decides_by_what_its_models_believe_together():
    models = [untrained(seed) for seed in (1, 2, 3)]
    outputs = [compute_outputs(*parts(one), EXAMPLES, batch_size=8) for one in models]
    expected = [
        tuple(LABELS.tags[k] for k in np.mean(of_models, axis=0).argmax(axis=1))
        for of_models in zip(*outputs, strict=True)
    ]
    assert predict_examples(models, EXAMPLES, batch_size=4) == expected
    for one in models:
        assert predict(*parts(one), EXAMPLES, batch_size=4) != expected
        assert predict_examples([one], EXAMPLES, batch_size=4) == predict(*parts(one), EXAMPLES, batch_size=4)


class WatchedLayers:
    """Layers that know what they were asked for, and how many of their tensors were in use at once."""

    def __init__(self, neighbor: int) -> None:
        self._letters = LetterLayers(neighbor)
        self.num_layers, self.width = self._letters.num_layers, self._letters.width
        self.asked: list[list[tuple[str, ...]]] = []
        self.most_in_use = 0
        self._given: list[weakref.ref[Tensor]] = []

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        self.asked.append([tuple(tokens) for tokens in sequences])
        joined_LND = self._letters.join(sequences)
        self._given = [given for given in self._given if given() is not None] + [weakref.ref(joined_LND)]
        self.most_in_use = max(self.most_in_use, len(self._given))
        return joined_LND


OUTPUTS = changed(RHYMES, decode=lambda output, _example, _labels: output)
"""A task whose prediction is the output itself, so that any difference shows."""


def check_mean(found: Sequence[np.ndarray], models: Sequence[TaskModel]) -> None:
    """That an ensemble predicts the mean of what its models predict alone."""
    alone = [compute_outputs(*parts(one), EXAMPLES, batch_size=4) for one in models]
    for output, *of_models in zip(found, *alone, strict=True):
        np.testing.assert_allclose(output, np.mean(of_models, axis=0), atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("num_models", [1, 2, 5])
def test_layers_that_models_share_are_read_once_and_then_released(num_models: int):
    layers = WatchedLayers(1)
    models = [replace(untrained(seed, layers=layers), task=OUTPUTS) for seed in range(num_models)]
    found = predict_examples(models, EXAMPLES, batch_size=4)
    assert [len(sequences) for sequences in layers.asked] == [4] * 10
    assert sorted(chain.from_iterable(layers.asked)) == sorted(one.tokens for one in EXAMPLES)
    assert layers.most_in_use <= AHEAD + 2  # those made ahead, and those of two batches while one follows the other
    check_mean(found, models)


def test_every_column_has_its_own_layers():
    both_ways = changed(OUTPUTS, sequences=lambda example: ([example.tokens], [example.tokens[::-1]]))
    layers = WatchedLayers(1)
    models = [replace(untrained(seed, layers=layers), task=both_ways) for seed in (1, 2)]
    found = predict_examples(models, EXAMPLES, batch_size=8)
    assert len(layers.asked) == 2 * 5
    assert layers.asked[1] == [tokens[::-1] for tokens in layers.asked[0]]
    check_mean(found, models)


def test_models_with_different_layers_read_each_its_own():
    near, far = WatchedLayers(1), WatchedLayers(3)
    sources = [near, far, None, near]
    models = [replace(untrained(seed, layers=layers), task=OUTPUTS) for seed, layers in enumerate(sources)]
    found = predict_examples(models, EXAMPLES, batch_size=4)
    assert near.asked == far.asked
    assert len(near.asked) == 10
    check_mean(found, models)


def test_models_that_cannot_decide_together_are_rejected():
    one, other = untrained(1), untrained(2, VerseLabels(tags=("rhyme", "plain")))
    with pytest.raises(InputError, match="different labels"):
        predict_examples([one, other], EXAMPLES, batch_size=4)
    with pytest.raises(InputError, match="a model of rhymes and one of metre"):
        predict_examples([one, replace(one, task=changed(RHYMES, name="metre"))], EXAMPLES, batch_size=4)
    with pytest.raises(InputError, match="no models"):
        predict_examples([], EXAMPLES, batch_size=4)
