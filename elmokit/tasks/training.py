"""Train a task in one call, with the defaults of the command line."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import MODEL
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import read_data
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Report
from elmokit.tasks.recipe import find_task_recipe, resolve_recipe
from elmokit.tasks.saved import load_task
from elmokit.tasks.task_model import TaskModel

RUNS = Path("runs")


def train_task(
    task: str,
    *,
    train: str | Path,
    dev: str | Path,
    test: str | Path | None = None,
    elmo: str | Path | None = None,
    vectors: str | Path | None = None,
    untrained: bool = False,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    run_dir: str | Path | None = None,
    report: Report = ignore_entry,
) -> TaskModel:
    """Train a model of a task on labeled files, and return the one with the best dev score.

    The run is saved in a folder. The same call resumes an interrupted run, and loads the model of a finished one.

    Args:
        task: name of the task, such as ner or classify; ``elmokit task train --help`` lists them.
        train: file to train on. Formats: ``elmokit task train --help``.
        dev: file to select the best weights with.
        test: file to test these on, once, at the end.
        elmo: folder of a biLM, or another encoder by name (`elmokit.embed.sources`); ``"none"`` for a model without
            ELMo. Default: the recipe's, or the bundled English one.
        vectors: file of static vectors (GloVe or word2vec text, or .npz); ``"none"`` for none. Default: the recipe's.
        untrained: take only the shape of the biLM, with random weights, as a control.
        recipe: name of a bundled recipe or path of a TOML file. Default: the bundled recipe of the task.
        settings: values in place of the recipe's: ``{"training.epochs": 3}``, or ``["training.epochs=3"]``.
        run_dir: folder of the run. Default: the recipe's name in ``runs``.
        report: called with every entry of `elmokit.tasks.progress`, such as scores on the dev set.

    Returns:
        The trained model, ready to predict.
    """
    chosen = get_task(task)
    path = find_task_recipe(task, recipe)
    resolved = resolve_recipe(task, path, settings=settings, elmo=elmo, vectors=vectors, untrained=untrained)
    data = read_data(chosen, train=Path(train), dev=Path(dev), test=None if test is None else Path(test))
    run_dir = default_run_dir(path) if run_dir is None else Path(run_dir)
    run_task(chosen, resolved, data, run_dir, report=report, stop=threading.Event())
    return load_task(run_dir / MODEL, expected_task=chosen)


def default_run_dir(recipe: Path) -> Path:
    """Return the folder of a run that was given none."""
    return RUNS / recipe.stem
