"""Semantic roles: one example a predicate, outputs that depend on nothing but it, tags that BIO allows."""

import json
import threading
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from task_models import build_model, compute_outputs, make_batch, predict
from torch import nn
from toy_inputs import LetterLayers, calls_in_training

from elmokit.config import read_recipe
from elmokit.errors import InputError
from elmokit.metrics.tags import bio_rules
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, TrainingSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.srl import TASK, RoleExample, SRLLabels, SRLSettings
from elmokit.tasks.task import Batch

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
SIZES = {"predicate_dim": 6, "hidden_dim": 12, "num_layers": 3, "dropout": 0.1}
NAMES = "ann ben cat dan eve".split()


def example(marked: str, tags: str) -> RoleExample:
    (made,) = TASK.read_text(marked)
    return RoleExample(made.tokens, made.predicate, tuple(tags.split()))


def tales(num_tales: int, *, seed: int = 1) -> list[RoleExample]:
    """Who saw whom, in the active and in the passive; in longer ones there are two predicates in the same words."""
    chance = np.random.default_rng(seed)
    made = []
    for number in range(num_tales):
        one, two, three = chance.permutation(NAMES)[:3]
        forms = [
            [(f"{one} *saw* {two}", "B-ARG0 B-V B-ARG1")],
            [(f"{one} was *seen* by {two}", "B-ARG1 O B-V B-ARG0 I-ARG0")],
            [
                (f"{one} *saw* {two} who was fed by {three}", "B-ARG0 B-V B-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1"),
                (f"{one} saw {two} who was *fed* by {three}", "O O B-ARG1 B-R-ARG1 O B-V B-ARG0 I-ARG0"),
            ],
        ]
        made += [example(marked, tags) for marked, tags in forms[number % len(forms)]]
    return made


def recipe(*, elmo: str | None = None, **training: Any) -> TaskRecipe:
    return TaskRecipe(
        task="srl",
        chars=CharSettings(char_dim=6, filters=((2, 16),)),
        elmo=ElmoSettings(model=None if elmo is None else "letters", place=elmo or "none", dropout=0.1),
        model=SIZES,
        training=TrainingSettings(**training),
    )


def columns(chosen: TaskRecipe, examples: Sequence[RoleExample]) -> ColumnMaker:
    vocab = learn_inputs([one.tokens for one in examples], chosen)
    return ColumnMaker(chosen, vocab, vectors=None, layers=LetterLayers(neighbor=1) if chosen.elmo.model else None)


def build(chosen: TaskRecipe, examples: Sequence[RoleExample]) -> tuple[nn.Module, SRLLabels, ColumnMaker]:
    torch.manual_seed(3)
    labels, made = TASK.learn_labels(examples), columns(chosen, examples)
    return build_model(TASK, chosen, labels, made), labels, made


def batch_of(examples: Sequence[RoleExample], labels: SRLLabels, made: ColumnMaker) -> Batch[Any]:
    return make_batch(TASK, examples, labels, made, with_labels=True)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# Learning


@pytest.mark.long
@pytest.mark.parametrize("place", [pytest.param(None, marks=pytest.mark.slow), "both"])
def test_a_few_invented_sentences_are_memorized(place: str | None):
    examples = tales(12)
    model, labels, made = build(recipe(elmo=place), examples)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batch = batch_of(examples, labels, made)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    predictions = predict(TASK, model, made, labels, examples, batch_size=5)
    assert TASK.score(examples, predictions)["f1"] > 0.99


@pytest.mark.slow
def test_the_loop_learns_what_holds_for_sentences_that_it_has_not_seen(tmp_path: Path):
    data = TaskData(tales(90, seed=1), tales(15, seed=2), lambda: tales(15, seed=3))
    chosen = recipe(batch_size=10, epochs=12, learning_rate=0.02, clip_value=1.0)
    finished = run_task(TASK, chosen, data, tmp_path / "run", report=lambda _: None, stop=threading.Event())
    assert finished is not None
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["test"]["f1"] > 0.95
    loaded = load_task(tmp_path / "run" / "model", expected_task=TASK)
    asked = TASK.read_text("dan was *fed* by cat")
    (tags,) = predict(TASK, loaded.module, loaded.columns, loaded.labels, asked, batch_size=1)
    assert TASK.show(asked[0], tags) == "[ARG1 dan] was *fed* [ARG0 by cat]"


@pytest.mark.slow
def test_the_loss_falls_on_real_sentences(data_dir: Path):
    examples = TASK.read(data_dir / "srl" / "ewt-propbank-dev.conll.xz")[:200]
    short = [one for one in examples if len(one.tokens) <= 20]
    model, labels, made = build(recipe(), short)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = batch_of(short, labels, made)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 2
    assert losses[-1] < 0.6 * losses[0]


# Outputs


@pytest.mark.parametrize("place", [None, "both"])
def test_neither_padding_nor_the_order_of_a_batch_changes_a_output(place: str | None):
    examples = tales(9)
    model, labels, made = build(recipe(elmo=place), examples)
    alone = [compute_outputs(TASK, model, made, labels, [one], batch_size=1)[0] for one in examples]
    model.eval()
    with torch.no_grad():
        together = model.outputs(batch_of(examples, labels, made))
        turned = model.outputs(batch_of(examples[::-1], labels, made))[::-1]
    for one, *outputs in zip(examples, alone, together, turned, strict=True):
        for output in outputs:
            assert output.shape == (len(one.tokens), len(labels.tags))
            np.testing.assert_allclose(output, outputs[0], atol=1e-5)


def test_a_output_is_a_distribution_over_tags_at_every_token():
    examples = tales(3)
    model, labels, made = build(recipe(), examples)
    for output in compute_outputs(TASK, model, made, labels, examples, batch_size=2):
        np.testing.assert_allclose(np.exp(output).sum(axis=1), 1.0, atol=1e-5)


def test_the_predicate_is_all_that_two_examples_of_a_sentence_differ_in():
    tokens = ("ann", "saw", "ben", "run")
    examples = [RoleExample(tokens, predicate, ("O",) * 4) for predicate in (1, 3, 1)]
    model, labels, made = build(recipe(), tales(3))
    first, other, again = compute_outputs(TASK, model, made, labels, examples, batch_size=3)
    np.testing.assert_allclose(first, again, atol=1e-6)
    assert np.abs(first - other).max() > 1e-3


def test_the_loss_is_the_mean_over_tokens_and_not_over_padding():
    examples = tales(3)
    model, labels, made = build(recipe(), examples)
    model.eval()
    outputs = compute_outputs(TASK, model, made, labels, examples, batch_size=3)
    right = [
        output[place, labels.tags.index(tag)]
        for one, output in zip(examples, outputs, strict=True)
        for place, tag in enumerate(one.tags or ())
    ]
    assert model.loss(batch_of(examples, labels, made)).item() == pytest.approx(-np.mean(right), abs=1e-5)


@pytest.mark.parametrize(
    ("place", "added"),
    [
        ("input", 6 * 12 * 26 + 3),
        ("output", 26 * 9 + 3),
        ("both", 6 * 12 * 26 + 26 * 9 + 2 * 3),
    ],
)
def test_elmo_adds_its_mixes_and_what_is_wider_for_it_and_nothing_else(place: str, added: int):
    """A mix of two layers has 3 parameters; 6 blocks of 12 cells, and 9 tags, read 26 values more."""
    examples = tales(6)
    baseline, labels, _ = build(recipe(), examples)
    with_elmo, _, _ = build(recipe(elmo=place), examples)
    assert len(labels.tags) == 9  # O, and two each for V, ARG0, ARG1 and R-ARG1
    assert count_parameters(with_elmo) - count_parameters(baseline) == added


@pytest.mark.parametrize("place", ["input", "output"])
def test_what_the_mix_of_a_place_gives_is_read(place: str):
    examples = tales(3)
    model, labels, made = build(recipe(elmo=place), examples)
    before = compute_outputs(TASK, model, made, labels, examples, batch_size=3)
    with torch.no_grad():
        getattr(model.tokens, f"{place}_mix").gamma.zero_()
    after = compute_outputs(TASK, model, made, labels, examples, batch_size=3)
    assert np.abs(before[0] - after[0]).max() > 1e-3


def test_the_predicate_alone_is_marked():
    examples = tales(3)
    model, labels, made = build(recipe(), examples)
    (encoder,) = calls_in_training(model, batch_of(examples, labels, made))["encoder"]
    marks_BTD = encoder.read[0][:, :, -SIZES["predicate_dim"] :]
    for one, marks_TD in zip(examples, marks_BTD, strict=True):
        marked = (marks_TD == model.mark.weight[1]).all(dim=1)
        assert marked.nonzero().tolist() == [[one.predicate]]
        assert (marks_TD[~marked] == model.mark.weight[0]).all()


@pytest.mark.parametrize(("dropout", "num_losses"), [(0.0, 1), (0.5, 4)])
def test_dropout_is_that_of_the_settings(dropout: float, num_losses: int):
    examples = tales(3)
    model, labels, made = build(recipe().model_copy(update={"model": SIZES | {"dropout": dropout}}), examples)
    batch = batch_of(examples, labels, made)
    assert len({model.train().loss(batch).item() for _ in range(4)}) == num_losses
    assert len({model.eval().loss(batch).item() for _ in range(4)}) == 1


def test_the_default_model_is_that_of_the_paper():
    examples = tales(6)
    made = columns(recipe(), examples)
    model = TASK.build(
        SRLSettings(), TASK.learn_labels(examples), TokenEncoder(made.sizes(), CharSettings(), ElmoSettings())
    )
    assert model.mark.weight.shape == (2, 100)
    assert len(model.encoder.layers) == 8
    assert model.encoder.layers[7].recurrent_weight.shape == (5 * 300, 300)
    assert model.encoder.dropout == 0.1
    rows_KK = model.emit.weight @ model.emit.weight.T
    torch.testing.assert_close(rows_KK, torch.eye(len(rows_KK)), atol=1e-5, rtol=0)


# Decoding


TAGS = ("O", "B-ARG0", "I-ARG0", "B-C-ARG0", "I-C-ARG0")


def best_by_search(output: np.ndarray, tags: Sequence[str]) -> tuple[str, ...]:
    """Try all paths."""
    rules = bio_rules(tags)
    best, best_score = (), -np.inf
    for path in product(range(len(tags)), repeat=len(output)):
        allowed = rules.start_K[path[0]] and all(rules.transitions_KK[path[:-1], path[1:]])
        score = sum(output[place, tag] for place, tag in enumerate(path))
        if allowed and score > best_score:
            best, best_score = path, score
    return tuple(tags[index] for index in best)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_decoding_finds_the_best_of_all_paths_that_bio_allows(length: int, seed: int):
    output = np.random.default_rng(seed).normal(scale=2, size=(length, len(TAGS))).astype(np.float32)
    asked = RoleExample(("a",) * length, 0, None)
    assert TASK.decode(output, asked, SRLLabels(tags=TAGS)) == best_by_search(output, TAGS)


def test_a_tag_that_may_not_stand_there_is_never_predicted():
    output = np.log(np.array([[0.1, 0.2, 0.7, 0.0001, 0.0001], [0.05, 0.05, 0.2, 0.0001, 0.7]], dtype=np.float32))
    assert TASK.decode(output, RoleExample(("a", "b"), 0, None), SRLLabels(tags=TAGS)) == ("B-ARG0", "I-ARG0")


def test_an_ensemble_goes_by_the_mean_of_the_probabilities():
    labels, asked = SRLLabels(tags=("O", "B-V")), RoleExample(("a",), 0, None)
    for pairs, expected in (
        ([[0.99, 0.01], [0.4, 0.6], [0.4, 0.6]], "O"),  # one that is sure beats two that are not
        ([[0.999, 0.001], [0.2, 0.8], [0.2, 0.8]], "B-V"),  # by the mean of the logarithms it would be O
    ):
        mean = TASK.combine([np.log(np.array([pair], dtype=np.float32)) for pair in pairs])
        assert mean.dtype == np.float32
        np.testing.assert_allclose(np.exp(mean), [np.mean(pairs, axis=0)], rtol=1e-6)
        assert TASK.decode(mean, asked, labels) == (expected,)


# Scores


def test_both_ways_to_count_an_argument_in_two_phrases():
    gold = example("it *is* said to rain", "B-ARG1 B-V O B-C-ARG1 I-C-ARG1")
    scores = TASK.score([gold], [("B-ARG1", "B-V", "O", "O", "O")])
    assert scores == {"f1": 0, "precision": 0, "recall": 0, "span_f1": pytest.approx(2 / 3)}
    assert TASK.score([gold], [gold.tags])["f1"] == 1


# Labels


def test_every_role_has_both_its_tags():
    made = TASK.learn_labels([example("ann *saw* ben", "B-ARG0 B-V B-ARG1")])
    assert made.tags == ("O", "B-ARG0", "I-ARG0", "B-ARG1", "I-ARG1", "B-V", "I-V")


def test_a_role_that_is_not_learned_is_rejected_by_name():
    labels = TASK.learn_labels([example("ann *saw* ben", "B-ARG0 B-V B-ARG1")])
    other = example("ann *saw* ben", "B-ARG0 B-V B-ARGM-TMP")
    assert TASK.unknown_labels([other], labels) == {"ARGM-TMP"}
    with pytest.raises(InputError, match=r"^the role 'ARGM-TMP' is not .* known: ARG0, ARG1, V$"):
        TASK.collate([other], labels, labeled=True)
    assert TASK.collate([other], labels, labeled=False).tags_N is None


def test_learning_from_examples_without_tags_is_rejected():
    labels = TASK.learn_labels(tales(3))
    with pytest.raises(InputError, match="has no tags"):
        TASK.collate(TASK.read_text("ann *saw* ben"), labels, labeled=True)


@pytest.mark.parametrize(
    ("predicate", "tags", "message"),
    [(3, None, "token 3 does not exist"), (-1, None, "token -1"), (0, ("O",), "1 tags for the 3")],
)
def test_an_example_that_does_not_fit_together_is_rejected(predicate: int, tags: Any, message: str):
    with pytest.raises(InputError, match=message):
        RoleExample(("ann", "saw", "ben"), predicate, tags)


def test_what_a_person_typed_is_predicted_and_shown():
    model, labels, made = build(recipe(), tales(6))
    asked = [*TASK.read_text("ann *saw* ben who was *fed* by eve"), *TASK.read_text("dan *ran*")]
    predictions = predict(TASK, model, made, labels, asked, batch_size=2)
    assert [len(tags) for tags in predictions] == [8, 8, 2]
    assert all("*" in TASK.show(one, tags) for one, tags in zip(asked, predictions, strict=True))


# Recipes


def test_the_recipe_of_the_paper_has_its_sizes():
    chosen = read_recipe(TaskRecipe, RECIPES / "srl-paper.toml", [])
    assert chosen.task == TASK.name
    assert SRLSettings.model_validate(chosen.model) == SRLSettings()
    assert (chosen.training.optimizer, chosen.training.clip_value, chosen.training.patience) == ("adadelta", 1.0, 200)


def test_the_small_recipe_is_one_of_this_task():
    chosen = read_recipe(TaskRecipe, RECIPES / "srl.toml", [])
    assert chosen.task == TASK.name
    SRLSettings.model_validate(chosen.model)
