"""Questions on paragraphs: outputs that depend on nothing but them, and answers that are pieces of the paragraph."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from task_models import build_model, compute_outputs, make_batch, predict
from torch import nn
from toy_inputs import Call, LetterLayers, assert_half_is_dropped, calls_in_training

from elmokit.config import read_recipe
from elmokit.errors import ElmokitWarning, InputError
from elmokit.readers.squad import Answer
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.inputs import InputSizes, TokenEncoder
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, TrainingSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.squad import (
    MAX_ANSWER_TOKENS,
    TASK,
    AskedParagraph,
    FoundAnswer,
    SquadLabels,
    SquadSettings,
    best_span,
    hold_out_contexts,
)
from elmokit.tasks.squad_tokens import tokenize_paragraph, tokenize_question
from elmokit.tasks.task import Batch
from elmokit.tasks.task_model import TaskModel

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
SIZES = {"hidden_dim": 10, "dropout": 0.1}
LABELS = SquadLabels()
NAMES, COLORS, PETS = "Ann Ben Cat Dan Eve".split(), "red old wet shy".split(), "dog fox hen owl pig".split()
TOWNS = "Rome Bonn York Lyon".split()


def asked(context: str, question: str, *answers: str, name: str = "q") -> AskedParagraph:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return AskedParagraph(name, tokenize_paragraph(context), tokenize_question(question), found)


def tales(num_tales: int, *, seed: int = 1) -> list[AskedParagraph]:
    """Who has what, and where it rained: the question's first word says which of three answers is asked for."""
    chance = np.random.default_rng(seed)
    made = []
    for number in range(num_tales):
        one, color, pet, town = (str(chance.choice(words)) for words in (NAMES, COLORS, PETS, TOWNS))
        sentences = [f"{one} has a {color} {pet}.", f"It rained in {town}.", "That is all."][: 2 + number % 2]
        context = " ".join(chance.permutation(sentences))
        thing = f"{color} {pet}"
        made += [
            asked(context, f"Who has the {pet}?", one, name=f"who-{number}"),
            asked(context, f"What has {one}?", thing, f"a {thing}", name=f"what-{number}"),
            asked(context, "Where did it rain?", town, name=f"where-{number}"),
        ]
    return made


def recipe(*, elmo: str | None = None, **training: Any) -> TaskRecipe:
    return TaskRecipe(
        task="squad",
        chars=CharSettings(char_dim=6, filters=((2, 16),)),
        elmo=ElmoSettings(model=None if elmo is None else "letters", place=elmo or "none", dropout=0.1),
        model=SIZES,
        training=TrainingSettings(**training),
    )


def columns(chosen: TaskRecipe, examples: Sequence[AskedParagraph]) -> ColumnMaker:
    vocab = learn_inputs([one.context.tokens for one in examples], chosen)
    return ColumnMaker(chosen, vocab, vectors=None, layers=LetterLayers(neighbor=1) if chosen.elmo.model else None)


def build(chosen: TaskRecipe, examples: Sequence[AskedParagraph]) -> tuple[nn.Module, ColumnMaker]:
    torch.manual_seed(3)
    made = columns(chosen, examples)
    return build_model(TASK, chosen, LABELS, made), made


def batch_of(examples: Sequence[AskedParagraph], made: ColumnMaker) -> Batch[Any]:
    return make_batch(TASK, examples, LABELS, made, with_labels=True)


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


# Decoding


def best_by_search(output: np.ndarray) -> tuple[int, int]:
    """Try all pieces."""
    num_tokens = output.shape[1]
    allowed = [(i, j) for i in range(num_tokens) for j in range(i, num_tokens) if j - i < 17]
    return max(allowed, key=lambda span: output[0, span[0]] + output[1, span[1]])


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_decoding_finds_the_best_of_all_allowed_pieces(length: int, seed: int):
    output = np.random.default_rng(seed).normal(scale=3, size=(2, length)).astype(np.float32)
    assert best_span(output) == best_by_search(output)


@given(st.integers(1, 25), st.integers(0, 2**32 - 1))
def test_of_equals_the_first_is_taken(length: int, seed: int):
    output = np.random.default_rng(seed).integers(-2, 1, size=(2, length)).astype(np.float32)
    assert best_span(output) == best_by_search(output)


def test_an_answer_has_17_tokens_at_most_and_never_ends_before_it_begins():
    assert MAX_ANSWER_TOKENS == 17
    output = np.full((2, 30), -9.0, dtype=np.float32)
    output[0, 2] = output[1, 18] = 0
    assert best_span(output) == (2, 18)
    output[1, 18], output[1, 19], output[1, 6] = -9, 0, -1
    assert best_span(output) == (2, 6)
    output = np.full((2, 5), -9.0, dtype=np.float32)
    output[0, 4] = output[1, 0] = 0
    assert best_span(output) == (0, 0)


def test_an_answer_is_the_text_as_it_stands_in_the_paragraph():
    context = "It cost  “five—six” dollars."
    (example,) = TASK.read_text(f"{context}\tHow much?")
    assert example.context.tokens == ("It", "cost", '"', "five", "--", "six", '"', "dollars", ".")
    output = np.log(np.full((2, 9), 0.05, dtype=np.float32))
    output[0, 2], output[1, 6] = np.log(0.6), np.log(0.5)
    found = TASK.decode(output, example, LABELS)
    assert found == FoundAnswer("“five—six”", 9, 19, pytest.approx(0.3))
    assert context[found.start : found.end] == found.text


def test_an_ensemble_goes_by_the_mean_of_the_probabilities():
    sure, unsure = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.3, 0.7], [0.0, 1.0]])
    with np.errstate(divide="ignore"):
        combined = TASK.combine([np.log(sure), np.log(unsure)])
    np.testing.assert_allclose(np.exp(combined), [[0.6, 0.4], [0.1, 0.9]])


# Answers


def test_a_visit_of_training_sees_one_answer_and_every_answer_has_its_turn():
    example = asked("Ann has a red dog.", "What has Ann?", "red dog", "dog", "a red dog")
    chance = np.random.default_rng(0)
    seen = [TASK.vary(example, chance) for _ in range(30)]
    assert {one.answers for one in seen} == {(answer,) for answer in example.answers}
    bounds_B2 = TASK.collate(seen, LABELS, labeled=True).bounds_B2
    places = {"red dog": [3, 4], "dog": [4, 4], "a red dog": [2, 4]}
    assert bounds_B2.tolist() == [places[one.answers[0].text] for one in seen]
    assert TASK.vary(tales(1)[0], chance).answers == tales(1)[0].answers


def test_an_answer_within_words_is_learned_as_those_words():
    example = asked("Two backwards steps.", "Where to?", "wards st")
    assert TASK.collate([example], LABELS, labeled=True).bounds_B2.tolist() == [[1, 2]]


def test_learning_a_question_without_an_answer_is_rejected_and_predicting_one_is_not():
    example = asked("Ann has a dog.", "Who has the cat?", name="17b")
    with pytest.raises(InputError, match=r"^question '17b' has no answer to train on; leave it out$"):
        TASK.collate([*tales(1)[:2], example], LABELS, labeled=True)
    assert TASK.collate([example], LABELS, labeled=False).bounds_B2 is None


def test_scores_are_the_means_of_the_best_answers():
    example = asked("Ann has a red dog.", "What has Ann?", "red dog", "a red dog")
    other = asked("Ann has a red dog.", "Who has a dog?", "Ann")
    answers = [FoundAnswer("a red dog.", 8, 18, 0.5), FoundAnswer("Ann has a", 0, 9, 0.5)]
    assert TASK.score([example, other], answers) == {"f1": pytest.approx((1 + 2 / 3) / 2), "exact_match": 0.5}


def test_a_question_without_an_answer_counts_as_a_mistake_that_is_reported_of():
    examples = [*tales(1)[:2], asked("Ann has a dog.", "Who has the cat?")]
    model, made = build(recipe(), examples)
    assert TASK.unknown_labels(examples, LABELS) == {"no answer"}
    assert TASK.unknown_labels(examples[:2], LABELS) == set()
    with pytest.warns(ElmokitWarning, match=r"dev: 1 of 3 examples .*: no answer \(1\); they count as errors"):
        TaskModel(TASK, made.recipe, LABELS, made, model).evaluate_examples(examples, source="dev")
    right = [FoundAnswer(one.answers[0].text, 0, 1, 1.0) for one in examples[:2]]
    assert TASK.score(examples, [*right, right[0]]) == {"f1": pytest.approx(2 / 3), "exact_match": pytest.approx(2 / 3)}
    with pytest.raises(InputError, match="none of 1 questions has an answer to score against"):
        TASK.score(examples[2:], right[:1])


# Files


def squad_file(folder: Path, *paragraphs: tuple[str, list[dict[str, Any]]]) -> Path:
    document = {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas} for context, qas in paragraphs]}],
    }
    path = folder / "asked.json"
    path.write_text(json.dumps(document), "utf-8")
    return path


def entry(name: str, question: str, *answers: tuple[str, int]) -> dict[str, Any]:
    return {"id": name, "question": question, "answers": [{"text": text, "answer_start": at} for text, at in answers]}


def test_a_file_gives_an_example_a_question(tmp_path: Path):
    path = squad_file(tmp_path, ("Ann left. Ben didn't.", [entry("a", "Who left?", ("Ann", 0)), entry("b", "Who?")]))
    first, second = TASK.read(path)
    assert (first.id, second.id) == ("a", "b")
    assert first.context is second.context
    assert TASK.sequences(first) == (
        [("Ann", "left", ".", "Ben", "did", "n't", ".")],
        [("Who", "left", "?")],
    )
    assert (first.answers, second.answers) == ((Answer("Ann", 0),), ())


def test_to_train_on_every_question_needs_an_answer(tmp_path: Path):
    qas = [entry("a", "Who left?", ("Ann", 0)), entry("b", "Who?"), entry("c", "Why?")]
    path = squad_file(tmp_path, ("Ann left.", qas))
    with pytest.raises(InputError, match=r"asked\.json: 2 of 3 questions have no answer, 'b' first; .* SQuAD 1\.1"):
        TASK.read_training(path)


def test_a_file_without_any_answer_is_rejected_before_anything_is_learned(tmp_path: Path):
    path = squad_file(tmp_path, ("Ann left.", [entry("a", "Who?"), entry("b", "Why?")]))
    with pytest.raises(InputError, match=r"asked\.json: none of 2 questions has an answer to score against; give a"):
        TASK.read(path)


@pytest.mark.parametrize(
    ("paragraph", "message"),
    [
        (("Ann left.", [entry("a", " \u200b")]), r"question 'a': the question ' \\u200b' has no tokens"),
        (("  ", [entry("a", "Who?")]), "question 'a': the paragraph '  ' has no tokens"),
        (("Ann left.", [entry("a", "Who?", (" ", 3))]), "question 'a': the answer ' ' has no tokens; take it out"),
        (("Ann left.", []), "asked.json: no questions"),
        (("Ann left.", [entry("a", "Who?", ("Ben", 0))]), "'Ben' is not at character 0"),
    ],
)
def test_what_cannot_be_read_is_rejected_by_name(tmp_path: Path, paragraph: Any, message: str):
    with pytest.raises(InputError, match=message):
        TASK.read(squad_file(tmp_path, paragraph))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count"), [("train", 11_235), ("test", 3_335)])
def test_the_published_questions_are_read_whole(data_dir: Path, part: str, count: int):
    examples = TASK.read_training(data_dir / "squad" / f"{part}-small.json.xz")
    assert len(examples) == count
    _, dev = hold_out_contexts(examples)
    assert 0.08 < len(dev) / count < 0.12


def test_whole_paragraphs_are_held_out_whatever_the_order():
    examples = [
        asked(f"Ann has {number} dogs.", f"Who has {what}?", "Ann", name=f"{number}-{what}")
        for number in range(40)
        for what in ("dogs", "none")
    ]
    train, dev = hold_out_contexts(examples)
    assert len(dev) == 8
    assert {one.context.text for one in dev}.isdisjoint(one.context.text for one in train)
    assert sorted(one.id for one in [*train, *dev]) == sorted(one.id for one in examples)
    assert [one.id for one in hold_out_contexts(examples[::-1])[1]] == [one.id for one in dev[::-1]]
    assert [one.id for one in dev] == [one.id for one in examples if one in dev]


def test_two_paragraphs_are_the_fewest_to_split():
    train, dev = hold_out_contexts([asked("Ann left.", "Who?"), asked("Ben left.", "Who?")])
    assert len(train) == len(dev) == 1
    with pytest.raises(InputError, match="questions on 1 paragraphs cannot be split"):
        hold_out_contexts([asked("Ann left.", "Who?"), asked("Ann left.", "Why?")])


# What a person types and sees


def test_what_a_person_typed_is_predicted_and_shown():
    model, made = build(recipe(), tales(2))
    lines = ["Ann has a dog. Ben has none.\tWho has a dog?", "It rained.\tWhy?"]
    examples = [example for line in lines for example in TASK.read_text(line)]
    predictions = predict(TASK, model, made, LABELS, examples, batch_size=2)
    for example, prediction in zip(examples, predictions, strict=True):
        assert prediction.text == example.context.text[prediction.start : prediction.end] != ""
        assert 0 < prediction.probability <= 1
        assert f"[{prediction.text}]" in TASK.show(example, prediction)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Ann has a dog. Who has it?", "has 0 tabs; expected a paragraph, a tab and a question"),
        ("Ann\thas\tit?", "has 2 tabs"),
        ("", "has 0 tabs"),
        ("Ann has a dog.\t", "the question '' has no tokens"),
        ("\tWho?", "the paragraph '' has no tokens"),
    ],
)
def test_a_line_that_is_no_question_on_a_paragraph_is_rejected(line: str, message: str):
    with pytest.raises(InputError, match=message):
        TASK.read_text(line)


def test_an_answer_is_shown_in_its_surroundings():
    start = "Long ago, before anyone can remember,\nthere lived a king. "
    end = " She was the first to cross the sea, and did it again."
    example = asked(f"{start}Ann the Bold.{end}", "Who crossed the sea?")
    found = FoundAnswer("Ann the Bold", len(start), len(start) + 12, 0.934)
    assert TASK.show(example, found) == (
        "Who crossed the sea? Ann the Bold (93%): ...nyone can remember, there lived a king. [Ann the Bold]. "
        "She was the first to cross the sea, an..."
    )
    short = asked("Ann left.", "Who?")
    assert TASK.show(short, FoundAnswer("Ann", 0, 3, 1.0)) == "Who? Ann (100%): [Ann] left."


def test_a_prediction_as_json():
    example = asked("Ann left.", "Who?", name="5a")
    assert json.loads(json.dumps(TASK.to_json(example, FoundAnswer("Ann", 0, 3, 0.5)))) == {
        "id": "5a",
        "question": "Who?",
        "answer": "Ann",
        "start": 0,
        "end": 3,
        "probability": 0.5,
    }


# Recipes


def test_the_recipe_of_the_paper_has_its_sizes():
    chosen = read_recipe(TaskRecipe, RECIPES / "squad-paper.toml", [])
    assert chosen.task == TASK.name
    assert SquadSettings.model_validate(chosen.model) == SquadSettings()
    assert (chosen.training.optimizer, chosen.training.batch_size, chosen.training.epochs) == ("adadelta", 45, 24)
    assert (chosen.training.ema, chosen.training.evaluate_every) == (0.999, 1200)
    assert (chosen.elmo.place, chosen.elmo.penalty, chosen.elmo.dropout) == ("both", 0.0, 0.5)


def test_the_small_recipe_is_one_of_this_task():
    chosen = read_recipe(TaskRecipe, RECIPES / "squad.toml", [])
    assert chosen.task == TASK.name
    SquadSettings.model_validate(chosen.model)
