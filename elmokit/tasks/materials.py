"""Inputs of a task run: examples, labels, static vectors, and the layers of a biLM or another encoder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from elmokit.config import FrozenConfig
from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.embed.sources import UNTRAINED, open_layer_source
from elmokit.embed.trained_layers import TrainedLayers
from elmokit.encoders.layer_sources import LayerSource
from elmokit.encoders.static_vectors import StaticVectors, read_static_vectors
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.batches import choose_examples, count_tokens
from elmokit.tasks.columns import ColumnMaker, InputVocab, learn_inputs, reads_elmo
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.resume_check import examples_fingerprint, resume_key
from elmokit.tasks.task import AnyTask
from elmokit.weights.sums import sha256


@dataclass(frozen=True, eq=False)
class TaskData:
    """Examples of a run: to train on, to select the best weights with, and to test these on."""

    train: Sequence[Any]
    dev: Sequence[Any]
    read_test: Callable[[], Sequence[Any]] | None = None
    """Called at the end of a run. None without test data."""


@dataclass(frozen=True, eq=False)
class Materials:
    """Everything that a run reads."""

    task: AnyTask
    recipe: TaskRecipe
    train: list[Any]  # after the recipe's limits
    dev: Sequence[Any]
    labels: FrozenConfig
    vocab: InputVocab
    vectors: StaticVectors | None
    source: LayerSource | None
    layers: LayerStore | None  # cached; None without ELMo, and if the biLM is trained
    columns: ColumnMaker
    resume_key: dict[str, Any]


def read_data(task: AnyTask, *, train: Path, dev: Path, test: Path | None) -> TaskData:
    """Read the files of a task; the test file only when the run asks for it."""
    for path in (train, dev, test):
        if path is not None and not path.exists():
            raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}")
    if test is not None and test.is_file() and not test.stat().st_size:  # it is read after training
        raise InputError(f"{test}: is empty; give another test file, or none")
    return TaskData(
        train=task.read_training(train),
        dev=task.read(dev),
        read_test=None if test is None else partial(task.read, test),
    )


def gather_materials(task: AnyTask, recipe: TaskRecipe, data: TaskData, layers_dir: Path) -> Materials:
    """Return everything except the layers, which take longest: see `all_sequences` and `LayerStore.add`."""
    if recipe.task != task.name:
        raise ConfigError(f"the recipe is for the task {recipe.task!r}, not for {task.name!r}; name the other one")
    if not data.dev:
        raise InputError("no dev examples; give some, to select the best weights")
    lengths = count_tokens(task, data.train, source="training data")
    count_tokens(task, data.dev, source="dev data")
    train = [data.train[index] for index in choose_examples(lengths, recipe.training)]
    labels = task.learn_labels(data.train)  # of all, so that runs on other parts of them can form an ensemble
    vectors = None if recipe.words.file is None else read_static_vectors(recipe.words.file)
    vocab = learn_inputs(all_sequences(task, train), recipe, vectors=vectors)
    source = _open_source(recipe) if reads_elmo(recipe) else None
    layers = None if source is None or recipe.elmo.train else LayerStore.open(layers_dir, source)
    trained = TrainedLayers(source.saved()) if recipe.elmo.train and isinstance(source, Embedder) else None
    fingerprints = {
        "training data": examples_fingerprint(task, train, labels),
        "development data": examples_fingerprint(task, data.dev, None),
        "file of static vectors": None if recipe.words.file is None else sha256(Path(recipe.words.file)),
        "biLM": None if source is None else source.fingerprint(),
    }
    columns = ColumnMaker(recipe, vocab, vectors=vectors, layers=trained or layers)
    return Materials(
        task=task,
        recipe=recipe,
        train=train,
        dev=data.dev,
        labels=labels,
        vocab=vocab,
        vectors=vectors,
        source=source,
        layers=layers,
        columns=columns,
        resume_key=resume_key(recipe, fingerprints),
    )


def all_sequences(task: AnyTask, examples: Sequence[Any]) -> Iterator[Sequence[str]]:
    """Return the token sequences of examples."""
    return (tokens for example in examples for column in task.sequences(example) for tokens in column)


def text_of(task: AnyTask, examples: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return the sentences of examples, each once: the text to tune a biLM on. Of SQuAD it is the paragraphs alone."""
    columns = (task.sequences(example) for example in examples)
    chosen = (column[:1] if task.name == "squad" else column for column in columns)
    return list(dict.fromkeys(tuple(tokens) for parts in chosen for part in parts for tokens in part))


def _open_source(recipe: TaskRecipe) -> LayerSource:
    """Open the source of layers that a recipe names."""
    elmo = recipe.elmo
    assert elmo.model is not None
    source = open_layer_source(f"{UNTRAINED if elmo.untrained else ''}{elmo.model}", seed=recipe.training.seed)
    if elmo.layers == "type" and not isinstance(source, Embedder):
        raise ConfigError(f"elmo.layers is 'type', but {elmo.model} is no biLM; give elmo.layers=all or last")
    if elmo.train and not isinstance(source, Embedder):
        raise ConfigError(f"elmo.train is set, but {elmo.model} is no biLM; only a biLM is trained with a task")
    return source
