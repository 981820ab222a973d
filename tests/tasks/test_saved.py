"""Task models on disk: what was saved comes back, and nothing else is taken for it."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_models import build_model, compute_outputs
from toy import toy_model
from toy_task import RHYMES, WORDS, changed, recipe, verses

from elmokit.cli.task_predictions import load_models
from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.embed.live_layers import LiveLayers
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, ElmokitError, InputError, OutputError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.names import TASKS, get_task
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import SavedTask, SharedParts, load_task, save_task, slim_task
from elmokit.tasks.task import AnyTask
from elmokit.tasks.task_model import TaskModel, predict_examples
from elmokit.weights.folder import load_folder, save_folder
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import build_bilm
from elmokit.weights.sums import write_sums

pytestmark = pytest.mark.long

EXAMPLES = verses(20, seed=4)


def make_bilm(seed: int = 0) -> SavedBiLM:
    torch.manual_seed(seed)
    return SavedBiLM(toy_model(), dict(BiLM(toy_model()).state_dict()))


def make(
    asked: TaskRecipe,
    *,
    task: AnyTask = RHYMES,
    examples: Sequence[Any] = EXAMPLES,
    seed: int = 1,
    bilm_seed: int = 0,
) -> SavedTask:
    vocab = learn_inputs([one.tokens for one in examples], asked)
    chance = np.random.default_rng(0)
    vectors = None
    if asked.words.file is not None:
        vectors = StaticVectors([*WORDS, "odd\x85word"], chance.normal(size=(len(WORDS) + 1, 3)).astype(np.float32))
    source = None if asked.elmo.model is None else Embedder.from_saved(make_bilm(bilm_seed))
    layers = None if source is None else LiveLayers(source)
    labels = task.learn_labels(examples)
    torch.manual_seed(seed)
    model = build_model(task, asked, labels, ColumnMaker(asked, vocab, vectors=vectors, layers=layers))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return SavedTask(task, asked, labels, vocab, vectors, source, dict(model.state_dict()))


FULL = recipe(words="vectors.txt", bilm="bilm", elmo={"place": "both", "layer_norm": "token"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_task(make(FULL), tmp_path / "model", scores={"Test accuracy": 0.98765})
    return tmp_path / "model"


@pytest.mark.parametrize("asked", [FULL, recipe(), recipe(words="v", chars=False), recipe(bilm="b", chars=False)])
def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path, asked: TaskRecipe) -> None:
    saved = make(asked)
    save_task(saved, tmp_path / "model", scores={})
    loaded = load_task(tmp_path / "model", expected_task=RHYMES)
    assert (loaded.task, loaded.recipe, loaded.labels) == (RHYMES, asked, saved.labels)
    assert loaded.columns.vocab == saved.vocab
    found = loaded.module.state_dict()
    assert found.keys() == saved.weights.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in saved.weights.items())
    assert not loaded.module.training
    assert (loaded.embedder is None) == (saved.source is None)
    if saved.source is not None:
        tensors = loaded.embedder.bilm.state_dict()
        assert all(torch.equal(tensors[name], tensor) for name, tensor in saved.source.bilm.state_dict().items())
    if saved.vectors is not None:
        assert loaded.columns.vectors.words == saved.vectors.words
        assert np.array_equal(loaded.columns.vectors.vectors_VD, saved.vectors.vectors_VD)


def test_a_loaded_model_predicts_what_it_did_in_training(tmp_path: Path, folder: Path) -> None:
    loaded = load_task(folder, expected_task=RHYMES)
    store = LayerStore.open(tmp_path / "layers", loaded.embedder)
    store.add([one.tokens for one in EXAMPLES])
    columns = ColumnMaker(loaded.recipe, loaded.columns.vocab, vectors=loaded.columns.vectors, layers=store)
    stored, live = (maker.make([one.tokens for one in EXAMPLES]).layers_LND for maker in (columns, loaded.columns))
    assert (stored == live).float().mean() > 0.99  # both rounded; a value on the edge may be rounded either way
    torch.testing.assert_close(stored, live, atol=1e-3, rtol=1e-3)
    outputs = [
        compute_outputs(RHYMES, loaded.module, maker, loaded.labels, EXAMPLES, batch_size=4)
        for maker in (columns, loaded.columns)
    ]
    for in_training, later in zip(*outputs, strict=True):
        np.testing.assert_allclose(in_training, later, atol=1e-3)


def test_live_layers_are_those_of_the_embedder() -> None:
    embedder = Embedder(build_bilm(make_bilm()))
    joined_LND = LiveLayers(embedder).join([("ba", "ka"), ("le",), ("ka", "ba", "le")])
    assert joined_LND.shape == (3, 6, 12)
    assert joined_LND.dtype == torch.float32
    expected = embedder.embed_layers([["ba", "ka"], ["le"], ["ka", "ba", "le"]])
    np.testing.assert_allclose(joined_LND.numpy(), np.concatenate(expected, axis=1), atol=1e-3)


def save_ensemble(folder: Path, bilm_seeds: Sequence[int]) -> list[Path]:
    """Save models that have learned from other seeds, with these biLMs."""
    folders = [folder / str(number) for number in range(len(bilm_seeds))]
    for number, bilm_seed in enumerate(bilm_seeds):
        save_task(make(FULL, seed=number, bilm_seed=bilm_seed), folders[number], scores={})
    return folders


def load_ensemble(folders: Sequence[Path], shared: SharedParts | None) -> list[TaskModel]:
    """Their decisions are what they predict, so that any difference shows."""
    task = changed(RHYMES, decode=lambda output, _example, _labels: output)
    return [load_task(folder, expected_task=task, shared=shared) for folder in folders]


def assert_believe_the_same(together: Sequence[TaskModel], apart: Sequence[TaskModel]) -> None:
    """That an ensemble predicts, to the bit, the mean of what the others predict each by itself."""
    alone = [compute_outputs(RHYMES, one.module, one.columns, one.labels, EXAMPLES, batch_size=4) for one in apart]
    expected = [RHYMES.combine(of_models) for of_models in zip(*alone, strict=True)]
    found = predict_examples(together, EXAMPLES, batch_size=4)
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("num_models", [2, 5])
def test_models_loaded_together_share_what_is_equal(tmp_path: Path, num_models: int, monkeypatch) -> None:
    folders = save_ensemble(tmp_path, [0] * num_models)
    together, apart = load_ensemble(folders, SharedParts()), load_ensemble(folders, None)
    first = together[0]
    for one in together[1:]:
        assert one.embedder is first.embedder
        assert one.columns.layers is first.columns.layers
        assert one.columns.vectors is first.columns.vectors
        assert one.module.tokens.vectors_VD is first.module.tokens.vectors_VD
        assert not torch.equal(one.module.emit.weight, first.module.emit.weight)
    assert len({id(one.embedder) for one in apart}) == num_models
    assert len({one.module.tokens.vectors_VD.data_ptr() for one in apart}) == num_models
    assert_believe_the_same(together, apart)

    read: list[Sequence[str]] = []
    embed = first.embedder.iter_unordered
    monkeypatch.setattr(first.embedder, "iter_unordered", lambda sequences: read.extend(sequences) or embed(sequences))
    predict_examples(together, EXAMPLES, batch_size=4)
    assert sorted(read) == sorted(one.tokens for one in EXAMPLES)


def test_models_with_different_bilms_are_not_mixed_up(tmp_path: Path) -> None:
    folders = save_ensemble(tmp_path, [0, 9, 0])
    together, apart = load_ensemble(folders, SharedParts()), load_ensemble(folders, None)
    first, other, again = together
    assert again.embedder is first.embedder
    assert other.embedder is not first.embedder
    assert other.embedder.fingerprint() == apart[1].embedder.fingerprint() != first.embedder.fingerprint()
    assert other.columns.vectors is first.columns.vectors
    assert_believe_the_same(together, apart)
    assert_believe_the_same(together[1:], apart[1:])


def test_models_with_and_without_parts_are_loaded_together(tmp_path: Path) -> None:
    asked = [FULL, recipe(), recipe(words="v", chars=False), recipe(bilm="b", chars=False)]
    for number, chosen in enumerate(asked):
        save_task(make(chosen, seed=number), tmp_path / str(number), scores={})
    folders = [tmp_path / str(number) for number in range(len(asked))]
    together = load_ensemble(folders, SharedParts())
    assert [one.embedder is not None for one in together] == [True, False, False, True]
    assert [one.columns.vectors is not None for one in together] == [True, False, True, False]
    assert_believe_the_same(together, load_ensemble(folders, None))


def test_the_command_line_loads_an_ensemble_together(tmp_path: Path) -> None:
    asked = FULL.model_copy(update={"task": "ner", "model": {"hidden_dims": (4, 4)}})
    examples = [TaggedSentence(("ba", "ko"), ("B-PER", "O"), 0)]
    for seed in (0, 1):
        saved = make(asked, task=get_task("ner"), examples=examples, seed=seed)
        save_task(saved, tmp_path / str(seed), scores={})
    first, other = load_models("ner", [tmp_path / "0", tmp_path / "1"])
    assert other.embedder is first.embedder
    assert other.columns.vectors is first.columns.vectors


def test_who_takes_a_task_model_for_a_bilm_is_reported_where_that_is(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"format is 'elmokit\.task'; expected .* \(this one's is in the folder bilm\)"
    ):
        load_folder(folder)
    assert load_folder(folder / "bilm").config == make_bilm(0).config


def test_the_folder_holds_no_pickle_and_a_card_with_the_scores(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    top = {"config.json", "vocab.json", "model.safetensors", "README.md", "SHA256SUMS"}
    vectors = {f"vectors/{name}" for name in ("vectors.safetensors", "words.json", "SHA256SUMS")}
    bilm = {f"bilm/{name}" for name in ("config.json", "model.safetensors", "README.md", "SHA256SUMS")}
    assert names == top | vectors | bilm
    card = (folder / "README.md").read_text("utf-8")
    assert "| Test accuracy | 0.9877 |" in card
    assert "frozen, in the folder bilm; concatenated with the token vectors and with the output" in card
    assert "elmokit task predict rhymes model lines.txt" in card


def test_an_older_task_model_is_replaced_and_nothing_else_is(tmp_path: Path, folder: Path) -> None:
    save_task(make(recipe()), folder, scores={})
    assert not (folder / "bilm").exists()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"also holds notes\.txt"):
        save_task(make(recipe()), folder, scores={})
    save_folder(make_bilm(), tmp_path / "bilm")
    with pytest.raises(OutputError, match="folder with files in it"):
        save_task(make(recipe()), tmp_path / "bilm", scores={})
    assert (tmp_path / "bilm" / "model.safetensors").is_file()


def test_a_failed_save_leaves_the_older_model(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    broken = make_bilm()
    broken.tensors["forward_lstm.layers.0.bias"][0] = float("nan")
    with pytest.raises(WeightsError, match="NaN"):
        save_task(replace(make(FULL), source=Embedder.from_saved(broken)), folder, scores={})
    assert {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()} == before


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "file",
    [
        "config.json",
        "vocab.json",
        "model.safetensors",
        "SHA256SUMS",
        "bilm/config.json",
        "bilm/model.safetensors",
        "bilm/SHA256SUMS",
        "vectors/vectors.safetensors",
        "vectors/words.json",
        "vectors/SHA256SUMS",
    ],
)
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_is_rejected_by_name(folder: Path, file: str, damage: Callable[[Path], None]) -> None:
    damage(folder / file)
    with pytest.raises(ElmokitError, match=file.split("/")[0]) as raised:
        load_task(folder, expected_task=RHYMES)
    assert "\n" not in str(raised.value)


def test_another_intact_bilm_in_its_place_is_rejected(tmp_path: Path, folder: Path) -> None:
    save_folder(make_bilm(seed=9), tmp_path / "other")
    shutil.rmtree(folder / "bilm")
    shutil.move(tmp_path / "other", folder / "bilm")
    with pytest.raises(WeightsError, match="bilm: is not what the task model was saved with"):
        load_task(folder, expected_task=RHYMES)


def rewrite_config(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_bytes()) | changes
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    write_sums(folder, ("config.json", "vocab.json", "model.safetensors"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"format": "other"}, WeightsError, "format is 'other', not 'elmokit.task'"),
        ({"version": 2}, ConfigError, "version 2; this elmokit knows up to 1: pip install --upgrade"),
        ({"surprise": 1}, ConfigError, "surprise: there is no such key"),
        ({"labels": {"tags": ["a"]}}, WeightsError, r"emit\.weight has shape .*the config says \(1, "),
        ({"labels": {"tag": []}}, ConfigError, "labels: .*did you mean tags"),
        ({"bilm": None}, ConfigError, "the two must agree"),
    ],
)
def test_a_config_that_does_not_fit_is_rejected(folder: Path, changes, error, message) -> None:
    rewrite_config(folder, **changes)
    with pytest.raises(error, match=message):
        load_task(folder, expected_task=RHYMES)


@pytest.mark.parametrize("size", [10**12, 10**30])
def test_sizes_are_compared_before_memory_is_allocated(folder: Path, size: int) -> None:
    values = json.loads((folder / "config.json").read_bytes())
    values["recipe"]["model"] = {**values["recipe"]["model"], "hidden_dim": size}
    rewrite_config(folder, recipe=values["recipe"])
    with pytest.raises(WeightsError, match=r"the config says|sizes that no model can have"):
        load_task(folder, expected_task=RHYMES)


def test_weights_that_are_not_finite_are_rejected(tmp_path: Path) -> None:
    saved = make(recipe())
    saved.weights["emit.bias"][0] = float("inf")
    save_task(saved, tmp_path / "model", scores={})
    with pytest.raises(WeightsError, match=r"emit\.bias holds NaN or infinite"):
        load_task(tmp_path / "model", expected_task=RHYMES)


def test_what_is_no_model_of_the_task_is_rejected_in_one_line(tmp_path: Path, folder: Path) -> None:
    save_folder(make_bilm(), tmp_path / "bilm")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    wrong = {
        tmp_path / "bilm": "is a biLM without a task",
        tmp_path / "empty": r"no config\.json in this folder; expected the folder of a task model",
        tmp_path / "file": "is a file; expected",
        tmp_path / "absent": "does not exist; expected",
        tmp_path: r"no config\.json in this folder \(the model of this run is in its folder model\)",
    }
    for path, message in wrong.items():
        with pytest.raises(WeightsError, match=message) as raised:
            load_task(path, expected_task=RHYMES)
        assert "\n" not in str(raised.value)
    with pytest.raises(WeightsError, match="is a model of the task rhymes, expected one of metre"):
        load_task(folder, expected_task=changed(RHYMES, name="metre"))
    with pytest.raises(WeightsError, match="the task 'rhymes', unknown to this elmokit; known: classify, coref, ner"):
        load_task(folder)


def test_every_task_is_found_by_its_name() -> None:
    assert list(TASKS) == ["classify", "coref", "ner", "parse", "snli", "squad", "srl", "sst", "tag"]
    assert [get_task(name).name for name in TASKS] == list(TASKS)
    with pytest.raises(
        ElmokitError, match="unknown task 'nre'; known: classify, coref, ner, parse, snli, squad, srl, sst, tag"
    ):
        get_task("nre")


# Without a copy of the biLM


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of bundled biLMs with the toy biLM in it, under the name toy."""
    (tmp_path / "bundled").mkdir()
    save_folder(make_bilm(), tmp_path / "bundled" / "toy")
    monkeypatch.setattr("elmokit.weights.bundled.BUNDLED", tmp_path / "bundled")
    return tmp_path / "bundled"


def test_a_slim_model_finds_its_bilm_by_name(folder: Path, installed: Path, tmp_path: Path) -> None:
    slim_task(folder, tmp_path / "slim", bilm="toy")
    assert not (tmp_path / "slim" / "bilm").exists()
    whole, slim = (load_task(path, expected_task=RHYMES) for path in (folder, tmp_path / "slim"))
    assert slim.predict_examples(EXAMPLES) == whole.predict_examples(EXAMPLES)
    assert slim.recipe.elmo.model == "toy"
    with pytest.raises(InputError, match="no copy of a biLM that could be left out"):
        slim_task(tmp_path / "slim", tmp_path / "slimmer", bilm="toy")
    save_folder(make_bilm(seed=9), installed / "toy")
    with pytest.raises(WeightsError, match="is not what the task model was saved with"):
        load_task(tmp_path / "slim", expected_task=RHYMES)
    with pytest.raises(InputError, match="its biLM is not toy; name the one that it was trained with"):
        slim_task(folder, tmp_path / "other", bilm="toy")
    assert not (tmp_path / "other").exists()


def test_a_bundled_model_is_found_by_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.tasks.saved.BUNDLED_TASKS", folder.parent)
    monkeypatch.chdir(tmp_path.parent)
    assert load_task("model", expected_task=RHYMES).task is RHYMES
