"""A task model in use: predictions and scores.

Examples are batched by length. The prediction for one depends neither on the others nor on their order.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from elmokit.config import FrozenConfig
from elmokit.embed.embedder import Embedder
from elmokit.embed.live_layers import LiveLayers
from elmokit.errors import ElmokitWarning, InputError
from elmokit.tasks.batches import count_tokens, prefetched
from elmokit.tasks.columns import ColumnMaker, share_layers
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.recipe import TaskRecipe, model_settings
from elmokit.tasks.task import AnyTask, Batch, TaskModule
from elmokit.text.grouping import batches_by_length
from elmokit.text.rules import TextRules

LABELS_IN_MESSAGE = 5


@dataclass(frozen=True)
class TaskPrediction:
    """Prediction for a text; ``str`` of it is for people to read."""

    text_index: int
    """Index of the text. A sentence with several marked predicates has one prediction for each."""
    value: Any
    """Prediction of the task: tags, a class with its probabilities, an answer, clusters."""
    shown: str
    json: dict[str, Any]
    """The prediction as JSON values."""

    def __str__(self) -> str:
        return self.shown


@dataclass(frozen=True, eq=False, repr=False)
class TaskModel:
    """Model of a task with all that a prediction needs. `train_task` and `load_task` return one.

    Args:
        task: the task.
        recipe: the recipe that it was trained by.
        labels: its label space.
        columns: converts tokens to the inputs of the module: static vectors, characters, layers of the biLM.
        module: torch module with the weights.
    """

    task: AnyTask
    recipe: TaskRecipe
    labels: FrozenConfig
    columns: ColumnMaker
    module: nn.Module

    def __repr__(self) -> str:
        num_parameters = sum(parameter.numel() for parameter in self.module.parameters())
        return f"TaskModel(task={self.task.name!r}, {num_parameters:,} parameters)"

    @property
    def embedder(self) -> Embedder | None:
        """Embedder of the biLM that a loaded model reads text with; None without one."""
        source = self.columns.layers.source if isinstance(self.columns.layers, LiveLayers) else None
        return source if isinstance(source, Embedder) else None

    def predict(self, texts: Sequence[str | Sequence[str]], *, language: str = "en") -> list[TaskPrediction]:
        """Return the predictions for texts, in their order: ``print(model.predict(["Ada saw Oslo ."])[0])``.

        Args:
            texts: raw strings, which are tokenized, or lists of tokens. What a string contains depends on the task: a
                sentence (ner, sst), a sentence with stars around each predicate (srl), premise and hypothesis or
                paragraph and question with a tab between them (snli, squad), or a whole document (coref).
            language: language of raw strings, for the tokenizer.
        """
        if isinstance(texts, str):
            raise InputError(f"texts is the string {texts[:40]!r}; expected a list of texts: [{texts[:40]!r}]")
        numbered = [
            (index, example)
            for index, text in enumerate(texts)
            for example in self._read_text(text, index=index, language=language)
        ]
        examples = [example for _, example in numbered]
        return [
            TaskPrediction(index, value, self.task.show(example, value), self.task.to_json(example, value))
            for (index, example), value in zip(numbered, self.predict_examples(examples), strict=True)
        ]

    def evaluate(self, path: str | Path) -> dict[str, float]:
        """Return the scores on a labeled file, between 0 and 1.

        Args:
            path: file in the format that the task is trained on.
        """
        examples = read_labeled(self.task, Path(path))
        return self.evaluate_examples(examples, source=str(path))

    def predict_examples(self, examples: Sequence[Any], *, batch_size: int | None = None) -> list[Any]:
        """Return one prediction per example of the task, in their order."""
        return predict_examples([self], examples, batch_size=batch_size)

    def evaluate_examples(self, examples: Sequence[Any], *, source: str) -> dict[str, float]:
        """Return the scores on labeled examples; ``source`` names them in warnings."""
        warn_of_unknown_labels(self.task, self.labels, examples, source=source)
        return self.task.score(examples, self.predict_examples(examples))

    def make_batch(self, examples: Sequence[Any], *, labeled: bool) -> Batch[Any]:
        """Return examples as one batch."""
        by_column = zip(*(self.task.sequences(example) for example in examples), strict=True)
        made = tuple(self.columns.make([tokens for part in parts for tokens in part]) for parts in by_column)
        return Batch(made, self.task.collate(examples, self.labels, labeled=labeled))

    def _read_text(self, text: str | Sequence[str], *, index: int, language: str) -> list[Any]:
        try:
            if isinstance(text, str):
                return read_typed(self.task, text, TextRules(language=language))
            return read_typed(self.task, _join_tokens(text), TextRules(tokenized=True, language=language))
        except InputError as error:
            raise InputError(f"text {index}: {error}") from error


def build_task_model(task: AnyTask, recipe: TaskRecipe, labels: FrozenConfig, columns: ColumnMaker) -> TaskModel:
    """Return a model with initial weights, which follow from torch's seed."""
    tokens = TokenEncoder(columns.sizes(), recipe.chars, recipe.elmo, trained=columns.trained)
    module = task.build(model_settings(task, recipe), labels, tokens)
    return TaskModel(task, recipe, labels, columns, module)


def predict_examples(
    models: Sequence[TaskModel], examples: Sequence[Any], *, batch_size: int | None = None
) -> list[Any]:
    """Return one prediction per example, in their order. Several models predict as an ensemble.

    A biLM that models share reads a text once. The batch size is the first recipe's by default.
    """
    task, labels = _check_alike(models)
    predictions: dict[int, Any] = {}
    for index, outputs in iter_outputs(models, examples, batch_size=batch_size):
        output = outputs[0] if len(outputs) == 1 else task.combine(outputs)
        predictions[index] = task.decode(output, examples[index], labels)
    return [predictions[index] for index in range(len(examples))]


def iter_outputs(
    models: Sequence[TaskModel], examples: Sequence[Any], *, batch_size: int | None = None
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (index of an example, output of every model), the longest examples first.

    All models read a batch before the next one is made, so that memory holds a few batches only.
    """
    first = models[0]
    lengths = count_tokens(first.task, examples, source="examples to predict")
    batches = batches_by_length(lengths, batch_size=batch_size or first.recipe.training.batch_size, max_positions=None)

    def make(indices: list[int]) -> list[Batch[Any]]:
        chosen = [examples[index] for index in indices]
        makers = share_layers([model.columns for model in models])
        return [
            replace(model, columns=maker).make_batch(chosen, labeled=False)
            for model, maker in zip(models, makers, strict=True)
        ]

    with _in_evaluation([model.module for model in models]):
        for indices, of_models in zip(batches, prefetched(make, batches), strict=True):
            with torch.no_grad():
                outputs = [
                    cast(TaskModule, model.module).outputs(batch)
                    for model, batch in zip(models, of_models, strict=True)
                ]
            yield from zip(indices, zip(*outputs, strict=True), strict=True)


def read_labeled(task: AnyTask, path: Path) -> list[Any]:
    """Read the examples of a labeled file; reject a file without any."""
    try:
        examples = task.read(path)
    except InputError as error:  # the file may have the format of another task
        raise InputError(f"{error} (read as data of the task {task.name})") from error
    if not examples:
        raise InputError(f"{path}: no examples; expected data of the task {task.name}")
    return examples


def read_typed(task: AnyTask, text: str, rules: TextRules) -> list[Any]:
    """Return the examples of a typed text; reject a text without words."""
    examples = task.read_text(text, rules)
    is_empty = any(not tokens for example in examples for column in task.sequences(example) for tokens in column)
    if is_empty or not examples:
        raise InputError(f"no words in {text[:80]!r}; leave it out")
    return examples


def warn_of_unknown_labels(task: AnyTask, labels: FrozenConfig, examples: Sequence[Any], *, source: str) -> None:
    """Warn of labels that the model can never predict, with the number of examples that have them."""
    if not task.unknown_labels(examples, labels):
        return
    unknown = [sorted(task.unknown_labels([example], labels)) for example in examples]
    counts = Counter(label for of_example in unknown for label in of_example)
    shown = ", ".join(f"{label} ({count:,})" for label, count in counts.most_common(LABELS_IN_MESSAGE))
    more = f" and {len(counts) - LABELS_IN_MESSAGE} more" if len(counts) > LABELS_IN_MESSAGE else ""
    warnings.warn(
        f"{source}: {sum(map(bool, unknown)):,} of {len(examples):,} examples have labels that are not in the training "
        f"data, so the model cannot predict them: {shown}{more}; they count as errors; "
        "correct them if they are misspelled, or train on data that has them",
        ElmokitWarning,
        stacklevel=2,
    )


def _join_tokens(tokens: Sequence[Any]) -> str:
    for token in tokens:
        if not isinstance(token, str) or not token or any(map(str.isspace, token)):
            raise InputError(f"the token {token!r} is not a string without white space; give raw text, or split it")
    return " ".join(tokens)


@contextmanager
def _in_evaluation(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Turn dropout off; restore the mode of every module afterwards."""
    were_training = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, was_training in zip(modules, were_training, strict=True):
            module.train(was_training)


def _check_alike(models: Sequence[TaskModel]) -> tuple[AnyTask, FrozenConfig]:
    """Reject models that cannot form an ensemble; return the task and the label space of all."""
    if not models:
        raise InputError("no models to predict with; give one or more")
    first = models[0]
    for other in models[1:]:
        if other.task.name != first.task.name:
            raise InputError(f"a model of {first.task.name} and one of {other.task.name}; give models of one task")
        if other.labels != first.labels:
            raise InputError(
                f"the models of {first.task.name} have different labels and cannot form an ensemble; "
                "give models that were trained on the same data"
            )
    return first.task, first.labels
