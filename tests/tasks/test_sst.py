"""Sentiment: the model is the paper's, learns, and says the same of a phrase whatever stands beside it."""

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
from elmokit.tasks.classification import Choice, ClassLabels
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import read_data
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Finished
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe, TrainingSettings, WordSettings
from elmokit.tasks.saved import load_task
from elmokit.tasks.sst import CLASSES, TASK, Phrase, SSTModel, SSTSettings, plain_tokens
from elmokit.tasks.task_model import predict_examples
from elmokit.text.rules import TextRules
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM

RECIPES = Path(__file__).parents[2] / "recipes" / "tasks"
LABELS = ClassLabels(classes=CLASSES)
SMALL = {"hidden_dim": 9, "head_dims": (11, 10)}
STILL = {"input_dropout": 0.0, "projection_dropout": 0.0, "pooling_dropout": 0.0, "head_dropouts": (0.0, 0.0)}


def phrase(text: str, label: str | None = None) -> Phrase:
    return Phrase(tuple(text.split()), label)


# The same words in another order, or with one more, mean something else.
PHRASES = [
    phrase("dreadful", "very negative"),
    phrase("not good at all", "negative"),
    phrase("not at all good but short", "negative"),
    phrase("a film about two brothers and a horse", "neutral"),
    phrase("good", "positive"),
    phrase("good , not dreadful at all", "positive"),
    phrase("so good that i saw the film about the horse three times in a week", "very positive"),
    phrase("so dreadful that i saw the film about the horse in three parts", "very negative"),
    phrase("a horse", "neutral"),
    phrase("good good good", "very positive"),
]


def small_model(place: str, **settings) -> SSTModel:
    return stir(make_model(TASK, make_columns(TASK, PHRASES, place=place), LABELS, **(SMALL | settings)))


def distributions_of(model: nn.Module, phrases: list[Phrase], place: str) -> np.ndarray:
    columns = make_columns(TASK, PHRASES, place=place)
    with torch.no_grad():
        return np.stack(model.outputs(batch_of(TASK, phrases, LABELS, columns, with_labels=False)))


def read_alone(model: SSTModel, example: Phrase, place: str) -> Tensor:
    """One phrase through the equations, without padding or a batch."""
    batch = batch_of(TASK, [example], LABELS, make_columns(TASK, PHRASES, place=place))
    read = model.tokens(batch.columns[0])
    projected = torch.relu(model.project[1](read.inputs_BTE))
    encoded = model.encoder.rnn(projected)[0][0]
    seen = torch.stack([row.exp() / row.exp().sum() for row in encoded @ encoded.T]) @ encoded
    integrated = model.integrator.rnn(torch.cat([encoded, encoded - seen, encoded * seen], dim=1)[None])[0][0]
    if read.elmo_BTD is not None:
        integrated = torch.cat([integrated, read.elmo_BTD[0]], dim=1)
    weights = model.weigh(integrated).squeeze(1).exp()
    weighed = (weights / weights.sum()) @ integrated
    pooled = [integrated.max(dim=0).values, integrated.min(dim=0).values, integrated.mean(dim=0), weighed]
    hidden = torch.relu(model.classify[4](torch.relu(model.classify[1](torch.cat(pooled)))))
    return model.classify[7](hidden).softmax(dim=0)


# The model


@pytest.mark.parametrize("place", ["none", "input", "output", "both"])
@torch.no_grad()
def test_the_model_computes_the_papers_equations(place):
    model = small_model(place)
    expected = torch.stack([read_alone(model, example, place) for example in PHRASES])
    np.testing.assert_allclose(distributions_of(model, PHRASES, place), expected, atol=1e-6)
    assert expected.std(dim=0).max() > 0.03  # the phrases do differ


@pytest.mark.parametrize("place", ["none", "both"])
def test_padding_and_batch_order_never_change_a_output(place):
    model = small_model(place)
    together = distributions_of(model, PHRASES, place)
    alone = np.concatenate([distributions_of(model, [example], place) for example in PHRASES])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    order = np.random.default_rng(0).permutation(len(PHRASES))
    shuffled = distributions_of(model, [PHRASES[index] for index in order], place)
    np.testing.assert_allclose(shuffled, together[order], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "both"])
def test_a_few_phrases_are_memorized(place):
    columns = make_columns(TASK, PHRASES, place=place)
    model = make_model(TASK, columns, LABELS, hidden_dim=12, head_dims=(16, 16), **STILL)
    losses = overfit(model, batch_of(TASK, PHRASES, LABELS, columns), steps=60, learning_rate=0.02)
    assert losses[0] > 1.4
    assert losses[-1] < 0.05
    predictions = predict(TASK, model, columns, LABELS, PHRASES, batch_size=3)
    assert TASK.score(PHRASES, predictions) == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("place", "num_mixes", "wider_input", "wider_pooled"),
    [("input", 1, LAYER_DIM, 0), ("output", 1, 0, LAYER_DIM), ("both", 2, LAYER_DIM, LAYER_DIM)],
)
def test_elmo_adds_its_mixes_and_wider_inputs_and_nothing_else(place, num_mixes, wider_input, wider_pooled):
    with_elmo, without = (
        sum(parameter.numel() for parameter in small_model(where).parameters()) for where in (place, "none")
    )
    in_mixes, in_projection = num_mixes * (NUM_LAYERS + 1), SMALL["hidden_dim"] * wider_input
    in_pooling, in_head = wider_pooled, 4 * wider_pooled * SMALL["head_dims"][0]
    assert with_elmo - without == in_mixes + in_projection + in_pooling + in_head


def test_the_default_sizes_are_the_papers():
    columns = make_columns(TASK, PHRASES, place="both")
    model = TASK.build(SSTSettings(), LABELS, make_model(TASK, columns, LABELS).tokens)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["project.1.weight"] == (300, WORD_DIM + LAYER_DIM)
    assert shapes["encoder.rnn.weight_ih_l0"] == (1200, 300)
    assert shapes["integrator.rnn.weight_ih_l0_reverse"] == (1200, 1800)
    assert shapes["weigh.weight"] == (1, 600 + LAYER_DIM)
    assert shapes["classify.1.weight"] == (1200, 4 * (600 + LAYER_DIM))
    assert shapes["classify.4.weight"] == (600, 1200)
    assert shapes["classify.7.weight"] == (5, 600)
    assert [module.p for module in model.modules() if hasattr(module, "p")] == [0.0, 0.25, 0.25, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    "dropout",
    [
        {"input_dropout": 0.5},
        {"projection_dropout": 0.5},
        {"pooling_dropout": 0.5},
        {"head_dropouts": (0.5, 0.0)},
        {"head_dropouts": (0.0, 0.5)},
    ],
)
def test_each_dropout_is_of_training_alone(dropout):
    batch = batch_of(TASK, PHRASES, LABELS, make_columns(TASK, PHRASES, place="both"))
    model = small_model("both", **(STILL | dropout))
    calm = model.loss(batch).item()
    assert model.loss(batch).item() == calm
    assert len({model.train().loss(batch).item() for _ in range(4)}) == 4
    assert small_model("both", **STILL).train().loss(batch).item() == pytest.approx(calm)


# Labels


def test_the_labels_learned_are_the_classes_that_occur():
    assert TASK.learn_labels(PHRASES) == LABELS
    assert TASK.learn_labels(PHRASES[:3]).classes == ("very negative", "negative")
    assert TASK.unknown_labels(PHRASES[:5], TASK.learn_labels(PHRASES[:3])) == {"neutral", "positive"}


def test_a_batch_has_the_numbers_of_its_labels_and_an_unknown_one_is_rejected():
    assert TASK.collate(PHRASES[:4], LABELS, labeled=True).classes_B.tolist() == [0, 1, 1, 2]
    assert TASK.collate([phrase("a")], LABELS, labeled=False).classes_B is None
    with pytest.raises(InputError, match=r"the label 'neutral' is not in the training data; known: very negat"):
        TASK.collate(PHRASES, TASK.learn_labels(PHRASES[:3]), labeled=True)


def test_an_ensemble_decides_by_the_mean_of_the_distributions():
    outputs = [np.array([0.6, 0.4, 0, 0, 0]), np.array([0, 0.3, 0.7, 0, 0])]
    assert TASK.decode(TASK.combine(outputs), PHRASES[0], LABELS).label == "negative"


# What goes in and out

TREES = """\
(3 (2 It) (4 (2 does) (4 (2 n't) (3 (2 bore) (2 .)))))
(1 (2 Bad) (2 !))
"""


def test_training_sees_every_sentence_and_its_longer_parts(tmp_path):
    (tmp_path / "a.txt").write_text(TREES, "utf-8")
    sentences = [phrase("It doesn 't bore .", "positive"), phrase("Bad !", "negative")]
    assert TASK.read(tmp_path / "a.txt") == sentences
    # Of the parts only one has four tokens; a sentence may have fewer.
    assert TASK.read_training(tmp_path / "a.txt") == [
        sentences[0],
        phrase("doesn 't bore .", "very positive"),
        sentences[1],
    ]


def test_tokens_are_as_everyone_else_writes_them():
    treebank = "n't ca n't -LRB- `` 9\\/11 '' -RRB- ` \\*\\*\\* ' it 's 8\u00a01\\/2"
    plain = "n't can 't ( \" 9/11 \" ) ' *** ' it 's 8\u00a01/2"
    assert plain_tokens(treebank.split(" ")) == tuple(plain.split(" "))


def test_text_is_tokenized_like_the_treebank():
    expected = [phrase("It doesn 't bore ( much ) .")]
    assert TASK.read_text("It doesn't bore (much).") == expected
    assert TASK.read_text("It does n't bore -LRB- much -RRB- .", TextRules(tokenized=True)) == expected


@pytest.mark.parametrize("line", ["", " \t "])
def test_a_line_without_words_is_named(line):
    with pytest.raises(InputError, match=r"no words in .* expected a sentence"):
        TASK.read_text(line)


def test_a_prediction_is_shown_and_becomes_json():
    choice = Choice("positive", dict(zip(CLASSES, (0.01, 0.02, 0.03, 0.9, 0.04), strict=True)))
    example = phrase("What a film !")
    assert TASK.show(example, choice) == "positive (90%): What a film !"
    found = json.loads(json.dumps(TASK.to_json(example, choice)))
    assert found == {"tokens": ["What", "a", "film", "!"], "label": "positive", "probabilities": choice.probabilities}


# Runs


def write_trees(path: Path, phrases: list[Phrase]) -> Path:
    trees = [
        f"({CLASSES.index(example.label)} {' '.join(f'(2 {token})' for token in example.tokens)})\n"
        for example in phrases
    ]
    path.write_text("".join(trees), "utf-8")
    return path


@pytest.mark.slow
def test_a_run_learns_and_its_saved_model_reads_what_a_person_types(tmp_path):
    words = sorted({token for example in PHRASES for token in example.tokens})
    lines = [f"{word} {' '.join(map(str, np.random.default_rng(i).normal(size=8)))}\n" for i, word in enumerate(words)]
    (tmp_path / "v.txt").write_text("".join(lines), "utf-8")
    torch.manual_seed(0)
    bilm = BiLM(toy_model())
    save_folder(SavedBiLM(bilm.config, dict(bilm.state_dict())), tmp_path / "bilm", description="A toy.")
    recipe = TaskRecipe(
        task="sst",
        words=WordSettings(file=str(tmp_path / "v.txt")),
        elmo=ElmoSettings(model=str(tmp_path / "bilm"), place="both", penalty=0.001, dropout=0.0),
        model={"hidden_dim": 12, "head_dims": [16, 16], **STILL},
        training=TrainingSettings(batch_size=5, epochs=30, patience=15, learning_rate=0.01, clip_norm=5.0),
    )
    path = write_trees(tmp_path / "trees.txt", PHRASES)
    data = read_data(get_task("sst"), train=path, dev=path, test=path)
    assert data.train == data.dev == PHRASES
    entries = []
    run_task(TASK, recipe, data, tmp_path / "run", report=entries.append, stop=threading.Event())
    assert isinstance(entries[-1], Finished)
    assert entries[-1].test == {"accuracy": 1.0}
    loaded = load_task(tmp_path / "run" / "model", expected_task=TASK)
    typed = [*TASK.read_text("good good good"), *TASK.read_text("not good at all")]
    predictions = predict_examples([loaded, loaded], typed, batch_size=2)
    assert [choice.label for choice in predictions] == ["very positive", "negative"]


@pytest.mark.parametrize("name", ["sst.toml", "sst-paper.toml"])
def test_a_recipe_can_be_read(name):
    recipe = read_recipe(TaskRecipe, RECIPES / name, [])
    assert recipe.task == TASK.name
    settings = parse_config(SSTSettings, recipe.model, source=name)
    assert recipe.elmo.place == ("both" if name == "sst-paper.toml" else "input")
    if name == "sst-paper.toml":
        assert settings == SSTSettings()
        assert set(recipe.model) == set(SSTSettings.model_fields)


@pytest.mark.parametrize(
    ("split", "counts"),
    [
        pytest.param("train", (6119, 20_058, 37_298, 22_818, 7410), marks=pytest.mark.slow),
        ("dev", (139, 289, 229, 279, 165)),
        ("test", (279, 633, 389, 510, 399)),
    ],
)
def test_published_files_are_read_whole(data_dir, split, counts):
    phrases = (TASK.read_training if split == "train" else TASK.read)(data_dir / "sst" / f"{split}.txt.xz")
    found = Counter(example.label for example in phrases)
    assert tuple(found[label] for label in CLASSES) == counts
    assert not any("\\" in token or "RB-" in token for example in phrases for token in example.tokens)
