"""What a task run learns from, made ready: examples, labels, vectors, and the layers of a biLM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from elmokit.config import FrozenConfig
from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.encoders.static_vectors import StaticVectors, read_static_vectors
from elmokit.errors import ConfigError, InputError
from elmokit.model.bilm import BiLM
from elmokit.runs.seeds import seeded
from elmokit.tasks.batches import choose_examples, count_tokens
from elmokit.tasks.columns import ColumnMaker, InputVocab, learn_inputs, reads_elmo
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.resume_check import examples_fingerprint, resume_key
from elmokit.tasks.state import UNTRAINED
from elmokit.tasks.task import AnyTask
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import load_saved
from elmokit.weights.sums import sha256


@dataclass(frozen=True, eq=False)
class TaskData:
    """Examples to learn from, to choose the best weights by, and to test these on."""

    train: Sequence[Any]
    dev: Sequence[Any]
    read_test: Callable[[], Sequence[Any]] | None = None
    """Called once, at the end of a run. None if there is nothing to test on."""


@dataclass(frozen=True, eq=False)
class Materials:
    """All that a run reads."""

    train: list[Any]  # what the recipe leaves of it
    dev: Sequence[Any]
    labels: FrozenConfig
    vocab: InputVocab
    vectors: StaticVectors | None
    bilm: SavedBiLM | None
    layers: LayerStore | None
    columns: ColumnMaker
    origin: dict[str, Any]


def read_data(task: AnyTask, *, train: Path, dev: Path, test: Path | None) -> TaskData:
    """Read a task's files; the one to test on not before it is asked for."""
    for path in (train, dev, test):
        if path is not None and not path.exists():
            raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}")
    if test is not None and test.is_file() and not test.stat().st_size:  # it will be read only when all is learned
        raise InputError(f"{test}: is empty; give another file to test on, or none")
    return TaskData(
        train=task.read_training(train),
        dev=task.read(dev),
        read_test=None if test is None else partial(task.read, test),
    )


def gather_materials(task: AnyTask, recipe: TaskRecipe, data: TaskData, layers_dir: Path) -> Materials:
    """Make everything ready but the biLM's layers, which take longest: see `all_sequences` and `LayerStore.add`."""
    if recipe.task != task.name:
        raise ConfigError(f"the recipe is for the task {recipe.task!r}, not for {task.name!r}; name the other one")
    if not data.dev:
        raise InputError("no development examples, by which the best weights are chosen; give some")
    lengths = count_tokens(task, data.train, source="training data")
    count_tokens(task, data.dev, source="development data")
    train = [data.train[index] for index in choose_examples(lengths, recipe.training)]
    labels = task.learn_labels(data.train)  # of all, so that runs on other parts of them can decide together
    vectors = None if recipe.words.file is None else read_static_vectors(recipe.words.file)
    vocab = learn_inputs(all_sequences(task, train), recipe, vectors=vectors)
    bilm = _find_bilm(recipe) if reads_elmo(recipe) else None
    embedder = None if bilm is None else Embedder.from_saved(bilm)
    layers = None if embedder is None else LayerStore.open(layers_dir, embedder)
    fingerprints = {
        "training data": examples_fingerprint(task, train, labels),
        "development data": examples_fingerprint(task, data.dev, None),
        "file of static vectors": None if recipe.words.file is None else sha256(Path(recipe.words.file)),
        "biLM": None if embedder is None else embedder.fingerprint(),
    }
    columns = ColumnMaker(recipe, vocab, vectors=vectors, layers=layers)
    origin = resume_key(recipe, fingerprints)
    return Materials(train, data.dev, labels, vocab, vectors, bilm, layers, columns, origin)


def all_sequences(task: AnyTask, examples: Sequence[Any]) -> Iterator[Sequence[str]]:
    """The token sequences of examples."""
    return (tokens for example in examples for column in task.sequences(example) for tokens in column)


def _find_bilm(recipe: TaskRecipe) -> SavedBiLM:
    """The biLM that a recipe names, or one of its shape that has learned nothing."""
    assert recipe.elmo.model is not None
    saved = load_saved(recipe.elmo.model)
    if not recipe.elmo.untrained:
        return saved
    with seeded(recipe.training.seed, UNTRAINED):
        return SavedBiLM(saved.config, dict(BiLM(saved.config).state_dict()))
