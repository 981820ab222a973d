"""Compare training steps of the tasks with ELMo, on cached layers, with the baseline arm.

    python benchmarks/tasks.py DATA --elmo MODEL --vectors GLOVE [--tasks ner-wikigold ...] [--steps 12] [--rounds 3]

DATA is a folder with the data of Table 1 (see docs/tasks.md). Both arms train on the same examples with the small
recipes. As in training, a thread prefetches batches, with ELMo from layers cached on disk. Computing the layers is not
timed. The arms alternate step by step.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # before torch is imported

from report import Report, Row, gather_facts, judge, spread

from elmokit.analysis.datasets import DataSet, choose_datasets
from elmokit.cli.system import keep_freed_memory
from elmokit.config import find_recipe, read_recipe
from elmokit.runs.seeds import seeded
from elmokit.tasks.batches import TrainingBatches, prefetched
from elmokit.tasks.materials import TaskData, all_sequences, gather_materials
from elmokit.tasks.names import get_task
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe
from elmokit.tasks.state import START, TaskState
from elmokit.tasks.task import Batch
from elmokit.tasks.task_model import build_task_model

GOAL = 1.3
FEW = 400  # examples to read, unless the steps need more


@dataclass
class Arm:
    """The timed part of a run."""

    batches: Iterator[Batch[Any]]
    state: TaskState

    def seconds_of_a_step(self) -> float:
        """Take the next step; return its seconds."""
        start = time.perf_counter()
        self.state.train_step(next(self.batches))
        return time.perf_counter() - start


def make_arm(dataset: DataSet, recipe: TaskRecipe, data: TaskData, layers_dir: Path) -> Arm:
    task = get_task(dataset.task)
    materials = gather_materials(task, recipe, data, layers_dir)
    if materials.layers is not None:
        materials.layers.add(all_sequences(task, materials.train))
    with seeded(recipe.training.seed, START):
        model = build_task_model(task, recipe, materials.labels, materials.columns)
    batches = TrainingBatches(model, materials.train)
    state = TaskState(model.module, recipe.training, steps_per_epoch=batches.per_epoch, metric=task.metric)
    return Arm(prefetched(batches.make, count()), state)


def measure(dataset: DataSet, arguments: argparse.Namespace, layers_dir: Path) -> Row:
    task = get_task(dataset.task)
    overrides = [f"words.file={arguments.vectors}", *arguments.change]
    base = read_recipe(TaskRecipe, find_recipe(dataset.task, folder="tasks"), overrides)
    data = dataset.read(task, *dataset.find_files(arguments.data))
    num_examples = max(FEW, base.training.batch_size * (arguments.steps + 1))
    if base.training.batch_size == 1:  # documents
        num_examples = arguments.steps + 1
    few = replace(data, train=_spread_out(data.train, num_examples), dev=data.dev[:1], read_test=None)
    settings = (ElmoSettings(place="none"), base.elmo.model_copy(update={"model": arguments.elmo}))
    arms = [make_arm(dataset, base.model_copy(update={"elmo": elmo}), few, layers_dir) for elmo in settings]
    for arm in arms:
        arm.seconds_of_a_step()  # warm-up
    medians: list[list[float]] = [[], []]
    for _ in range(arguments.rounds):
        seconds: list[list[float]] = [[], []]
        for _ in range(arguments.steps):
            for arm, times in zip(arms, seconds, strict=True):
                times.append(arm.seconds_of_a_step())
        for kept, times in zip(medians, seconds, strict=True):
            kept.append(sum(times) / len(times))
    ratios = [elmo / baseline for baseline, elmo in zip(*medians, strict=True)]
    row = Row(
        dataset.name,
        "ms per step: baseline, +ELMo",
        spread([1000 * value for value in medians[0]], "{:.0f}"),
        spread([1000 * value for value in medians[1]], "{:.0f}"),
        spread(ratios, "{:.2f}x"),
    )
    return judge(row, f"<= {GOAL}x", met=median(ratios) <= GOAL)


def _spread_out(examples: Sequence[object], count: int) -> list[object]:
    """Return ``count`` examples, evenly spread over the data."""
    every = max(1, len(examples) // count)
    return list(examples[::every][:count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--elmo", required=True, help="a saved biLM")
    parser.add_argument("--vectors", required=True, help="static vectors")
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--change", nargs="*", default=[], metavar="KEY=VALUE", help="values that replace the recipes'")
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    keep_freed_memory()  # as `elmokit task train` does
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dataset in choose_datasets(arguments.tasks):
            rows.append(measure(dataset, arguments, Path(folder)))
            print(*rows[-1].__dict__.values(), flush=True)
    report = Report("Task training: steps on cached layers", gather_facts(hidden=arguments.data), rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


if __name__ == "__main__":
    main()
