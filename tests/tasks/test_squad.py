"""Questions on paragraphs: outputs that depend on nothing but them, and answers that are pieces of the paragraph."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from squad_tales import LABELS, RECIPES, asked, build, recipe, tales
from task_models import predict

from elmokit.config import read_recipe
from elmokit.errors import ElmokitWarning, InputError
from elmokit.readers.squad import Answer
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.squad import (
    MAX_ANSWER_TOKENS,
    TASK,
    FoundAnswer,
    SquadSettings,
    best_span,
    hold_out_contexts,
)
from elmokit.tasks.task_model import TaskModel

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
