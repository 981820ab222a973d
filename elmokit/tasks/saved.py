"""A task model on disk: a folder that holds all that a prediction needs. No pickle anywhere.

config.json          format, version, the task, its recipe and labels, the hashes of the folders below
vocab.json           the words whose vectors it has learned further, and the characters it knows
model.safetensors    the weights that were learned for the task
vectors/             the static vectors, where it reads any
bilm/                the biLM, where it reads one: a model folder of its own
README.md            the model card, for people
SHA256SUMS           hashes of what is loaded
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from elmokit.atomic import atomic_folder
from elmokit.config import FrozenConfig, parse_config
from elmokit.embed.embedder import Embedder
from elmokit.embed.live_layers import LiveLayers
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, WeightsError
from elmokit.tasks.card import task_card
from elmokit.tasks.columns import ColumnMaker, InputVocab
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.names import TASKS, get_task
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask
from elmokit.weights.folder import FORMAT as BILM_FORMAT
from elmokit.weights.folder import is_replaceable, load_folder, save_folder, write_tensors
from elmokit.weights.options import read_json_object
from elmokit.weights.saved import SavedBiLM, check_shapes, shapes_of
from elmokit.weights.sums import SUMS, check_sum, read_sums, sha256, write_sums

FORMAT: Final = "elmokit.task"
VERSION: Final = 1

CONFIG, INPUTS, TENSORS, CARD = "config.json", "vocab.json", "model.safetensors", "README.md"
VECTORS, BILM = "vectors", "bilm"
KNOWN_FILES = {CONFIG, INPUTS, TENSORS, CARD, VECTORS, BILM, SUMS}


class TaskFolderConfig(FrozenConfig):
    """The content of config.json."""

    format: Literal["elmokit.task"]
    version: Literal[1]
    task: str
    recipe: TaskRecipe
    labels: dict[str, Any]
    vectors: str | None
    """The hash of the hashes in ``vectors``; so no other vectors can take their place. None if there are none."""
    bilm: str | None
    """The same of ``bilm``."""


@dataclass(frozen=True, eq=False)
class SavedTask:
    """Everything that a saved task model holds."""

    task: AnyTask
    recipe: TaskRecipe
    labels: FrozenConfig
    vocab: InputVocab
    vectors: StaticVectors | None
    bilm: SavedBiLM | None
    weights: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class LoadedTask:
    """A task model that is ready to predict."""

    task: AnyTask
    recipe: TaskRecipe
    labels: FrozenConfig
    columns: ColumnMaker
    model: nn.Module
    """In evaluation mode."""
    embedder: Embedder | None
    """None where the model reads no biLM."""


@dataclass(frozen=True, eq=False)
class SharedParts:
    """What task models in memory have from the folders below theirs, by those folders' hashes.

    Models that are loaded with the same one share what is equal: an ensemble has one copy of its biLM.
    """

    vectors: dict[str, StaticVectors] = field(default_factory=dict)
    layers: dict[str, LiveLayers] = field(default_factory=dict)


def build_model(task: AnyTask, recipe: TaskRecipe, labels: FrozenConfig, columns: ColumnMaker) -> nn.Module:
    """A task's model as training begins; its weights follow from torch's seed."""
    settings = parse_config(task.settings, recipe.model, source=f"the recipe's table [model], of the task {task.name}")
    model: nn.Module = task.build(settings, labels, TokenEncoder(columns.sizes(), recipe.chars, recipe.elmo))
    return model


def save_task_model(saved: SavedTask, folder: str | Path, *, scores: Mapping[str, float]) -> None:
    """Save a task model as a folder; an older one of ours there is replaced, and anything else is not.

    ``scores`` go into the model card, by the names given.
    """
    folder = Path(folder)
    with atomic_folder(folder, replace=is_replaceable(folder, form=FORMAT, known_files=KNOWN_FILES)) as new:
        if saved.vectors is not None:
            saved.vectors.save(new / VECTORS)
        if saved.bilm is not None:
            save_folder(saved.bilm, new / BILM, description=f"The biLM of a model of the task {saved.task.name}.")
        config = TaskFolderConfig(
            format=FORMAT,
            version=VERSION,
            task=saved.task.name,
            recipe=saved.recipe,
            labels=saved.labels.model_dump(mode="json"),
            vectors=None if saved.vectors is None else sha256(new / VECTORS / SUMS),
            bilm=None if saved.bilm is None else sha256(new / BILM / SUMS),
        )
        (new / CONFIG).write_text(json.dumps(config.model_dump(mode="json"), indent=2) + "\n", "utf-8")
        (new / INPUTS).write_text(saved.vocab.model_dump_json() + "\n", "utf-8")
        # Copies, since safetensors refuses tensors that share memory.
        weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in saved.weights.items()}
        write_tensors(weights, new / TENSORS, folder)
        card = task_card(
            name=folder.resolve().name,
            task=saved.task.name,
            recipe=saved.recipe,
            num_parameters=sum(tensor.numel() for tensor in saved.weights.values()),
            has_bilm=saved.bilm is not None,
            scores=scores,
        )
        (new / CARD).write_text(card, "utf-8")
        write_sums(new, (CONFIG, INPUTS, TENSORS))


def load_task_model(
    folder: str | Path, *, expected_task: AnyTask | None = None, shared: SharedParts | None = None
) -> LoadedTask:
    """Load what `save_task_model` saved, after a check of its hashes. A model of another task is refused.

    Vectors and a biLM that are among the ``shared`` are taken from there; if not, they are added.
    """
    folder, shared = Path(folder), SharedParts() if shared is None else shared
    config = _load_config(folder)
    task = _find_task(folder, config.task, expected_task)
    labels = parse_config(task.labels, config.labels, source=f"{folder / CONFIG}, labels")
    vectors = _load_vectors(folder / VECTORS, config.vectors, shared)
    layers = _load_layers(folder / BILM, config.bilm, shared)
    columns = ColumnMaker(config.recipe, _read_inputs(folder / INPUTS), vectors=vectors, layers=layers)
    model = build_model(task, config.recipe, labels, columns)
    weights = _read_tensors(folder / TENSORS)
    check_shapes(shapes_of(weights), shapes_of(model.state_dict()), source=str(folder / TENSORS))
    model.load_state_dict(weights)
    embedder = None if layers is None else layers.embedder
    return LoadedTask(task, config.recipe, labels, columns, model.eval(), embedder)


def _load_config(folder: Path) -> TaskFolderConfig:
    """Read config.json, after a check of all hashes but those of the folders' files."""
    _check_kind(folder)
    sums = read_sums(folder)
    for name in (CONFIG, INPUTS, TENSORS):
        check_sum(folder, name, sums)
    config = parse_config(TaskFolderConfig, read_json_object(folder / CONFIG), source=str(folder / CONFIG))
    for name, expected in ((VECTORS, config.vectors), (BILM, config.bilm)):
        _check_part(folder / name, expected)
    return config


def _load_vectors(part: Path, key: str | None, shared: SharedParts) -> StaticVectors | None:
    if key is None:
        return None
    if key not in shared.vectors:
        shared.vectors[key] = StaticVectors.load(part)
    return shared.vectors[key]


def _load_layers(part: Path, key: str | None, shared: SharedParts) -> LiveLayers | None:
    if key is None:
        return None
    if key not in shared.layers:
        saved = load_folder(part)
        shared.layers[key] = LiveLayers(Embedder.from_saved(saved))
    return shared.layers[key]


def _check_kind(folder: Path) -> None:
    """Refuse, in one line, what is no task model that this version can read."""
    expected = "expected the folder of a task model, as `elmokit task train` saves it"
    if not folder.is_dir():
        raise WeightsError(f"{folder}: {'is a file' if folder.exists() else 'does not exist'}; {expected}")
    if not (folder / CONFIG).is_file():
        hint = " (its model is in the folder model)" if (folder / "model" / CONFIG).is_file() else ""
        raise WeightsError(f"{folder}: no {CONFIG} in this folder{hint}; {expected}")
    values = read_json_object(folder / CONFIG)
    found, version = values.get("format"), values.get("version")
    if found == BILM_FORMAT:
        raise WeightsError(f"{folder}: is a biLM, which knows no task; {expected}")
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
    """Refuse a folder below that is not the one that the model was saved with."""
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
