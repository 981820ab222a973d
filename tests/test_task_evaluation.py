"""What a task model says of examples depends on nothing but the example."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_task import RHYMES, Verse, VerseLabels, recipe, verses

from elmokit.errors import ElmokitWarning, InputError
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.evaluation import believe, evaluate, predict, predict_together, warn_of_unknown_labels
from elmokit.tasks.saved import LoadedTask, build_model

LABELS = VerseLabels(tags=("plain", "rhyme"))
EXAMPLES = verses(40, seed=4, shortest=1, longest=20)


def untrained(seed: int, labels: VerseLabels = LABELS) -> LoadedTask:
    asked = recipe()
    columns = ColumnMaker(asked, learn_inputs([one.tokens for one in EXAMPLES], asked), vectors=None, layers=None)
    torch.manual_seed(seed)
    model = build_model(RHYMES, asked, labels, columns).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))  # strong opinions
        model.emit.bias.zero_()
    return LoadedTask(RHYMES, asked, labels, columns, model, None)


def parts(loaded: LoadedTask) -> tuple:
    return loaded.task, loaded.model, loaded.columns, loaded.labels


def test_beliefs_do_not_depend_on_batch_or_order():
    loaded = untrained(1)
    together = believe(*parts(loaded), EXAMPLES, batch_size=40)
    assert [len(belief) for belief in together] == [len(one.tokens) for one in EXAMPLES]
    backwards = believe(*parts(loaded), EXAMPLES[::-1], batch_size=7)[::-1]
    alone = [believe(*parts(loaded), [one], batch_size=1)[0] for one in EXAMPLES]
    for other in (backwards, alone):
        for belief, expected in zip(other, together, strict=True):
            np.testing.assert_allclose(belief, expected, atol=1e-5)


def test_predictions_come_in_the_order_of_the_examples():
    loaded = untrained(1)
    beliefs = believe(*parts(loaded), EXAMPLES, batch_size=3)
    expected = [tuple(LABELS.tags[k] for k in belief.argmax(axis=1)) for belief in beliefs]
    assert len({tag for tags in expected for tag in tags}) == 2
    assert predict(*parts(loaded), EXAMPLES, batch_size=6) == expected
    assert predict(*parts(loaded), [], batch_size=6) == []


def test_scores_are_those_of_the_predictions():
    loaded = untrained(2)
    expected = RHYMES.score(EXAMPLES, predict(*parts(loaded), EXAMPLES, batch_size=8))
    assert 0 < expected["accuracy"] < 1
    assert evaluate(*parts(loaded), EXAMPLES, batch_size=5, source="verses") == expected


def test_a_model_predicts_without_dropout_and_then_learns_on():
    loaded = untrained(1)
    expected = believe(*parts(loaded), EXAMPLES[:3], batch_size=3)
    loaded.model.train()
    for belief, again in zip(expected, believe(*parts(loaded), EXAMPLES[:3], batch_size=3), strict=True):
        assert np.array_equal(belief, again)
    assert loaded.model.training


def test_predicting_needs_no_labels():
    unlabelled = [Verse(one.tokens) for one in EXAMPLES]
    loaded = untrained(1)
    assert predict(*parts(loaded), unlabelled, batch_size=8) == predict(*parts(loaded), EXAMPLES, batch_size=8)


def test_an_example_without_tokens_is_named():
    with pytest.raises(InputError, match="example 2 of 2 has a sentence of no tokens"):
        predict(*parts(untrained(1)), [EXAMPLES[0], Verse(())], batch_size=8)


def test_labels_that_the_model_cannot_know_are_told_with_their_counts():
    strange = [Verse(("ba",) * 2, (f"tag{i}", "echo")) for i in range(7)] + EXAMPLES
    message = r"verses: 7 of 47 examples .* predict them: echo \(7\), tag0 \(1\), .* and 3 more; "
    with pytest.warns(ElmokitWarning, match=message):
        scores = evaluate(*parts(untrained(1)), strange, batch_size=8, source="verses")
    assert scores["num_tags"] == sum(len(one.tags) for one in strange)
    warn_of_unknown_labels(RHYMES, LABELS, EXAMPLES, source="verses")  # warns of nothing


def test_an_ensemble_decides_by_what_its_models_believe_together(monkeypatch: pytest.MonkeyPatch):
    models = [untrained(seed) for seed in (1, 2, 3)]
    beliefs = [believe(*parts(one), EXAMPLES, batch_size=8) for one in models]
    expected = [
        tuple(LABELS.tags[k] for k in np.mean(of_models, axis=0).argmax(axis=1))
        for of_models in zip(*beliefs, strict=True)
    ]
    monkeypatch.setattr("elmokit.tasks.evaluation.WINDOW", 7)
    assert predict_together(models, EXAMPLES, batch_size=4) == expected
    for one in models:
        assert predict(*parts(one), EXAMPLES, batch_size=4) != expected
        assert predict_together([one], EXAMPLES, batch_size=4) == predict(*parts(one), EXAMPLES, batch_size=4)


def test_models_that_cannot_decide_together_are_refused():
    one, other = untrained(1), untrained(2, VerseLabels(tags=("rhyme", "plain")))
    with pytest.raises(InputError, match="different labels"):
        predict_together([one, other], EXAMPLES, batch_size=4)
    with pytest.raises(InputError, match="a model of rhymes and one of metre"):
        predict_together([one, replace(one, task=replace(RHYMES, name="metre"))], EXAMPLES, batch_size=4)
    with pytest.raises(InputError, match="no models"):
        predict_together([], EXAMPLES, batch_size=4)
