"""What a task model says of examples, and how good that is.

Examples are batched by length; what is said of one depends neither on the others nor on their order.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from elmokit.config import FrozenConfig
from elmokit.errors import ElmokitWarning, InputError
from elmokit.tasks.batches import count_tokens, make_batch, prefetched
from elmokit.tasks.columns import ColumnMaker
from elmokit.tasks.saved import LoadedTask
from elmokit.tasks.shared_layers import share_layers
from elmokit.tasks.task import AnyTask, Batch, TaskModule
from elmokit.text.grouping import batches_by_length

LABELS_IN_MESSAGE = 5


def predict(
    task: AnyTask,
    model: nn.Module,
    columns: ColumnMaker,
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
) -> list[Any]:
    """Return a model's decision for every example, in their order."""
    decided: dict[int, Any] = {}
    for index, (output,) in _iter_outputs(task, [(model, columns)], labels, examples, batch_size=batch_size):
        decided[index] = task.decode(output, examples[index], labels)
    return [decided[index] for index in range(len(examples))]


def compute_outputs(
    task: AnyTask,
    model: nn.Module,
    columns: ColumnMaker,
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
) -> list[Any]:
    """Return what a model says of every example before anything is decided, in their order."""
    found: dict[int, Any] = {}
    for index, (output,) in _iter_outputs(task, [(model, columns)], labels, examples, batch_size=batch_size):
        found[index] = output
    return [found[index] for index in range(len(examples))]


def predict_together(models: Sequence[LoadedTask], examples: Sequence[Any], *, batch_size: int) -> list[Any]:
    """Return the decisions of several models of one task as an ensemble. A biLM that they share reads a text once."""
    task, labels = _check_alike(models)
    readers = [(one.model, one.columns) for one in models]
    decided: dict[int, Any] = {}
    for index, outputs in _iter_outputs(task, readers, labels, examples, batch_size=batch_size):
        decided[index] = task.decode(task.combine(outputs), examples[index], labels)
    return [decided[index] for index in range(len(examples))]


def evaluate(
    task: AnyTask,
    model: nn.Module,
    columns: ColumnMaker,
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
    source: str,
) -> dict[str, float]:
    """Return a model's scores on labelled examples. ``source`` names them in a warning of labels it cannot know."""
    warn_of_unknown_labels(task, labels, examples, source=source)
    return task.score(examples, predict(task, model, columns, labels, examples, batch_size=batch_size))


def warn_of_unknown_labels(task: AnyTask, labels: FrozenConfig, examples: Sequence[Any], *, source: str) -> None:
    """Say which labels a model can never predict, and how many examples have them."""
    if not task.unknown_labels(examples, labels):
        return
    unknown = [sorted(task.unknown_labels([example], labels)) for example in examples]
    counts = Counter(label for of_example in unknown for label in of_example)
    shown = ", ".join(f"{label} ({count:,})" for label, count in counts.most_common(LABELS_IN_MESSAGE))
    more = f" and {len(counts) - LABELS_IN_MESSAGE} more" if len(counts) > LABELS_IN_MESSAGE else ""
    warnings.warn(
        f"{source}: {sum(map(bool, unknown)):,} of {len(examples):,} examples have labels that are not in the training "
        f"data, so that the model cannot predict them: {shown}{more}; they count as its mistakes; "
        "correct them if they are misspelt, or learn from data that has them",
        ElmokitWarning,
        stacklevel=2,
    )


def _iter_outputs(
    task: AnyTask,
    readers: Sequence[tuple[nn.Module, ColumnMaker]],
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (index, every model's output), the longest examples first.

    All models see a batch before the next one, so that the layers and outputs of a few batches are all that is kept.
    """
    models, makers = zip(*readers, strict=True)
    lengths = count_tokens(task, examples, source="examples to predict")
    batches = batches_by_length(lengths, batch_size=batch_size, max_positions=None)

    def make(indices: list[int]) -> list[Batch[Any]]:
        chosen = [examples[index] for index in indices]
        return [make_batch(task, chosen, labels, maker, with_labels=False) for maker in share_layers(makers)]

    with _in_evaluation(models):
        for indices, of_models in zip(batches, prefetched(make, batches), strict=True):
            with torch.no_grad():
                outputs = [
                    cast(TaskModule, model).outputs(batch) for model, batch in zip(models, of_models, strict=True)
                ]
            yield from zip(indices, zip(*outputs, strict=True), strict=True)


@contextmanager
def _in_evaluation(models: Sequence[nn.Module]) -> Iterator[None]:
    """Models without dropout; afterwards they are as they were."""
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was_training in zip(models, were_training, strict=True):
            model.train(was_training)


def _check_alike(models: Sequence[LoadedTask]) -> tuple[AnyTask, FrozenConfig]:
    """Refuse models that cannot decide together; return the task and the labels of all."""
    if not models:
        raise InputError("no models to predict with; give one or more")
    first = models[0]
    for other in models[1:]:
        if other.task.name != first.task.name:
            raise InputError(f"a model of {first.task.name} and one of {other.task.name}; give models of one task")
        if other.labels != first.labels:
            raise InputError(
                f"the models of {first.task.name} have different labels, so they cannot decide together; "
                "give models that have learned from the same data"
            )
    return first.task, first.labels
