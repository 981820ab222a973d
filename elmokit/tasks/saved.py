"""A task model on disk: a folder with all that a prediction needs, without pickle.

config.json          format, version, task, recipe, labels, and the hashes of the subfolders
vocab.json           words with trained vectors, and known characters
model.safetensors    weights trained for the task
vectors/             static vectors, if the model reads any
bilm/                biLM or other encoder, if the model reads one: a folder of its own, unless config.json names
                     an installed biLM in its place
README.md            model card
SHA256SUMS           hashes of the files that are loaded
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from elmokit.atomic import atomic_folder
from elmokit.config import FrozenConfig, parse_config
from elmokit.embed.live_layers import LiveLayers
from elmokit.embed.sources import open_layer_source, save_layer_source
from elmokit.encoders.layer_sources import LayerSource
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.tasks.columns import ColumnMaker, InputVocab
from elmokit.tasks.names import TASKS, get_task
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask
from elmokit.tasks.task_model import TaskModel, build_task_model
from elmokit.weights.building import check_buildable
from elmokit.weights.bundled import find_model
from elmokit.weights.folder import FORMAT as BILM_FORMAT
from elmokit.weights.folder import is_replaceable, write_tensors
from elmokit.weights.options import read_json_object
from elmokit.weights.signing import SIGNATURE, check_required_signature
from elmokit.weights.sums import CARD, SUMS, check_sum, read_sums, sha256, warn_of_changed_card, write_sums

FORMAT: Final = "elmokit.task"
VERSION: Final = 1

CONFIG, INPUTS, TENSORS = "config.json", "vocab.json", "model.safetensors"
VECTORS, BILM = "vectors", "bilm"
KNOWN_FILES = {CONFIG, INPUTS, TENSORS, CARD, VECTORS, BILM, SUMS, SIGNATURE}

BUNDLED_TASKS = Path(__file__).parents[1] / "bundled_tasks"
"""Task models in the package, found by name. Each reads en-small."""

# Places of ELMo, for the model card.
PLACES = {
    "input": "concatenated with the token vectors",
    "output": "concatenated with the output of the lowest recurrent layer",
    "both": "concatenated with the token vectors and with the output of the lowest recurrent layer",
}


class TaskFolderConfig(FrozenConfig):
    """Content of config.json."""

    format: Literal["elmokit.task"]
    version: Literal[1]
    task: str
    recipe: TaskRecipe
    labels: dict[str, Any]
    vectors: str | None
    """Hash of the SHA256SUMS in ``vectors``, which pins them; None without static vectors."""
    bilm: str | None
    """Hash of the SHA256SUMS in ``bilm``; None without a biLM."""
    bilm_name: str | None = None
    """Name of an installed biLM that is read in place of the folder ``bilm``; the hash is that of its SHA256SUMS."""


@dataclass(frozen=True, eq=False)
class SavedTask:
    """Content of a saved task model."""

    task: AnyTask
    recipe: TaskRecipe
    labels: FrozenConfig
    vocab: InputVocab
    vectors: StaticVectors | None
    source: LayerSource | None
    weights: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class SharedParts:
    """Static vectors and encoders in memory, by the hashes of their folders.

    Models loaded with the same value share what is equal: an ensemble has one copy of its biLM.
    """

    vectors: dict[str, StaticVectors] = field(default_factory=dict)
    layers: dict[tuple[str, bool], LiveLayers] = field(default_factory=dict)  # also by whether they are rounded


def save_task(saved: SavedTask, folder: str | Path, *, scores: Mapping[str, float]) -> None:
    """Save a task model as a folder. A task model in its place is replaced; anything else is an error.

    ``scores`` go into the model card, by the names given.
    """
    folder = Path(folder)
    with atomic_folder(folder, replace=is_replaceable(folder, form=FORMAT, known_files=KNOWN_FILES)) as new:
        if saved.vectors is not None:
            saved.vectors.save(new / VECTORS)
        if saved.source is not None:
            save_layer_source(
                saved.source, new / BILM, description=f"The encoder of a model of the task {saved.task.name}."
            )
        config = TaskFolderConfig(
            format=FORMAT,
            version=VERSION,
            task=saved.task.name,
            recipe=saved.recipe,
            labels=saved.labels.model_dump(mode="json"),
            vectors=None if saved.vectors is None else sha256(new / VECTORS / SUMS),
            bilm=None if saved.source is None else sha256(new / BILM / SUMS),
        )
        (new / CONFIG).write_text(json.dumps(config.model_dump(mode="json"), indent=2) + "\n", "utf-8")
        (new / INPUTS).write_text(saved.vocab.model_dump_json() + "\n", "utf-8")
        # Copies: safetensors rejects tensors that share memory.
        weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in saved.weights.items()}
        write_tensors(weights, new / TENSORS, folder)
        card = _card(
            name=folder.resolve().name,
            task=saved.task.name,
            recipe=saved.recipe,
            num_parameters=sum(tensor.numel() for tensor in saved.weights.values()),
            has_bilm=saved.source is not None,
            scores=scores,
        )
        (new / CARD).write_text(card, "utf-8")
        write_sums(new, (CONFIG, INPUTS, TENSORS, CARD))


def slim_task(folder: str | Path, out: str | Path, *, bilm: str) -> None:
    """Save a task model without a copy of its biLM, which it then finds by name.

    Args:
        folder: folder of a task model.
        out: folder to write.
        bilm: name of an installed biLM with the same weights, such as ``en-small``.
    """
    folder, out = Path(folder), Path(out)
    config = _load_config(folder)
    installed = find_model(bilm)
    if config.bilm is None or config.bilm_name is not None:
        raise InputError(f"{folder}: has no copy of a biLM that could be left out; it is as small as it gets")
    own, named = (open_layer_source(part).fingerprint() for part in (folder / BILM, installed))
    if own != named:
        raise InputError(f"{folder}: its biLM is not {bilm}; name the one that it was trained with")
    elmo = config.recipe.elmo.model_copy(update={"model": bilm})
    changes = {
        "recipe": config.recipe.model_copy(update={"elmo": elmo}),
        "bilm": sha256(installed / SUMS),
        "bilm_name": bilm,
    }
    with atomic_folder(out, replace=is_replaceable(out, form=FORMAT, known_files=KNOWN_FILES)) as new:
        for name in (INPUTS, TENSORS):
            shutil.copyfile(folder / name, new / name)
        if config.vectors is not None:
            shutil.copytree(folder / VECTORS, new / VECTORS)
        slim = config.model_copy(update=changes)
        (new / CONFIG).write_text(json.dumps(slim.model_dump(mode="json"), indent=2) + "\n", "utf-8")
        card = (folder / CARD).read_text("utf-8").replace("in the folder bilm", f"not in this folder: {bilm}")
        (new / CARD).write_text(card.replace(f"# {folder.resolve().name}\n", f"# {out.resolve().name}\n"), "utf-8")
        write_sums(new, (CONFIG, INPUTS, TENSORS, CARD))


def load_task(
    folder: str | Path, *, expected_task: AnyTask | None = None, shared: SharedParts | None = None
) -> TaskModel:
    """Load a task model after checking its hashes.

    Args:
        folder: folder of a task model, the folder ``model`` of a run; or ``"ner"``, a model in the package.
        expected_task: reject models of other tasks; also the way to load a model of your own task.
        shared: static vectors and biLMs already in memory. Models loaded with the same value share what is equal.
    """
    folder, shared = _find_folder(folder), SharedParts() if shared is None else shared
    config = _load_config(folder)
    task = _find_task(folder, config.task, expected_task)
    labels = parse_config(task.labels, config.labels, source=f"{folder / CONFIG}, labels")
    vectors = _load_vectors(folder / VECTORS, config.vectors, shared)
    layers = _load_layers(_bilm_folder(folder, config), config.bilm, shared, rounded=not config.recipe.elmo.train)
    columns = ColumnMaker(config.recipe, _read_inputs(folder / INPUTS), vectors=vectors, layers=layers)
    weights = _read_tensors(folder / TENSORS)
    build = partial(build_task_model, task, config.recipe, labels, columns)
    check_buildable(lambda: build().module, weights, source=str(folder / TENSORS))
    model = build()
    model.module.load_state_dict(weights)
    model.module.eval()
    return model


def _load_config(folder: Path) -> TaskFolderConfig:
    """Read config.json after checking all hashes except those inside the subfolders."""
    _check_kind(folder)
    check_required_signature(folder)
    sums = read_sums(folder)
    warn_of_changed_card(folder, sums)
    for name in (CONFIG, INPUTS, TENSORS):
        check_sum(folder, name, sums)
    config = parse_config(TaskFolderConfig, read_json_object(folder / CONFIG), source=str(folder / CONFIG))
    _check_part(folder / VECTORS, config.vectors)
    _check_part(_bilm_folder(folder, config), config.bilm)
    return config


def _find_folder(source: str | Path) -> Path:
    """Return the path as it is, unless nothing is there and a bundled model has this name."""
    path = Path(source)
    ours = BUNDLED_TASKS / path
    return ours if len(path.parts) == 1 and not path.exists() and ours.is_dir() else path


def _bilm_folder(folder: Path, config: TaskFolderConfig) -> Path:
    return folder / BILM if config.bilm_name is None else find_model(config.bilm_name)


def _load_vectors(part: Path, key: str | None, shared: SharedParts) -> StaticVectors | None:
    if key is None:
        return None
    if key not in shared.vectors:
        shared.vectors[key] = StaticVectors.load(part)
    return shared.vectors[key]


def _load_layers(part: Path, bilm: str | None, shared: SharedParts, *, rounded: bool) -> LiveLayers | None:
    if bilm is None:
        return None
    key = bilm, rounded
    if key not in shared.layers:
        shared.layers[key] = LiveLayers(open_layer_source(part), rounded=rounded)
    return shared.layers[key]


def _check_kind(folder: Path) -> None:
    """Reject a folder that is not a task model, or is from a newer version."""
    expected = "expected the folder of a task model, as saved by `elmokit task train`"
    if not folder.is_dir():
        raise WeightsError(f"{folder}: {'is a file' if folder.exists() else 'does not exist'}; {expected}")
    if not (folder / CONFIG).is_file():
        hint = " (the model of this run is in its folder model)" if (folder / "model" / CONFIG).is_file() else ""
        raise WeightsError(f"{folder}: no {CONFIG} in this folder{hint}; {expected}")
    values = read_json_object(folder / CONFIG)
    found, version = values.get("format"), values.get("version")
    if found == BILM_FORMAT:
        raise WeightsError(f"{folder}: is a biLM without a task; {expected}")
    if found != FORMAT:
        raise WeightsError(f"{folder / CONFIG}: format is {found!r}, not {FORMAT!r}; {expected}")
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(
            f"{folder / CONFIG}: version {version}; this elmokit knows up to {VERSION}: pip install --upgrade elmokit"
        )


def _find_task(folder: Path, name: str, expected: AnyTask | None) -> AnyTask:
    if expected is not None and expected.name != name:
        raise WeightsError(f"{folder}: is a model of the task {name}, expected one of {expected.name}; name another")
    if expected is None and name not in TASKS:
        raise WeightsError(
            f"{folder}: is a model of the task {name!r}, unknown to this elmokit; known: {', '.join(TASKS)}"
        )
    return get_task(name) if expected is None else expected


def _check_part(part: Path, expected: str | None) -> None:
    """Reject a subfolder that is not the one that the model was saved with."""
    if expected is None:
        return
    if not (part / SUMS).is_file():
        raise WeightsError(f"{part}: missing, or without its {SUMS}; get the whole folder again")
    if sha256(part / SUMS) != expected:
        raise WeightsError(f"{part}: is not what the task model was saved with; get the whole folder again")


def _read_inputs(path: Path) -> InputVocab:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: cannot be read: {error}; get the folder again") from error
    return parse_config(InputVocab, values, source=str(path))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: cannot be read: {error}; get the folder again") from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise WeightsError(f"{path}: {name} holds NaN or infinite values; the model was damaged in training")
    return tensors


def _card(
    *, name: str, task: str, recipe: TaskRecipe, num_parameters: int, has_bilm: bool, scores: Mapping[str, float]
) -> str:
    """Return the README.md of a folder called ``name``. ``scores`` are shown by their names."""
    training, elmo = recipe.training, recipe.elmo
    part = "" if training.max_examples is None else f", at most {training.max_examples:,} examples"
    start = "untrained" if elmo.untrained else "frozen, in the folder bilm"
    bilm = "trained with the task, in the folder bilm" if elmo.train else start
    rows = {
        "Parameters": f"{num_parameters:,} trained for the task",
        "ELMo": f"{bilm}; {PLACES[elmo.place]}" if has_bilm and elmo.place != "none" else "none",
        "Trained with": f"{training.optimizer}, learning rate {training.learning_rate:g}, "
        f"batches of {training.batch_size}, seed {training.seed}{part}",
        **{score: f"{value:.4f}" for score, value in scores.items()},
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""---
library_name: elmokit
tags: [elmo, {task}]
---

# {name}

A model of the task {task}, as in Peters et al. 2018, trained with elmokit.

```
elmokit task predict {task} {name} lines.txt     format of a line: elmokit task predict --help
elmokit task evaluate {task} {name} labeled.txt
```

| | |
|---|---|
{table}

`sha256sum -c SHA256SUMS` checks the files; so does loading, with the subfolders. It warns if this card was changed.
"""
