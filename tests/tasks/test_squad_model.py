"""The network of question answering: what it learns, reads and drops out."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squad_tales import LABELS, SIZES, asked, batch_of, build, recipe, tales
from task_models import compute_outputs, predict
from torch import nn
from toy_inputs import Call, assert_half_is_dropped, calls_in_training

from elmokit.tasks.inputs import InputSizes, TokenEncoder
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.recipe import CharSettings, ElmoSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.squad import (
    TASK,
    SquadSettings,
)
from elmokit.tasks.task import Batch


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def learn(model: nn.Module, batch: Batch[Any], *, num_steps: int, rate: float) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# Learning


@pytest.mark.long
@pytest.mark.parametrize(
    "place", ["both", *(pytest.param(place, marks=pytest.mark.slow) for place in (None, "input", "output"))]
)
def test_a_few_invented_questions_are_memorized(place: str | None):
    examples = tales(4)
    model, made = build(recipe(elmo=place), examples)
    losses = learn(model, batch_of(examples, made), num_steps=70, rate=0.02)
    predictions = predict(TASK, model, made, LABELS, examples, batch_size=5)
    assert TASK.score(examples, predictions) == {"f1": 1.0, "exact_match": 1.0}
    assert losses[-1] < 1


@pytest.mark.slow
def test_the_loop_learns_what_holds_for_paragraphs_that_it_has_not_seen(tmp_path: Path):
    data = TaskData(tales(60, seed=1), tales(5, seed=2), lambda: tales(10, seed=3))
    chosen = recipe(batch_size=15, epochs=10, learning_rate=0.02, ema=0.9)
    finished = run_task(TASK, chosen, data, tmp_path / "run", report=lambda _: None, stop=threading.Event())
    assert finished is not None
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["test"]["f1"] > 0.9
    loaded = load_task(tmp_path / "run" / "model", expected_task=TASK)
    examples = TASK.read_text("It rained in York. Eve has a shy hen.\tWho has the hen?")
    (answer,) = predict(TASK, loaded.module, loaded.columns, loaded.labels, examples, batch_size=1)
    assert answer.text == "Eve"


@pytest.mark.slow
def test_the_loss_falls_on_real_questions(data_dir: Path):
    examples = TASK.read_training(data_dir / "squad" / "test-small.json.xz")
    short = sorted(examples, key=lambda one: len(one.context.tokens))[:24]
    model, made = build(recipe(), short)
    losses = learn(model, batch_of(short, made), num_steps=25, rate=0.02)
    assert losses[0] > 5
    assert losses[-1] < 0.8 * losses[0]


# Outputs


@pytest.mark.parametrize("place", [None, "both"])
def test_neither_padding_nor_the_order_of_a_batch_changes_a_output(place: str | None):
    examples = tales(3)
    model, made = build(recipe(elmo=place), examples)
    alone = [compute_outputs(TASK, model, made, LABELS, [one], batch_size=1)[0] for one in examples]
    model.eval()
    with torch.no_grad():
        together = model.outputs(batch_of(examples, made))
        turned = model.outputs(batch_of(examples[::-1], made))[::-1]
    for one, *outputs in zip(examples, alone, together, turned, strict=True):
        for output in outputs:
            assert output.shape == (2, len(one.context.tokens))
            np.testing.assert_allclose(output, outputs[0], atol=1e-5)


def test_start_and_end_are_each_a_distribution_over_tokens():
    examples = tales(1)
    model, made = build(recipe(), examples)
    for output in compute_outputs(TASK, model, made, LABELS, examples, batch_size=3):
        np.testing.assert_allclose(np.exp(output).sum(axis=1), 1.0, atol=1e-5)


def test_the_layers_are_joined_as_the_paper_has_them():
    """One question without padding, layer by layer; the layers themselves have tests of their own."""
    (example,) = tales(1)[:1]
    model, made = build(recipe(elmo="both"), tales(2))
    model.eval()
    batch = batch_of([example], made)
    contexts, questions = batch.columns
    sides = []
    for column in (contexts, questions):
        read_in = model.tokens(column)
        sides.append(torch.cat([model.encoder(read_in.inputs_BTE, column.mask_BT), read_in.elmo_BTD], dim=2))
    mask_BT = contexts.mask_BT
    merged = torch.relu(model.attention(sides[0], mask_BT, sides[1], questions.mask_BT))
    attended = model.self_attention(model.reader(merged, mask_BT), mask_BT)
    whole = merged + torch.relu(model.self_merge(attended))
    start = model.start_reader(whole, mask_BT)
    end = model.end_reader(torch.cat([whole, start], dim=2), mask_BT)
    expected = [model.start_score(start)[0, :, 0].log_softmax(0), model.end_score(end)[0, :, 0].log_softmax(0)]
    torch.testing.assert_close(model(batch)[0], torch.stack(expected), atol=1e-5, rtol=0)


def calls_on_questions() -> dict[str, list[Call]]:
    examples = tales(2)
    model, made = build(recipe(elmo="both").model_copy(update={"model": SIZES | {"dropout": 0.5}}), examples)
    return calls_in_training(model, batch_of(examples, made))


def test_dropout_is_around_the_encoder_of_both_texts_and_not_on_the_elmo_beside_it():
    calls = calls_on_questions()
    (attention,) = calls["attention"]
    for tokens, encoder, attended_BTD in zip(calls["tokens"], calls["encoder"], attention.read[::2], strict=True):
        encoded_BTH, elmo_BTD = attended_BTD.tensor_split([encoder.made.shape[2]], dim=2)
        assert_half_is_dropped(encoder.read[0], tokens.made.inputs_BTE, one_mask=True)
        assert_half_is_dropped(encoded_BTH, encoder.made, one_mask=True)
        assert torch.equal(elmo_BTD, tokens.made.elmo_BTD)


def test_dropout_is_around_the_reader():
    calls = calls_on_questions()
    (attention,), (reader,), (self_attention,) = calls["attention"], calls["reader"], calls["self_attention"]
    assert_half_is_dropped(reader.read[0], attention.made.relu(), one_mask=True)
    assert_half_is_dropped(self_attention.read[0], reader.made, one_mask=True)


def test_start_and_end_read_the_residual_through_the_same_dropout():
    calls = calls_on_questions()
    (attention,), (self_merge,) = calls["attention"], calls["self_merge"]
    (start_reader,), (end_reader,) = calls["start_reader"], calls["end_reader"]
    residual_BTH = attention.made.relu() + self_merge.made.relu()
    assert_half_is_dropped(start_reader.read[0], residual_BTH, one_mask=True)
    assert torch.equal(end_reader.read[0], torch.cat([start_reader.read[0], start_reader.made], dim=2))


def test_the_question_matters_and_so_does_its_last_word():
    context = "Ann has a red dog. Ben has a wet owl."
    examples = [asked(context, f"Who has the {pet}?") for pet in ("dog", "owl", "dog")]
    model, made = build(recipe(), tales(2))
    first, other, again = compute_outputs(TASK, model, made, LABELS, examples, batch_size=3)
    np.testing.assert_allclose(first, again, atol=1e-6)
    assert np.abs(first - other).max() > 1e-5


def test_the_loss_is_that_of_both_bounds_meant_over_questions():
    examples = tales(2)
    model, made = build(recipe(), examples)
    model.eval()
    outputs = compute_outputs(TASK, model, made, LABELS, examples, batch_size=6)
    losses = []
    for one, output in zip(examples, outputs, strict=True):
        answer = one.answers[0].text.split()
        words = list(one.context.tokens)
        first = next(place for place in range(len(words)) if words[place : place + len(answer)] == answer)
        losses.append(-output[0, first] - output[1, first + len(answer) - 1])
    assert model.loss(batch_of(examples, made)).item() == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.parametrize(
    ("place", "added"),
    [
        ("input", 2 * 30 * 26 + 3),
        ("output", 3 * 26 + 4 * 26 * 20 + 3),
        ("both", 2 * 30 * 26 + 3 * 26 + 4 * 26 * 20 + 2 * 3),
    ],
)
def test_elmo_adds_its_mixes_and_what_is_wider_for_it_and_nothing_else(place: str, added: int):
    """A mix of two layers has 3 parameters.

    26 values more are read by 30 gates a direction; by the three vectors of the attention, and four times by the 20
    values that its results are merged into.
    """
    examples = tales(2)
    baseline, _ = build(recipe(), examples)
    with_elmo, _ = build(recipe(elmo=place), examples)
    assert count_parameters(with_elmo) - count_parameters(baseline) == added


def test_the_default_model_is_that_of_the_paper():
    chars = CharSettings(char_dim=20, filters=((5, 100),))
    sizes = InputSizes(vectors_VD=torch.zeros(1, 300), num_chars=50, num_layers=3, layer_dim=1024)
    model = TASK.build(SquadSettings(), LABELS, TokenEncoder(sizes, chars, ElmoSettings(place="both")))
    assert model.encoder.forward_layer.input_weight.shape == (3 * 90, 1424)
    assert model.attention.merge.weight.shape == (180, 4816)
    assert model.self_merge.weight.shape == (180, 540)
    assert model.end_reader.backward_layer.input_weight.shape == (270, 360)
    assert model.dropout.p == 0.2
