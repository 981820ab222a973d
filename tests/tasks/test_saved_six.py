"""The model of every task, saved and loaded: it predicts of every example exactly what it did before."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_models import build_model, compute_outputs
from toy_datasets import write_home

from elmokit.config import read_recipe
from elmokit.embed.embedder import Embedder
from elmokit.embed.live_layers import LiveLayers
from elmokit.tasks.columns import ColumnMaker
from elmokit.tasks.materials import TaskData, gather_materials
from elmokit.tasks.names import TASKS, get_task
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import SavedTask, load_task, save_task

pytestmark = pytest.mark.long

FILES = {
    "classify": "classify/train.tsv",
    "coref": "coref/litbank-conll.tar.xz",
    "ner": "ner/wnut17.train.conll.xz",
    "parse": "trees/ewt.train.ptb.xz",
    "snli": "snli/snli_1.0_train-100k.jsonl.xz",
    "squad": "squad/train-small.json.xz",
    "srl": "srl/ewt-propbank-train.conll.xz",
    "sst": "sst/train.txt.xz",
    "tag": "ner/wnut17.train.conll.xz",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def numbers(output: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Every array and number in a output, whatever it is made of."""
    if dataclasses.is_dataclass(output):
        output = [getattr(output, field.name) for field in dataclasses.fields(output)]
    if isinstance(output, list | tuple):
        for part in output:
            yield from numbers(part)
    else:
        yield np.asarray(output)


@pytest.mark.parametrize("name", TASKS)
def test_a_loaded_model_predicts_what_it_did_before(home: Path, tmp_path: Path, name: str) -> None:
    words = [f'words.file="{home / "data" / "glove.txt"}"', f'elmo.model="{home / "bilm"}"', "elmo.place=both"]
    recipe = read_recipe(TaskRecipe, home / "recipes" / f"{name}.toml", words)
    task = get_task(name)
    examples = task.read_training(home / "data" / FILES[name])
    found = gather_materials(task, recipe, TaskData(examples, examples), tmp_path / "layers")
    live = LiveLayers(Embedder.from_pretrained(home / "bilm"))
    columns = ColumnMaker(recipe, found.vocab, vectors=found.vectors, layers=live)
    torch.manual_seed(2)
    model = build_model(task, recipe, found.labels, columns)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    before = compute_outputs(task, model, columns, found.labels, examples, batch_size=4)
    weights = dict(model.state_dict())
    saved = SavedTask(task, recipe, found.labels, found.vocab, found.vectors, found.source, weights)
    save_task(saved, tmp_path / "model", scores={})
    loaded = load_task(tmp_path / "model", expected_task=task)
    after = compute_outputs(task, loaded.module, loaded.columns, loaded.labels, examples, batch_size=4)
    for example, one, other in zip(examples, before, after, strict=True):
        for left, right in zip(numbers(one), numbers(other), strict=True):
            np.testing.assert_array_equal(left, right)
        decided = [task.decode(output, example, found.labels) for output in (one, other)]
        assert task.to_json(example, decided[0]) == task.to_json(example, decided[1])
    kinds = {tuple(part.tobytes() for part in numbers(output)) for output in before}
    assert len(kinds) > len(examples) / 2  # it is no constant that came back
