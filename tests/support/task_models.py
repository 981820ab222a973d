"""Task models in tests: what `TaskModel` does, for modules that were built and changed by hand."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from elmokit.config import FrozenConfig
from elmokit.tasks.columns import ColumnMaker
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask, Batch
from elmokit.tasks.task_model import TaskModel, build_task_model, iter_outputs


def build_model(task: AnyTask, recipe: TaskRecipe, labels: FrozenConfig, columns: ColumnMaker) -> nn.Module:
    return build_task_model(task, recipe, labels, columns).module


def make_batch(
    task: AnyTask, examples: Sequence[Any], labels: FrozenConfig, columns: ColumnMaker, *, with_labels: bool
) -> Batch[Any]:
    model = TaskModel(task, columns.recipe, labels, columns, nn.Module())
    return model.make_batch(examples, labeled=with_labels)


def predict(
    task: AnyTask,
    module: nn.Module,
    columns: ColumnMaker,
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
) -> list[Any]:
    model = TaskModel(task, columns.recipe, labels, columns, module)
    return model.predict_examples(examples, batch_size=batch_size)


def compute_outputs(
    task: AnyTask,
    module: nn.Module,
    columns: ColumnMaker,
    labels: FrozenConfig,
    examples: Sequence[Any],
    *,
    batch_size: int,
) -> list[Any]:
    """Outputs before decoding, in the order of the examples."""
    model = TaskModel(task, columns.recipe, labels, columns, module)
    found = {index: output for index, (output,) in iter_outputs([model], examples, batch_size=batch_size)}
    return [found[index] for index in range(len(examples))]
