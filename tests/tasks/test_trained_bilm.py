"""Runs that train the biLM with the task: they resume, save it, and predict with it."""

import threading
from pathlib import Path

import pytest
import torch
from toy import toy_model
from toy_task import RHYMES, recipe, toy_data, verses

from elmokit.embed.embedder import Embedder
from elmokit.errors import ConfigError
from elmokit.model.bilm import BiLM
from elmokit.runs.checkpoint import load_newest
from elmokit.tasks.loop import run_task
from elmokit.tasks.optimizer import TRAINED
from elmokit.tasks.progress import Entry, TaskStep
from elmokit.tasks.recipe import ElmoSettings
from elmokit.tasks.saved import load_task
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM

TRAIN = {"train": True, "learning_rate": 0.005, "dropout": 0.0}


@pytest.fixture
def bilm(tmp_path: Path) -> str:
    torch.manual_seed(3)
    config = toy_model()
    save_folder(SavedBiLM(config, dict(BiLM(config).state_dict())), tmp_path / "bilm")
    return str(tmp_path / "bilm")


def train(folder: Path, bilm: str, *, stop_at: int | None = None, **settings) -> None:
    stop = threading.Event()

    def report(entry: Entry) -> None:
        if isinstance(entry, TaskStep) and entry.step == stop_at:
            stop.set()

    asked = recipe(bilm=bilm, chars=False, epochs=2, elmo=TRAIN | settings)
    run_task(RHYMES, asked, toy_data(), folder, report=report, stop=stop)


def test_the_saved_model_predicts_with_the_trained_bilm(tmp_path: Path, bilm: str) -> None:
    train(tmp_path / "run", bilm)
    model = load_task(tmp_path / "run" / "model", expected_task=RHYMES)
    newest = load_newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    best = {
        name.removeprefix(f"best/{TRAINED}bilm."): tensor
        for name, tensor in newest.tensors.items()
        if name.startswith(f"best/{TRAINED}")
    }
    assert model.embedder is not None
    used, before = model.embedder.bilm.state_dict(), Embedder.from_pretrained(bilm).bilm.state_dict()
    assert used.keys() == best.keys()
    assert all(torch.equal(used[name], tensor) for name, tensor in best.items())
    assert not torch.equal(
        used["forward_lstm.layers.0.recurrent_weight"], before["forward_lstm.layers.0.recurrent_weight"]
    )
    assert not (tmp_path / "run" / "layers").exists()
    assert newest.facts["best"]["scores"] == model.evaluate_examples(verses(12, seed=2), source="dev")
    assert "trained with the task" in (tmp_path / "run" / "model" / "README.md").read_text("utf-8")


def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path, bilm: str) -> None:
    train(tmp_path / "straight", bilm)
    train(tmp_path / "twice", bilm, stop_at=8)
    train(tmp_path / "twice", bilm)
    one, two = (load_newest(tmp_path / name / "checkpoints") for name in ("straight", "twice"))
    assert one is not None
    assert two is not None
    assert one.step == two.step
    assert all(torch.equal(one.tensors[name], tensor) for name, tensor in two.tensors.items())
    files = [tmp_path / name / "model" / "bilm" / "model.safetensors" for name in ("straight", "twice")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_rate_of_its_own_for_the_bilm_needs_training_and_only_a_bilm_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give train=true"):
        ElmoSettings(learning_rate=0.1)
    with pytest.raises(ValueError, match="needs ELMo in the model"):
        ElmoSettings(place="none", train=True)
    (tmp_path / "vectors.txt").write_text("ba 1 2\nbo 3 4\n", "utf-8")
    with pytest.raises(ConfigError, match="only a biLM is trained"):
        train(tmp_path / "run", f"glove:{tmp_path / 'vectors.txt'}")
