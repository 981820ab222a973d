"""Models that a server has loaded, and the functions that its queue calls.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from elmokit.analysis.index import CorpusIndex
from elmokit.embed.embedder import Embedder
from elmokit.embed.options import EmbedderOptions
from elmokit.embed.picking import Vectors
from elmokit.errors import InputError
from elmokit.score.results import Place, SentenceScore
from elmokit.score.saved_lm import load_language_model
from elmokit.score.scoring import Scorer
from elmokit.tasks.saved import BUNDLED_TASKS, SharedParts, load_task
from elmokit.tasks.task_model import TaskModel, predict_examples
from elmokit.text.vocab import SPECIAL_WORDS
from elmokit.weights.source import Source, has_softmax

Reduce = Callable[[Vectors], Vectors]
"""A function that keeps what a request needs of a sentence's layers, (L, T, D)."""
LayerItem = tuple[Sequence[str], Reduce]

KEPT_FUNCTIONS = 128  # values of top_k


@dataclass(frozen=True, eq=False)
class Models:
    """The loaded models of a server.

    Args:
        name: name of the biLM, as ``/v1/models`` lists it.
        embedder: its Embedder.
        scorer: its Scorer; None without an output layer.
        tasks: task models by name.
        index: index of a corpus, built with the same biLM; None without one.
    """

    name: str
    embedder: Embedder
    scorer: Scorer | None = None
    tasks: Mapping[str, TaskModel] = field(default_factory=dict)
    index: CorpusIndex | None = None

    def warm_up(self) -> None:
        """Run one sentence through every part, so that the first request does not wait for late imports."""
        tokens = self.embedder.tokenize("The first sentence takes the longest.")
        self.embedder.embed_layers([tokens])
        if self.scorer is not None:
            self.scorer.score([tokens])

    def run_layers(self, items: list[LayerItem]) -> list[Any]:
        """Return what is kept of the layers of every sentence."""
        found = self.embedder.run_batch([tokens for tokens, _ in items])
        return [reduce(layers_LTD) for (_, reduce), layers_LTD in zip(items, found, strict=True)]

    def run_scores(self, items: list[Sequence[str]]) -> list[SentenceScore]:
        """Return the scores of sentences."""
        assert self.scorer is not None
        return self.scorer.score(items)

    def run_task(self, name: str) -> Callable[[list[Any]], list[Any]]:
        """Return the function that predicts examples of a task."""
        return _task_function(self.tasks[name])

    def run_places(self, top_k: int) -> Callable[[list[Any]], list[list[Place]]]:
        """Return the function that finds the ``top_k`` likeliest words of every place."""
        assert self.scorer is not None
        return _places_function(self.scorer, top_k)


def load_models(source: Source, *, tasks: Mapping[str, Path], index: Path | None = None, **options: Any) -> Models:
    """Load the models of a server.

    Args:
        source: the biLM, as for `Embedder.from_pretrained`.
        tasks: folders of task models by name.
        index: folder of a corpus index that was built with this biLM.
        options: options of the `Embedder`.
    """
    embedder_options: EmbedderOptions = options  # type: ignore[assignment]
    shared = SharedParts()
    scorer = None
    if has_softmax(source):
        loaded = load_language_model(source)
        scorer = Scorer(loaded.model, loaded.vocab, state=options.get("state", "warm"), warm=loaded.start_state)
    embedder = Embedder.from_pretrained(source, **embedder_options)
    task_models = {name: load_task(folder, shared=shared) for name, folder in tasks.items()}
    return Models(
        _name_of(source), embedder, scorer, task_models, None if index is None else open_index(index, embedder)
    )


def open_index(folder: Path, embedder: Embedder) -> CorpusIndex:
    """Open a corpus index; reject one that another biLM has built."""
    index = CorpusIndex.open(folder)
    index.check_embedder(embedder)
    return index


def parse_tasks(given: Sequence[str]) -> dict[str, Path]:
    """Return the folders of task models by name from ``NAME=FOLDER``, or ``NAME`` of a model in the package."""
    tasks: dict[str, Path] = {}
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals and (BUNDLED_TASKS / name).is_dir():
            folder = str(BUNDLED_TASKS / name)
        if not (name.isidentifier() and folder):
            known = ", ".join(sorted(path.name for path in BUNDLED_TASKS.iterdir()))
            raise InputError(
                f"--task {one!r}; expected NAME=FOLDER, such as ner=runs/ner/model, or a model in the package: {known}"
            )
        if name in tasks:
            raise InputError(f"--task {name} is given twice; choose another name for one of them")
        tasks[name] = Path(folder)
    return tasks


@lru_cache(KEPT_FUNCTIONS)
def _places_function(scorer: Scorer, top_k: int) -> Callable[[list[Any]], list[list[Place]]]:
    return partial(_predict_places, scorer, top_k)


@lru_cache(KEPT_FUNCTIONS)
def _task_function(model: TaskModel) -> Callable[[list[Any]], list[Any]]:
    return partial(_predict_task, model)


def _predict_places(scorer: Scorer, top_k: int, items: list[Any]) -> list[list[Place]]:
    asked = min(top_k + len(SPECIAL_WORDS), len(scorer.vocab))  # special words are predicted too, and then left out
    return [[place.without_special_words(top_k) for place in places] for places in scorer.predict(items, top_k=asked)]


def _predict_task(model: TaskModel, items: list[Any]) -> list[Any]:
    return predict_examples([model], items)


def _name_of(source: Source) -> str:
    return Path(source).name if isinstance(source, str | Path) else Path(source[1]).stem
