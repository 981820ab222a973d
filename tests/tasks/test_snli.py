"""Entailment: the model is the paper's, learns, and says the same of a pair whatever stands beside it."""

import json
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from task_models import predict
from torch import Tensor, nn
from toy import toy_model
from toy_inputs import LAYER_DIM, NUM_LAYERS, WORD_DIM, batch_of, make_columns, make_model, overfit, stir

from elmokit.config import parse_config, read_recipe
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM
from elmokit.readers.snli import LABELS
from elmokit.tasks.classification import Choice, ClassLabels
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import read_data
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Finished
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe, TrainingSettings, WordSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.snli import TASK, SNLIModel, SNLISettings, TokenPair
from elmokit.tasks.task_model import predict_examples
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM

RECIPES = Path(__file__).parents[2] / "recipes" / "tasks"
RELATIONS = ClassLabels(classes=LABELS)
STILL = {"dropout": 0.0, "attention_dropout": 0.0}


def pair(premise: str, hypothesis: str, label: str | None = None) -> TokenPair:
    return TokenPair(tuple(premise.split()), tuple(hypothesis.split()), label)


# Of one premise every relation, and the same hypotheses below other premises with another one.
PAIRS = [
    pair("a man sleeps in the park", "a man rests", "entailment"),
    pair("a man sleeps in the park", "a man dreams of home", "neutral"),
    pair("a man sleeps in the park", "a man runs", "contradiction"),
    pair("a man runs", "a man rests", "contradiction"),
    pair("a man runs", "a man moves", "entailment"),
    pair("a man runs", "a man runs home to his old mother", "neutral"),
    pair("two dogs fight over a bone", "dogs fight", "entailment"),
    pair("two dogs fight over a bone", "dogs sleep", "contradiction"),
    pair("two dogs fight over a bone", "hungry dogs fight", "neutral"),
    pair("dogs sleep", "dogs fight", "contradiction"),
    pair("hungry dogs fight", "dogs", "entailment"),
    pair("dogs", "hungry dogs", "neutral"),
]


def distributions_of(model: nn.Module, pairs: list[TokenPair], place: str) -> np.ndarray:
    columns = make_columns(TASK, PAIRS, place=place)
    with torch.no_grad():
        return np.stack(model.outputs(batch_of(TASK, pairs, RELATIONS, columns, with_labels=False)))


def small_model(place: str, **settings) -> SNLIModel:
    return stir(make_model(TASK, make_columns(TASK, PAIRS, place=place), RELATIONS, **({"hidden_dim": 9} | settings)))


def read_alone(model: SNLIModel, example: TokenPair, place: str) -> Tensor:
    """One pair through the equations, without padding or a batch."""
    batch = batch_of(TASK, [example], RELATIONS, make_columns(TASK, PAIRS, place=place))
    encoded = []
    for column in batch.columns:
        read = model.tokens(column)
        hidden, _ = model.encoder.rnn(read.inputs_BTE)
        parts = [hidden[0]] if read.elmo_BTD is None else [hidden[0], read.elmo_BTD[0]]
        encoded.append(torch.cat(parts, dim=1))
    premise, hypothesis = encoded
    scores = premise @ hypothesis.T
    seen_by_premise = torch.stack([row.exp() / row.exp().sum() for row in scores]) @ hypothesis
    seen_by_hypothesis = torch.stack([row.exp() / row.exp().sum() for row in scores.T]) @ premise
    pooled = []
    for own, seen in ((premise, seen_by_premise), (hypothesis, seen_by_hypothesis)):
        compared = torch.relu(model.compare[1](torch.cat([own, seen, own - seen, own * seen], dim=1)))
        composed, _ = model.composer.rnn(compared[None])
        pooled += [composed[0].mean(dim=0), composed[0].max(dim=0).values]
    hidden = torch.relu(model.classify[1](torch.cat(pooled)))
    return model.classify[4](hidden).softmax(dim=0)


# The model


@pytest.mark.parametrize("place", ["none", "input", "output", "both"])
@torch.no_grad()
def test_the_model_computes_the_papers_equations(place):
    model = small_model(place)
    expected = torch.stack([read_alone(model, example, place) for example in PAIRS])
    np.testing.assert_allclose(distributions_of(model, PAIRS, place), expected, atol=1e-6)
    assert expected.std(dim=0).max() > 0.03  # the pairs do differ


@pytest.mark.parametrize("place", ["none", "both"])
def test_padding_and_batch_order_never_change_a_output(place):
    model = small_model(place)
    together = distributions_of(model, PAIRS, place)
    alone = np.concatenate([distributions_of(model, [example], place) for example in PAIRS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    order = np.random.default_rng(0).permutation(len(PAIRS))
    shuffled = distributions_of(model, [PAIRS[index] for index in order], place)
    np.testing.assert_allclose(shuffled, together[order], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "both"])
def test_a_few_pairs_are_memorized(place):
    columns = make_columns(TASK, PAIRS, place=place)
    model = make_model(TASK, columns, RELATIONS, hidden_dim=12, **STILL)
    losses = overfit(model, batch_of(TASK, PAIRS, RELATIONS, columns), steps=60, learning_rate=0.02)
    assert losses[0] > 0.9
    assert losses[-1] < 0.05
    predictions = predict(TASK, model, columns, RELATIONS, PAIRS, batch_size=5)
    assert TASK.score(PAIRS, predictions) == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("place", "num_mixes", "wider_input", "wider_encoded"),
    [("input", 1, LAYER_DIM, 0), ("output", 1, 0, LAYER_DIM), ("both", 2, LAYER_DIM, LAYER_DIM)],
)
def test_elmo_adds_its_mixes_and_wider_inputs_and_nothing_else(place, num_mixes, wider_input, wider_encoded):
    hidden_dim = 5
    with_elmo, without = (
        sum(parameter.numel() for parameter in small_model(where, hidden_dim=hidden_dim).parameters())
        for where in (place, "none")
    )
    in_mixes = num_mixes * (NUM_LAYERS + 1)
    in_encoder, in_comparison = 2 * 4 * hidden_dim * wider_input, 4 * wider_encoded * hidden_dim
    assert with_elmo - without == in_mixes + in_encoder + in_comparison


def test_the_default_sizes_are_the_papers():
    columns = make_columns(TASK, PAIRS, place="both")
    model = TASK.build(SNLISettings(), RELATIONS, make_model(TASK, columns, RELATIONS).tokens)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["encoder.rnn.weight_ih_l0"] == (1200, WORD_DIM + LAYER_DIM)
    assert shapes["compare.1.weight"] == (300, 4 * (600 + LAYER_DIM))
    assert shapes["composer.rnn.weight_hh_l0_reverse"] == (1200, 300)
    assert shapes["classify.1.weight"] == (300, 2400)
    assert shapes["classify.4.weight"] == (3, 300)
    assert [module.p for module in model.modules() if hasattr(module, "p")] == [0.0, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("setting", ["dropout", "attention_dropout"])
def test_each_dropout_is_of_training_alone(setting):
    batch = batch_of(TASK, PAIRS, RELATIONS, make_columns(TASK, PAIRS, place="both"))
    model = small_model("both", **(STILL | {setting: 0.5}))
    calm = model.loss(batch).item()
    assert model.loss(batch).item() == calm
    assert len({model.train().loss(batch).item() for _ in range(4)}) == 4
    assert small_model("both", **STILL).train().loss(batch).item() == pytest.approx(calm)


def test_both_lstms_read_their_input_through_one_dropout_mask_a_sentence():
    batch = batch_of(TASK, PAIRS, RELATIONS, make_columns(TASK, PAIRS, place="both"))
    model = small_model("both", dropout=0.5, attention_dropout=0.0)
    dropped: dict[str, Tensor] = {}

    def note(name: str):
        def hook(_module: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
            inputs_BTD, mask_BT = inputs
            dropped[name] = ((inputs_BTD == 0) | ~mask_BT[:, :, None]).all(dim=1).float().mean()
            if name == "encoder" and model.training:  # its inputs are never zero by themselves
                zero_BT = (inputs_BTD == 0).float().mean(dim=2)
                assert torch.equal(zero_BT[mask_BT], zero_BT[:, :1].expand_as(mask_BT)[mask_BT])

        return hook

    for name in ("encoder", "composer"):
        getattr(model, name).register_forward_pre_hook(note(name))
    model.eval().loss(batch)
    calm = dict(dropped)
    model.train().loss(batch)
    assert calm["encoder"] == 0
    assert 0.4 < dropped["encoder"] < 0.6
    assert calm["composer"] + 0.1 < dropped["composer"] < 1


# Labels


def test_the_labels_learned_are_the_relations_that_occur():
    assert TASK.learn_labels(PAIRS) == RELATIONS
    assert TASK.learn_labels(PAIRS[1:3]).classes == ("neutral", "contradiction")
    assert TASK.unknown_labels(PAIRS, TASK.learn_labels(PAIRS[1:3])) == {"entailment"}


def test_a_batch_has_the_numbers_of_its_labels_and_an_unknown_one_is_rejected():
    assert TASK.collate(PAIRS[:4], RELATIONS, labeled=True).classes_B.tolist() == [0, 1, 2, 2]
    assert TASK.collate([pair("a", "b")], RELATIONS, labeled=False).classes_B is None
    with pytest.raises(InputError, match=r"the label 'entailment' is not in the training data; known: neutral"):
        TASK.collate(PAIRS, TASK.learn_labels(PAIRS[1:3]), labeled=True)


def test_an_ensemble_decides_by_the_mean_of_the_distributions():
    outputs = [np.array([0.6, 0.4, 0.0]), np.array([0.1, 0.2, 0.7]), np.array([0.1, 0.6, 0.3])]
    assert TASK.decode(TASK.combine(outputs), PAIRS[0], RELATIONS).label == "neutral"


# What goes in and out


def write_pairs(path: Path, pairs: list[TokenPair]) -> Path:
    fields = ("gold_label", "sentence1", "sentence2")
    rows = [(example.label or "-", " ".join(example.premise), " ".join(example.hypothesis)) for example in pairs]
    path.write_text("".join(json.dumps(dict(zip(fields, row, strict=True))) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("read", [TASK.read, TASK.read_training])
def test_pairs_are_tokenized_from_raw_text_and_those_without_a_label_are_left_out(tmp_path, read):
    parse = "( ( The bikers ) ( ( did n't ) ( stop . ) ) )"
    rows = [
        {"gold_label": "neutral", "sentence1": "The bikers didn't stop.", "sentence2": "They're late."},
        {"gold_label": "-", "sentence1": "A.", "sentence2": "B."},
    ]
    rows[0]["sentence1_binary_parse"] = parse
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (found,) = read(tmp_path / "a.jsonl")
    assert found == pair("The bikers didn 't stop .", "They 're late .", "neutral")
    assert found.premise == TASK.read_text("The bikers didn't stop.\tx")[0].premise
    assert TASK.sequences(found) == ([found.premise], [found.hypothesis])


@pytest.mark.parametrize("line", ["", "\t", "A man sleeps.", "A man sleeps.\t", " \tSomeone sleeps.", "a\tb\tc"])
def test_a_line_that_is_no_pair_is_named(line):
    with pytest.raises(InputError, match=r" is not a pair of sentences; expected a premise, a tab and a hypothesis"):
        TASK.read_text(line)


def test_a_prediction_is_shown_and_becomes_json():
    choice = Choice("entailment", {"entailment": 0.968, "neutral": 0.03, "contradiction": 0.002})
    example = pair("A man sleeps .", "Someone sleeps .")
    assert TASK.show(example, choice) == "entailment (97%): A man sleeps . | Someone sleeps ."
    found = json.loads(json.dumps(TASK.to_json(example, choice)))
    assert found == {
        "premise": ["A", "man", "sleeps", "."],
        "hypothesis": ["Someone", "sleeps", "."],
        "label": "entailment",
        "probabilities": choice.probabilities,
    }


# Runs


@pytest.mark.slow
def test_a_run_learns_and_its_saved_model_reads_what_a_person_types(tmp_path):
    words = sorted({token for example in PAIRS for token in (*example.premise, *example.hypothesis)})
    lines = [f"{word} {' '.join(map(str, np.random.default_rng(i).normal(size=8)))}\n" for i, word in enumerate(words)]
    (tmp_path / "v.txt").write_text("".join(lines), "utf-8")
    torch.manual_seed(0)
    bilm = BiLM(toy_model())
    save_folder(SavedBiLM(bilm.config, dict(bilm.state_dict())), tmp_path / "bilm", description="A toy.")
    recipe = TaskRecipe(
        task="snli",
        words=WordSettings(file=str(tmp_path / "v.txt")),
        elmo=ElmoSettings(model=str(tmp_path / "bilm"), place="both", penalty=0.001, layer_norm="token", dropout=0.0),
        model={"hidden_dim": 12, **STILL},
        training=TrainingSettings(batch_size=6, epochs=30, patience=15, learning_rate=0.02, clip_norm=5.0),
    )
    path = write_pairs(tmp_path / "pairs.jsonl", [*PAIRS, pair("dogs", "cats")])
    data = read_data(get_task("snli"), train=path, dev=path, test=path)
    assert data.train == PAIRS
    entries = []
    run_task(TASK, recipe, data, tmp_path / "run", report=entries.append, stop=threading.Event())
    assert isinstance(entries[-1], Finished)
    assert entries[-1].test == {"accuracy": 1.0}
    loaded = load_task(tmp_path / "run" / "model", expected_task=TASK)
    typed = [*TASK.read_text("a man runs\ta man moves"), *TASK.read_text("two dogs fight over a bone\tdogs sleep")]
    predictions = predict_examples([loaded, loaded], typed, batch_size=2)
    assert [choice.label for choice in predictions] == ["entailment", "contradiction"]


@pytest.mark.parametrize("name", ["snli.toml", "snli-paper.toml"])
def test_a_recipe_can_be_read(name):
    recipe = read_recipe(TaskRecipe, RECIPES / name, [])
    assert recipe.task == TASK.name
    settings = parse_config(SNLISettings, recipe.model, source=name)
    assert recipe.elmo.place == ("both" if name == "snli-paper.toml" else "input")
    if name == "snli-paper.toml":
        assert settings == SNLISettings()
        assert set(recipe.model) == set(SNLISettings.model_fields)


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "counts"),
    [
        pytest.param("train-100k", (33_385, 33_194, 33_311), marks=pytest.mark.slow),
        pytest.param("dev", (3329, 3235, 3278), marks=pytest.mark.slow),
        pytest.param("test", (3368, 3219, 3237), marks=pytest.mark.slow),
    ],
)
def test_published_files_are_read_whole(data_dir, split, counts):
    pairs = TASK.read(data_dir / "snli" / f"snli_1.0_{split}.jsonl.xz")
    found = Counter(example.label for example in pairs)
    assert tuple(found[label] for label in LABELS) == counts
    assert all(example.premise and example.hypothesis for example in pairs)
