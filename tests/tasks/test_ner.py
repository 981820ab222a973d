"""Named entities: outputs that depend on nothing but their sentence, tags that BIOUL allows, scores by whole spans."""

from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from task_models import compute_outputs, predict
from torch import nn
from toy_inputs import (
    LAYER_DIM,
    NUM_LAYERS,
    assert_half_is_dropped,
    batch_of,
    calls_in_training,
    make_columns,
    make_model,
    stir,
)

from elmokit.errors import InputError
from elmokit.metrics.tags import bio_to_bioul, bioul_rules, bioul_to_bio
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.tasks.ner import TASK, ChainScores, NERLabels, NERSettings

SIZES = {"hidden_dims": (12, 10), "dropout": 0.0}


def sentence(marked: str) -> TaggedSentence:
    """``Ann/PER lives in New/LOC York/LOC``: neighbors of one type are one entity."""
    tokens, types = zip(*[(*part.split("/"), "")[:2] for part in marked.split()], strict=True)
    before = ("", *types)
    tags = [
        f"{'I' if kind == last else 'B'}-{kind}" if kind else "O" for kind, last in zip(types, before, strict=False)
    ]
    return TaggedSentence(tokens, tuple(tags), 0)


TALES = [
    sentence("Ann/PER met Ben/PER Stone/PER in Rome/LOC"),
    sentence("Rome/LOC is old"),
    sentence("Nothing happened"),
    sentence("Ben/PER"),
    sentence("the Royal/ORG Bank/ORG of/ORG Rome/ORG paid Ann/PER Stone/PER"),
    sentence("Ann/PER left New/LOC York/LOC for Rome/LOC on Monday"),
]


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.long
@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "input", "both"])
def test_a_few_invented_sentences_are_memorized(place: str):
    labels, columns = TASK.learn_labels(TALES), make_columns(TASK, TALES, place=place)
    model = make_model(TASK, columns, labels, **SIZES).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    batch = batch_of(TASK, TALES, labels, columns)
    for _ in range(40):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    predictions = predict(TASK, model, columns, labels, TALES, batch_size=4)
    assert TASK.score(TALES, predictions)["f1"] == 1


@pytest.mark.parametrize("place", ["none", "both"])
def test_neither_padding_nor_the_order_of_a_batch_changes_a_output(place: str):
    labels, columns = TASK.learn_labels(TALES), make_columns(TASK, TALES, place=place)
    model = stir(make_model(TASK, columns, labels, **SIZES))
    alone = [compute_outputs(TASK, model, columns, labels, [one], batch_size=1)[0] for one in TALES]
    with torch.no_grad():
        together = model.outputs(batch_of(TASK, TALES, labels, columns))
        turned = model.outputs(batch_of(TASK, TALES[::-1], labels, columns))[::-1]
    for one, *outputs in zip(TALES, alone, together, turned, strict=True):
        for output in outputs:
            assert output.emissions_TK.shape == (len(one.tokens), len(labels.tags))
            np.testing.assert_allclose(output.emissions_TK, outputs[0].emissions_TK, atol=1e-4)


def test_the_loss_is_the_sum_over_sentences_of_the_right_paths_share_by_brute_force():
    labels, columns = NERLabels(tags=("O", "B-X", "I-X", "L-X", "U-X")), make_columns(TASK, TALES)
    examples = [sentence("Rome/X is"), sentence("Ben/X")]
    model = stir(make_model(TASK, columns, labels, **SIZES))
    batch = batch_of(TASK, examples, labels, columns)
    with torch.no_grad():
        outputs = model.outputs(batch)
    losses = []
    for one, output in zip(examples, outputs, strict=True):
        right = [labels.tags.index(tag) for tag in bio_to_bioul(one.tags)]
        scores = {path: _score(output, path) for path in product(range(5), repeat=len(one.tokens))}
        losses.append(np.log(sum(np.exp(score) for score in scores.values())) - scores[tuple(right)])
    assert model.loss(batch).item() == pytest.approx(np.sum(losses), rel=1e-4)


def _score(output: ChainScores, path: Sequence[int]) -> float:
    emitted = sum(float(output.emissions_TK[place, tag]) for place, tag in enumerate(path))
    return emitted + sum(float(output.transitions_KK[a, b]) for a, b in pairwise(path))


TAGS = ("O", "B-X", "I-X", "L-X", "U-X")


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_decoding_finds_the_best_of_all_paths_that_bioul_allows(length: int, seed: int):
    chance = np.random.default_rng(seed)
    output = ChainScores(
        chance.normal(scale=2, size=(length, len(TAGS))).astype(np.float32),
        chance.normal(size=(len(TAGS), len(TAGS))).astype(np.float32),
    )
    rules = bioul_rules(TAGS)
    allowed = [
        path
        for path in product(range(len(TAGS)), repeat=length)
        if rules.start_K[path[0]] and rules.end_K[path[-1]] and all(rules.transitions_KK[path[:-1], path[1:]])
    ]
    best = max(allowed, key=lambda path: _score(output, path))
    found = TASK.decode(output, TaggedSentence(("a",) * length, (), 0), NERLabels(tags=TAGS))
    assert found == tuple(bioul_to_bio([TAGS[index] for index in best]))


@pytest.mark.parametrize(
    ("place", "added"),
    [
        ("input", 2 * 4 * 12 * LAYER_DIM + NUM_LAYERS + 1),
        ("output", 2 * 4 * 10 * LAYER_DIM + NUM_LAYERS + 1),
        ("both", 2 * 4 * (12 + 10) * LAYER_DIM + 2 * (NUM_LAYERS + 1)),
    ],
)
def test_elmo_adds_its_mixes_and_what_is_wider_for_it_and_nothing_else(place: str, added: int):
    """Both directions' four gates of 12 cells below and 10 above read so many values more."""
    labels = TASK.learn_labels(TALES)
    baseline = make_model(TASK, make_columns(TASK, TALES), labels, **SIZES)
    with_elmo = make_model(TASK, make_columns(TASK, TALES, place=place), labels, **SIZES)
    assert count_parameters(with_elmo) - count_parameters(baseline) == added


@pytest.mark.parametrize("place", ["input", "output"])
def test_what_the_mix_of_a_place_gives_is_read(place: str):
    labels, columns = TASK.learn_labels(TALES), make_columns(TASK, TALES, place=place)
    model = stir(make_model(TASK, columns, labels, **SIZES))
    before = compute_outputs(TASK, model, columns, labels, TALES, batch_size=6)
    with torch.no_grad():
        getattr(model.tokens, f"{place}_mix").gamma.zero_()
    after = compute_outputs(TASK, model, columns, labels, TALES, batch_size=6)
    assert np.abs(before[0].emissions_TK - after[0].emissions_TK).max() > 1e-3


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_an_lstm_reads_its_input_through_one_dropout_mask_a_sentence(name: str):
    labels, columns = TASK.learn_labels(TALES), make_columns(TASK, TALES, place="both")
    model = make_model(TASK, columns, labels, **(SIZES | {"dropout": 0.5}))
    calls = calls_in_training(model, batch_of(TASK, TALES, labels, columns))
    (tokens,), (lower,) = calls["tokens"], calls["lower"]
    given = {"lower": tokens.made.inputs_BTE, "upper": torch.cat([lower.made, tokens.made.elmo_BTD], dim=2)}
    (lstm,) = calls[name]
    assert_half_is_dropped(lstm.read[0], given[name], one_mask=True)


def test_the_default_model_is_that_of_the_paper():
    model = make_model(TASK, make_columns(TASK, TALES), TASK.learn_labels(TALES))
    assert NERSettings().hidden_dims == (200, 100)
    assert model.emit.in_features == 200
    assert model.dropout.p == 0.5


def test_every_type_has_all_four_tags():
    assert TASK.learn_labels([sentence("Ann/PER")]).tags == ("O", "B-PER", "I-PER", "L-PER", "U-PER")


def test_a_type_that_is_not_learned_is_rejected_by_name_in_training_and_named_before_evaluation():
    labels = TASK.learn_labels([sentence("Ann/PER")])
    other = sentence("Rome/LOC is old")
    assert TASK.unknown_labels([other], labels) == {"LOC"}
    with pytest.raises(InputError, match=r"^the tag 'U-LOC' is not in the training data; known: O, B-PER"):
        TASK.collate([other], labels, labeled=True)
    assert TASK.collate([other], labels, labeled=False).tags_BT is None


def test_learning_from_sentences_without_tags_is_rejected():
    labels = TASK.learn_labels(TALES)
    with pytest.raises(InputError, match="'Ann met Ben' has no tags"):
        TASK.collate(TASK.read_text("Ann met Ben"), labels, labeled=True)


def test_an_ensemble_goes_by_the_mean_of_the_scores():
    sure, unsure = (
        ChainScores(np.array([scores], dtype=np.float32), np.zeros((2, 2), dtype=np.float32))
        for scores in ([9.0, 0.0], [0.0, 1.0])
    )
    labels, asked = NERLabels(tags=("O", "U-X")), TaggedSentence(("a",), (), 0)
    assert TASK.decode(unsure, asked, labels) == ("B-X",)
    assert TASK.decode(TASK.combine([sure, unsure, unsure]), asked, labels) == ("O",)


def test_entities_are_shown_in_brackets_and_listed_as_json():
    one = TALES[0]
    assert TASK.show(one, one.tags) == "[PER Ann] met [PER Ben Stone] in [LOC Rome]"
    entities = TASK.to_json(one, one.tags)["entities"]
    assert entities[1] == {"type": "PER", "start": 2, "end": 4, "tokens": ["Ben", "Stone"]}


def test_a_line_of_raw_text_is_a_sentence_without_tags():
    assert TASK.read_text("Ann left.") == [TaggedSentence(("Ann", "left", "."), (), 0)]


@pytest.mark.parametrize("line", ["", "   "])
def test_a_line_without_words_is_rejected(line: str):
    with pytest.raises(InputError, match=r"^no words in .* expected a sentence"):
        TASK.read_text(line)


def test_a_file_without_sentences_is_rejected(tmp_path: Path):
    (tmp_path / "empty.conll").write_text("\n\n", "utf-8")
    with pytest.raises(InputError, match=r"empty\.conll: no sentences"):
        TASK.read_training(tmp_path / "empty.conll")
