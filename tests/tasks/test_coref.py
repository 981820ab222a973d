"""Coreference: documents to clusters, through the whole model."""

import itertools
import json
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coref_stories import stories, story
from task_models import build_model, compute_outputs, make_batch, predict
from torch import Tensor, nn
from toy_inputs import Call, LetterLayers, assert_half_is_dropped, calls_in_training

from elmokit.config import read_recipe
from elmokit.readers.conll2012 import Document, Mention, read_conll2012_archive
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.coref import TASK, CorefLabels, CorefSettings, antecedent_loss
from elmokit.tasks.coref_documents import CorefOutput, tidy_clusters
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.names import get_task
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, TrainingSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.task import Batch

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
SIZES = {
    "hidden_dim": 10,
    "scorer_dims": (20, 20),
    "feature_dim": 4,
    "max_span_width": 3,
    "spans_per_token": 0.8,
    "max_antecedents": 12,
    "input_dropout": 0.1,
    "dropout": 0.1,
}


def recipe(*, elmo: str | None = None, **training: Any) -> TaskRecipe:
    return TaskRecipe(
        task="coref",
        chars=CharSettings(char_dim=6, filters=((2, 16),)),
        elmo=ElmoSettings(model=None if elmo is None else "letters", place=elmo or "none", dropout=0.0),
        model=SIZES,
        training=TrainingSettings(batch_size=1, **training),
    )


def columns(chosen: TaskRecipe, examples: Sequence[Document]) -> ColumnMaker:
    vocab = learn_inputs((tokens for one in examples for tokens in TASK.sequences(one)[0]), chosen)
    return ColumnMaker(chosen, vocab, vectors=None, layers=LetterLayers(neighbor=-1) if chosen.elmo.model else None)


def build(chosen: TaskRecipe, examples: Sequence[Document]) -> tuple[nn.Module, CorefLabels, ColumnMaker]:
    torch.manual_seed(3)
    labels, made = TASK.learn_labels(examples), columns(chosen, examples)
    return build_model(TASK, chosen, labels, made), labels, made


def batch_of(examples: Sequence[Document], labels: CorefLabels, made: ColumnMaker) -> Batch[Any]:
    return make_batch(TASK, examples, labels, made, with_labels=True)


def learn(model: nn.Module, batches: Sequence[Batch[Any]], *, rounds: int, rate: float) -> Iterator[float]:
    """The loss of every round."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(rounds):
        total = 0.0
        model.train()
        for batch in batches:
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        yield total


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def assert_same(left: CorefOutput, right: CorefOutput) -> None:
    assert np.array_equal(left.mentions_M3, right.mentions_M3)
    found = [
        dict(zip(map(tuple, one.pairs_N2.tolist()), one.probabilities_N.tolist(), strict=True)) for one in (left, right)
    ]
    assert found[0].keys() == found[1].keys()
    np.testing.assert_allclose(list(found[0].values()), [found[1][pair] for pair in found[0]], atol=1e-5)


# Learning


@pytest.mark.long
@pytest.mark.parametrize("place", [None, pytest.param("both", marks=pytest.mark.slow)])
def test_a_few_invented_stories_are_memorized(place: str | None) -> None:
    examples = stories(2)
    model, labels, made = build(recipe(elmo=place), examples)
    batches = [batch_of([one], labels, made) for one in examples]
    # A mention that was not kept is not learned from, so it can take a while until all of them are.
    for number, _ in enumerate(learn(model, batches, rounds=80, rate=0.02)):
        if number % 4 == 3:
            predictions = predict(TASK, model, made, labels, examples, batch_size=1)
            if TASK.score(examples, predictions)["f1"] > 0.99:
                return
    pytest.fail("not learned")


@pytest.mark.slow
def test_the_loop_learns_what_holds_for_stories_that_it_has_not_seen(tmp_path: Path) -> None:
    data = TaskData(*(stories(size, seed=size, of_names=True) for size in (30, 8)), lambda: stories(9, of_names=True))
    chosen = recipe(epochs=6, learning_rate=0.01, clip_norm=5.0, schedule="exponential")
    finished = run_task(TASK, chosen, data, tmp_path / "run", report=lambda _: None, stop=threading.Event())
    assert finished is not None
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["test"]["f1"] > 0.9
    loaded = load_task(tmp_path / "run" / "model", expected_task=TASK)
    asked = [*TASK.read_text("sue met tom"), *TASK.read_text("rex came to her")]
    assert [len(one.sentences) for one in asked] == [1, 1]
    assert len(predict(TASK, loaded.module, loaded.columns, loaded.labels, asked, batch_size=2)) == 2


@pytest.mark.slow
def test_the_loss_falls_on_real_documents(data_dir: Path) -> None:
    documents = itertools.islice(read_conll2012_archive(data_dir / "coref" / "litbank-conll.tar.xz"), 2)
    cut = [
        replace(
            one,
            sentences=one.sentences[:8],
            clusters=tidy_clusters([[m for m in cluster if m.sentence < 8] for cluster in one.clusters]),
        )
        for one in documents
    ]
    model, labels, made = build(recipe(), cut)
    assert labels == CorefLabels(genres=(), has_speakers=False)
    losses = list(learn(model, [batch_of([one], labels, made) for one in cut], rounds=12, rate=0.005))
    assert losses[-1] < 0.5 * losses[0]


# The loss


def plain_loss(scores_MA: Tensor, clusters: Sequence[int]) -> float:
    """By its definition: sums of probabilities, a span at a time."""
    total = 0.0
    for span, cluster in enumerate(clusters):
        antecedents = {span - 1 - column: scores_MA[span, column].item() for column in range(scores_MA.shape[1])}
        weights = {None: 1.0} | {place: math.exp(score) for place, score in antecedents.items() if place >= 0}
        right = [place for place in weights if place is not None and cluster and clusters[place] == cluster] or [None]
        total -= math.log(sum(weights[place] for place in right) / sum(weights.values()))
    return total


def test_the_loss_equals_its_definition_for_all_ways_to_cluster() -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 3, dtype=torch.float64)
    scores[torch.arange(5)[:, None] - torch.arange(1, 4) < 0] = -math.inf
    for clusters in itertools.product(range(3), repeat=5):
        found = antecedent_loss(scores, torch.tensor(clusters))
        assert found.item() == pytest.approx(plain_loss(scores, clusters))


def test_the_loss_has_finite_gradients_where_nothing_can_be_right() -> None:
    scores = torch.full((3, 2), -1e4, requires_grad=True)
    antecedent_loss(
        scores.masked_fill(torch.tensor([[1, 1], [0, 1], [0, 0]]).bool(), -math.inf), torch.ones(3)
    ).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_several_documents_have_the_mean_of_their_losses() -> None:
    examples = stories(3)
    model, labels, made = build(recipe(), examples)
    model.eval()
    alone = [model.loss(batch_of([one], labels, made)).item() for one in examples]
    assert model.loss(batch_of(examples, labels, made)).item() == pytest.approx(np.mean(alone), rel=1e-5)


def test_a_mention_that_is_too_long_is_no_reason_to_stop() -> None:
    examples = [story("[1 a big old dog ] saw [2 ann ]", "[1 it ] saw [2 her ]")]
    model, labels, made = build(recipe(), examples)
    list(learn(model, [batch_of(examples, labels, made)], rounds=30, rate=0.02))
    (prediction,) = predict(TASK, model, made, labels, examples, batch_size=1)
    assert prediction == ((Mention(0, 5, 6), Mention(1, 2, 3)),)


def test_a_document_of_one_token_can_be_learned_from_and_predicted() -> None:
    examples = [*stories(1), story("ann")]
    model, labels, made = build(recipe(), examples)
    list(learn(model, [batch_of([one], labels, made) for one in examples], rounds=1, rate=0.01))
    assert predict(TASK, model, made, labels, examples[1:], batch_size=1) == [()]


# Outputs


@pytest.mark.parametrize("place", [None, "both"])
def test_neither_padding_nor_the_order_of_a_batch_changes_a_output(place: str | None) -> None:
    examples = [*stories(4), story("[1 ann ] saw a very long line of old red houses in front of [1 her ] that day")]
    model, labels, made = build(recipe(elmo=place), examples)
    alone = [compute_outputs(TASK, model, made, labels, [one], batch_size=1)[0] for one in examples]
    model.eval()
    with torch.no_grad():
        together = model.outputs(batch_of(examples, labels, made))
        turned = model.outputs(batch_of(examples[::-1], labels, made))[::-1]
    for one, *others in zip(alone, together, turned, strict=True):
        for other in others:
            assert_same(one, other)


def test_a_output_tells_spans_of_sentences_and_probabilities() -> None:
    examples = stories(3)
    model, labels, made = build(recipe(), examples)
    for one, output in zip(examples, compute_outputs(TASK, model, made, labels, examples, batch_size=1), strict=True):
        lengths = np.array([len(sentence.tokens) for sentence in one.sentences])
        sentence_M, start_M, end_M = output.mentions_M3.T
        assert (start_M >= 0).all()
        assert (start_M < end_M).all()
        assert (end_M <= lengths[sentence_M]).all()
        assert sorted(map(tuple, output.mentions_M3.tolist())) == list(map(tuple, output.mentions_M3.tolist()))
        assert (output.pairs_N2[:, 1] < output.pairs_N2[:, 0]).all()
        assert (output.pairs_N2[:, 0] - output.pairs_N2[:, 1] <= SIZES["max_antecedents"]).all()
        total_M = np.bincount(output.pairs_N2[:, 0], output.probabilities_N)
        assert ((total_M >= 0) & (total_M < 1)).all()


def test_speakers_and_genres_are_read_where_the_data_has_them() -> None:
    def told(*speakers: str, name: str) -> Document:
        return replace(story("[1 i ] saw you", "[1 i ] did", speakers=speakers), name=name)

    examples = [told("x", "y", name="bc/a"), told("x", "x", name="wb/b")]
    model, labels, made = build(recipe(), examples)
    assert labels == CorefLabels(genres=("bc", "wb"), has_speakers=True)
    asked = [*examples, told("x", "x", name="bc/c"), told("x", "y", name="mz/d"), story("i saw you", "i did")]
    outputs = compute_outputs(TASK, model, made, labels, asked, batch_size=1)
    some = [output.probabilities_N[:20] for output in outputs]
    for one, other in itertools.combinations(some, 2):
        assert not np.allclose(one, other, atol=1e-7)
    off = TASK.build(
        CorefSettings(**SIZES, speakers=False, genres=False),
        labels,
        TokenEncoder(made.sizes(), made.recipe.chars, ElmoSettings()),
    )
    assert [name for name, _ in off.pairs.named_children()] == ["distances", "scorer", "dropout"]


@pytest.mark.parametrize(
    ("place", "added"),
    [
        # Three blocks of 10 cells in both directions; a head in the span's own score, and in its three parts of a pair.
        ("input", 26 * (2 * 3 * 10 + 20 + 3 * 20) + 3),
        # The head's attention; first and last token of a span, in its own score, and in its three parts of a pair.
        ("output", 26 * (1 + 2 * 20 + 3 * 2 * 20) + 3),
        ("both", 26 * (2 * 3 * 10 + 20 + 3 * 20) + 26 * (1 + 2 * 20 + 3 * 2 * 20) + 2 * 3),
    ],
)
def test_elmo_adds_its_mixes_and_what_is_wider_for_it_and_nothing_else(place: str, added: int) -> None:
    examples = stories(2)
    baseline, _, _ = build(recipe(), examples)
    with_elmo, _, _ = build(recipe(elmo=place), examples)
    assert count_parameters(with_elmo) - count_parameters(baseline) == added


@pytest.mark.parametrize("place", ["input", "output"])
def test_what_the_mix_of_a_place_gives_is_read(place: str) -> None:
    examples = stories(1)
    model, labels, made = build(recipe(elmo=place), examples)
    batch = batch_of(examples, labels, made)
    before = model.eval().loss(batch).item()
    with torch.no_grad():
        getattr(model.tokens, f"{place}_mix").gamma.zero_()
    assert abs(model.loss(batch).item() - before) > 1e-3


def calls_on_a_sentence(**dropout: float) -> dict[str, list[Call]]:
    examples = [story("[1 ann ] met [2 ben ] and [2 he ] saw [1 her ]")]
    sizes = SIZES | {"input_dropout": 0.0, "dropout": 0.0} | dropout
    model, labels, made = build(recipe(elmo="both").model_copy(update={"model": sizes}), examples)
    return calls_in_training(model, batch_of(examples, labels, made))


def test_encoder_and_heads_read_the_same_dropped_inputs() -> None:
    calls = calls_on_a_sentence(input_dropout=0.5)
    (tokens,), (encoder,), (spans,) = calls["tokens"], calls["encoder"], calls["spans"]
    assert_half_is_dropped(encoder.read[0], tokens.made.inputs_BTE, one_mask=False)
    assert torch.equal(spans.read[0], encoder.read[0][0])


def test_contexts_are_dropped_and_the_elmo_beside_them_is_not() -> None:
    calls = calls_on_a_sentence(dropout=0.5)
    (tokens,), (encoder,), (spans,) = calls["tokens"], calls["encoder"], calls["spans"]
    contexts_TC, elmo_TD = spans.read[1].tensor_split([encoder.made.shape[2]], dim=1)
    assert_half_is_dropped(contexts_TC[None], encoder.made, one_mask=False)
    assert torch.equal(elmo_TD, tokens.made.elmo_BTD[0])


def test_the_default_model_is_that_of_the_paper() -> None:
    examples = stories(2)
    chars = CharSettings(char_dim=8, filters=((3, 50), (4, 50), (5, 50)))
    made = columns(TaskRecipe(task="coref", chars=chars), examples)
    labels = CorefLabels(genres=("bc", "bn", "mz", "nw", "pt", "tc", "wb"), has_speakers=True)
    model = TASK.build(CorefSettings(), labels, TokenEncoder(made.sizes(), chars, ElmoSettings()))
    assert model.encoder.forward_layer.recurrent_weight.shape == (3 * 200, 200)
    span_dim = 400 + 400 + 20 + 150  # 150 are the inputs, without static vectors here
    assert [tuple(layer.weight.shape) for layer in model.spans.scorer.layers] == [(150, span_dim), (150, 150)]
    assert [tuple(layer.weight.shape) for layer in model.pairs.scorer.layers] == [
        (150, 3 * span_dim + 3 * 20),
        (150, 150),
    ]
    assert model.spans.max_width == 10
    assert model.pairs.max_antecedents == 250


# Text, scores and what is shown


def test_typed_text_is_predicted() -> None:
    model, labels, made = build(recipe(), stories(3))
    asked = [*TASK.read_text("Ann met a dog. It liked her."), *TASK.read_text("Ben left.")]
    predictions = predict(TASK, model, made, labels, asked, batch_size=1)
    assert len(predictions) == 2
    assert TASK.show(asked[1], predictions[1]).replace("[", "").replace("]", "").split() != []


def test_what_is_right_scores_one_and_what_is_wrong_less() -> None:
    examples = stories(3)
    right = [one.clusters for one in examples]
    scores = TASK.score(examples, right)
    assert scores.keys() == {"f1"} | {
        f"{metric}_{part}" for metric in ("muc", "b_cubed", "ceaf_e") for part in ("f1", "precision", "recall")
    }
    assert all(value == pytest.approx(1) for value in scores.values())
    wrong = TASK.score(examples, [clusters[1:] for clusters in right])
    assert wrong["muc_precision"] == pytest.approx(1)
    assert wrong["f1"] == pytest.approx((wrong["muc_f1"] + wrong["b_cubed_f1"] + wrong["ceaf_e_f1"]) / 3)
    assert wrong["f1"] < 0.9


def test_a_prediction_is_shown_with_brackets_inside_of_brackets() -> None:
    document = story("[1 Ann ] lost [2 [1 her ] hat ] .", "[2 It ] was gone .", "[1 She ] cried .")
    assert (
        TASK.show(document, document.clusters) == "[1 Ann] lost [2 [1 her] hat] .\n[2 It] was gone .\n[1 She] cried ."
    )
    alike = replace(document, clusters=((Mention(0, 2, 4), Mention(2, 0, 1)), (Mention(0, 3, 4), Mention(1, 0, 1))))
    assert TASK.show(alike, alike.clusters) == "Ann lost [1 her [2 hat]] .\n[2 It] was gone .\n[1 She] cried ."


def test_a_prediction_as_json_names_places_and_words() -> None:
    document = story("[1 Ann ] left .", "[1 The girl ] ran .", name="tale", part=2)
    found = json.loads(json.dumps(TASK.to_json(document, document.clusters)))
    assert found == {
        "document": "tale",
        "part": 2,
        "sentences": [["Ann", "left", "."], ["The", "girl", "ran", "."]],
        "clusters": [
            [
                {"sentence": 0, "start": 0, "end": 1, "tokens": ["Ann"]},
                {"sentence": 1, "start": 0, "end": 2, "tokens": ["The", "girl"]},
            ]
        ],
    }


# Recipes


def test_the_recipes_are_of_this_task_and_the_papers_has_its_sizes() -> None:
    paper, ours = (read_recipe(TaskRecipe, RECIPES / name, []) for name in ("coref-paper.toml", "coref.toml"))
    assert get_task(paper.task) is get_task(ours.task) is TASK
    assert TASK.settings(**paper.model) == CorefSettings()
    assert set(paper.model) == set(CorefSettings.model_fields)  # every number is written out
    assert TASK.settings(**ours.model).max_antecedents == 50
    assert paper.training.batch_size == ours.training.batch_size == 1
