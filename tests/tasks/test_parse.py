"""Parsing: the loss and the best tree against every labeled tree there is, and what padding must not change."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from task_models import compute_outputs, predict
from toy_inputs import batch_of, make_columns, make_model, stir

from elmokit.errors import InputError
from elmokit.readers.ptb import Constituent, ParsedSentence
from elmokit.tasks.parse import EMPTY, TASK, ParseLabels, chains_of

SIZES = {"hidden_dim": 8, "label_dim": 9, "dropout": 0.0}


def sentence(text: str, *constituents: tuple[str, int, int]) -> ParsedSentence:
    tokens = tuple(text.split())
    return ParsedSentence(tokens, ("X",) * len(tokens), tuple(Constituent(*one) for one in constituents))


TREES = [
    sentence("she left", ("S", 0, 2), ("NP", 0, 1), ("VP", 1, 2)),
    sentence("go", ("S", 0, 1), ("VP", 0, 1)),
    sentence("the old dog slept", ("S", 0, 4), ("NP", 0, 3), ("VP", 3, 4)),
    sentence("she saw the dog", ("S", 0, 4), ("NP", 0, 1), ("VP", 1, 4), ("NP", 2, 4)),
]
LABELS = TASK.learn_labels(TREES)

LabeledTree = dict[tuple[int, int], int]


def labeled_trees(start: int, end: int, num_labels: int, *, is_root: bool = True) -> Iterator[LabeledTree]:
    """Yield every binary tree with a label on every span; `EMPTY` is none, except at the root."""
    for label in range(1 if is_root else EMPTY, num_labels + 1):
        if end - start == 1:
            yield {(start, end): label}
            continue
        for middle in range(start + 1, end):
            parts = (labeled_trees(*span, num_labels, is_root=False) for span in ((start, middle), (middle, end)))
            for left, right in product(*map(list, parts)):
                yield {(start, end): label, **left, **right}


def score(scores_PPK: np.ndarray, tree: LabeledTree) -> float:
    return sum(float(scores_PPK[span][label - 1]) for span, label in tree.items() if label != EMPTY)


def gold_labels(example: ParsedSentence, labels: ParseLabels) -> LabeledTree:
    return {span: labels.labels.index(label) + 1 for span, label in chains_of(example).items()}


def test_a_unary_chain_is_one_label() -> None:
    assert LABELS.labels == ("NP", "S", "S::VP", "VP")
    assert chains_of(TREES[1]) == {(0, 1): "S::VP"}


@pytest.mark.parametrize("place", ["none", "both"])
def test_the_loss_is_the_margin_over_all_labeled_trees(place: str) -> None:
    labels = ParseLabels(labels=("NP", "S"))
    examples = [
        sentence("she left now", ("S", 0, 3), ("NP", 0, 1)),
        sentence("go", ("S", 0, 1)),
        sentence("the dog", ("NP", 0, 2)),
    ]
    columns = make_columns(TASK, examples, place=place)
    model = stir(make_model(TASK, columns, labels, **SIZES))
    expected = []
    outputs = compute_outputs(TASK, model, columns, labels, examples, batch_size=1)
    for example, scores_PPK in zip(examples, outputs, strict=True):
        gold = gold_labels(example, labels)
        best = max(
            score(scores_PPK, tree) + sum(gold.get(span, EMPTY) != label for span, label in tree.items())
            for tree in labeled_trees(0, len(example.tokens), 2)
        )
        expected.append(best - score(scores_PPK, gold))
    with torch.no_grad():
        found = model.loss(batch_of(TASK, examples, labels, columns)).item()
    assert found == pytest.approx(np.mean(expected), rel=1e-4)
    assert found > 0


def test_decoding_finds_the_best_of_all_labeled_trees() -> None:
    labels = ParseLabels(labels=("NP", "S::VP"))
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 4):
        example = sentence(" ".join("w" * length))
        for _ in range(5):
            scores_PPK = rng.normal(size=(length + 1, length + 1, 2)).astype(np.float32)
            found = TASK.decode(scores_PPK, example, labels)
            assert found.constituents[0].start == 0
            assert found.constituents[0].end == length
            best = max(score(scores_PPK, tree) for tree in labeled_trees(0, length, 2))
            assert score(scores_PPK, gold_labels(found, labels)) == pytest.approx(best, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    "place", [*(pytest.param(place, marks=pytest.mark.slow) for place in ("none", "input")), "both"]
)
def test_a_few_trees_are_memorized(place: str) -> None:
    columns = make_columns(TASK, TREES, place=place)
    model = make_model(TASK, columns, LABELS, **SIZES).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    batch = batch_of(TASK, TREES, LABELS, columns)
    for _ in range(200):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    predictions = predict(TASK, model, columns, LABELS, TREES, batch_size=4)
    assert predictions == TREES
    assert TASK.score(TREES, predictions)["f1"] == 1
    with torch.no_grad():
        assert model.loss(batch).item() == pytest.approx(0, abs=1e-5)


def test_neither_padding_nor_the_order_of_a_batch_changes_an_output() -> None:
    columns = make_columns(TASK, TREES, place="both")
    model = stir(make_model(TASK, columns, LABELS, **SIZES))
    alone = [compute_outputs(TASK, model, columns, LABELS, [one], batch_size=1)[0] for one in TREES]
    with torch.no_grad():
        together = model.outputs(batch_of(TASK, TREES, LABELS, columns))
        reverse = model.outputs(batch_of(TASK, TREES[::-1], LABELS, columns))[::-1]
    for example, *outputs in zip(TREES, alone, together, reverse, strict=True):
        for output in outputs:
            assert output.shape == (len(example.tokens) + 1, len(example.tokens) + 1, len(LABELS.labels))
            np.testing.assert_allclose(output, outputs[0], atol=1e-4)


def test_the_vector_of_a_span_is_the_difference_of_its_places() -> None:
    columns = make_columns(TASK, TREES)
    model = stir(make_model(TASK, columns, LABELS, **SIZES))
    batch = batch_of(TASK, TREES[2:3], LABELS, columns)
    with torch.no_grad():
        read = model.tokens(batch.columns[0])
        outputs_TH = model.upper(model.lower(read.inputs_BTE, read.mask_BT), read.mask_BT)[0]
        (found_PPK,) = model.outputs(batch)
        forward, backward = outputs_TH[:, :8], outputs_TH[:, 8:]
        zero = torch.zeros(8)
        for start in range(4):
            for end in range(start + 1, 5):
                before = forward[start - 1] if start else zero
                after = backward[end] if end < 4 else zero
                span = torch.cat([forward[end - 1] - before, backward[start] - after])
                expected_K = model.label(model.span(span).relu())
                np.testing.assert_allclose(found_PPK[start, end], expected_K.numpy(), atol=1e-4)


def test_predictions_are_shown_in_brackets_and_as_json() -> None:
    (typed,) = TASK.read_text("She left .")
    assert typed.tokens == ("She", "left", ".")
    prediction = ParsedSentence(typed.tokens, typed.tags, (Constituent("S", 0, 3), Constituent("NP", 0, 1)))
    assert TASK.show(typed, prediction) == "(S (NP She) left .)"
    values = TASK.to_json(typed, prediction)
    assert values["constituents"] == [{"label": "S", "start": 0, "end": 3}, {"label": "NP", "start": 0, "end": 1}]
    assert values["drawing"].splitlines() == ["S", "├─NP", "│ └─She", "├─left", "└─."]


def test_unknown_labels_are_reported_and_never_trained_on() -> None:
    other = sentence("hm", ("INTJ", 0, 1))
    assert TASK.unknown_labels([*TREES, other], LABELS) == {"INTJ"}
    with pytest.raises(InputError, match="label 'INTJ' is not in the training trees"):
        TASK.collate([other], LABELS, labeled=True)
    with pytest.raises(InputError, match="no words in '  '"):
        TASK.read_text("  ")
