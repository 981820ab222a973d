"""A task run, from examples to a saved model, in reading order.

A run is a folder. To start the same run again is to go on with it, and it ends with the same bits as one that was never
broken:

    recipe.json    what was asked for
    log.jsonl      losses, scores on development data, and at the end on test data; also as curves in tensorboard
    checkpoints    the newest states of the run, the best weights so far among them
    layers         the biLM's layers of all that is read, unless they are kept elsewhere
    model          the model with the best weights, at the end of the run
    result.json    how it ended
    lock           held as long as a process works here
"""

import json
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from elmokit.atomic import remove_leftovers, write_json
from elmokit.errors import ConfigError, ElmokitWarning, InputError
from elmokit.runs.checkpoint import Checkpoint, clear_unfinished, load_newest
from elmokit.runs.claim import claimed
from elmokit.runs.journal import Journal, open_journal
from elmokit.runs.layout import CHECKPOINTS, MODEL, RECIPE
from elmokit.runs.saving import background_writer
from elmokit.runs.seeds import seeded
from elmokit.runs.world import ALONE
from elmokit.tasks.batches import TrainingBatches, prefetched
from elmokit.tasks.evaluation import evaluate, predict, warn_of_unknown_labels
from elmokit.tasks.materials import Materials, TaskData, all_sequences, gather_materials
from elmokit.tasks.optimizer import learned_parameters
from elmokit.tasks.progress import (
    DevScores,
    Finished,
    LayersRead,
    Logged,
    Report,
    TaskPlan,
    TaskStep,
    curve_values,
)
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.resume_check import check_resume, examples_fingerprint, same_recipe
from elmokit.tasks.saved import SavedTask, build_model, save_task_model
from elmokit.tasks.state import START, LearnedStep, Learner
from elmokit.tasks.task import AnyTask

LAYERS, RESULT = "layers", "result.json"

LOG_EVERY = 20  # steps that a line of the log is the mean of
SECONDS_AT_RISK = 600.0  # of work that a crash may cost, between two looks at the development data
NUM_CHECKPOINTS = 2


def train_task(
    task: AnyTask,
    recipe: TaskRecipe,
    data: TaskData,
    run_dir: str | Path,
    *,
    report: Report,
    stop: threading.Event,
    layers_dir: str | Path | None = None,
) -> Path | None:
    """Learn a task as the recipe says; return the model's folder, or None if ``stop`` came before the end.

    Goes on with what the run's folder has; a run that is finished is left as it is, unless the recipe now asks for
    other epochs or patience. ``layers_dir`` is where the biLM's layers are kept, for other runs to share; the run's own
    folder by default.
    """
    run_dir = Path(run_dir)
    with claimed(run_dir, ALONE):
        remove_leftovers(run_dir)
        materials = gather_materials(task, recipe, data, run_dir / LAYERS if layers_dir is None else Path(layers_dir))
        batches = TrainingBatches(task, materials.train, materials.labels, materials.columns, recipe.training)
        newest = _find_newest(run_dir, materials, num_steps=recipe.training.epochs * batches.per_epoch)
        if newest is not None and (finished := _finished_before(run_dir, task, recipe, data)) is not None:
            report(finished)
            return run_dir / MODEL
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        warn_of_unknown_labels(task, materials.labels, materials.dev, source="development data")
        if not _read_layers(task, materials, [*materials.train, *materials.dev], report=report, stop=stop):
            return None
        learner = _begin(task, recipe, materials, batches)
        if newest is not None:
            learner.restore(newest)
        report(_plan(task, learner, materials))
        with open_journal(run_dir, from_step=learner.step, curve_values=curve_values, report=report) as journal:
            _learn(task, learner, batches, materials, run_dir / CHECKPOINTS, journal, stop=stop)
            if learner.is_over and _finish(task, learner, materials, data, run_dir, journal, report=report, stop=stop):
                return run_dir / MODEL
    return None


def _find_newest(run_dir: Path, materials: Materials, *, num_steps: int) -> Checkpoint | None:
    """The run's newest checkpoint, if there is one; what it cannot go on with is refused."""
    folder = run_dir / CHECKPOINTS
    clear_unfinished(folder)
    newest = load_newest(folder)
    if newest is None:
        return None
    check_resume(newest.facts["follows"], materials.origin, folder=run_dir)
    if newest.step > num_steps:
        epochs = materials.columns.recipe.training.epochs
        raise ConfigError(
            f"{run_dir}: the run there has taken {newest.step:,} steps, and {num_steps:,} are all of training.epochs = "
            f"{epochs}; give more epochs, or name another run folder"
        )
    return newest


def _read_layers(
    task: AnyTask, materials: Materials, examples: Sequence[Any], *, report: Report, stop: threading.Event
) -> bool:
    """Let the biLM read what it has not yet; return whether it came to the end."""
    if materials.layers is None:
        return True

    def progress(num_done: int, num_tokens: int) -> None:
        report(LayersRead(num_done, num_tokens))
        if stop.is_set():
            raise _Stopped

    try:
        materials.layers.add(all_sequences(task, examples), progress=progress)
    except _Stopped:
        return False
    return True


def _begin(task: AnyTask, recipe: TaskRecipe, materials: Materials, batches: TrainingBatches) -> Learner:
    with seeded(recipe.training.seed, START):
        model = build_model(task, recipe, materials.labels, materials.columns)
    return Learner(model, recipe.training, steps_per_epoch=batches.per_epoch, metric=task.metric)


def _learn(
    task: AnyTask,
    learner: Learner,
    batches: TrainingBatches,
    materials: Materials,
    checkpoints: Path,
    journal: Journal[Logged],
    *,
    stop: threading.Event,
) -> None:
    """Learn up to a look at the development data, look, save, and so on."""
    watch = _Stopwatch()
    with background_writer(checkpoints, keep=NUM_CHECKPOINTS, log=journal.log) as writer:
        while not (learner.is_over or stop.is_set()):
            look_after, save_by = learner.next_look, time.monotonic() + SECONDS_AT_RISK
            steps: list[LearnedStep] = []
            # Batches are made ahead up to the look only: no other thread reads columns while it predicts.
            for batch in prefetched(batches.make, range(learner.step, look_after)):
                steps.append(learner.learn(batch))
                writer.raise_if_failed()
                must_pause = stop.is_set() or time.monotonic() > save_by
                if len(steps) == LOG_EVERY or must_pause or learner.step == look_after:
                    journal.write(_summary(learner, steps, len(materials.train), watch.lap()))
                    steps = []
                if must_pause:
                    break
            if learner.step == look_after:
                journal.write(_look(task, learner, materials))
                learner.seconds += watch.lap()
            writer.save(learner.checkpoint(materials.origin))


def _look(task: AnyTask, learner: Learner, materials: Materials) -> DevScores:
    with learner.evaluated_weights():
        predictions = predict(
            task,
            learner.model,
            materials.columns,
            materials.labels,
            materials.dev,
            batch_size=learner.settings.batch_size,
        )
        scores = task.score(materials.dev, predictions)
        is_best = learner.note(scores)
    return DevScores(learner.step, learner.epoch, scores, is_best)


def _finish(
    task: AnyTask,
    learner: Learner,
    materials: Materials,
    data: TaskData,
    run_dir: Path,
    journal: Journal[Logged],
    *,
    report: Report,
    stop: threading.Event,
) -> bool:
    """Test the best weights, and save them; return False if ``stop`` came before that."""
    if learner.best is None:  # epochs were taken off the recipe up to here, and the first look with them
        journal.write(_look(task, learner, materials))
    best, recipe = learner.best, materials.columns.recipe
    assert best is not None
    learner.model.load_state_dict(best.weights)
    test = test_data = None
    if data.read_test is not None:
        try:
            examples = data.read_test()
        except InputError as error:
            raise InputError(
                f"{error}; what was learned is kept, and the same command goes on with the test"
            ) from error
        test_data = examples_fingerprint(task, examples, None)
        if not _read_layers(task, materials, examples, report=report, stop=stop):
            return False
        test = evaluate(
            task,
            learner.model,
            materials.columns,
            materials.labels,
            examples,
            batch_size=recipe.training.batch_size,
            source="test data",
        )
    finished = Finished(learner.step, best.step, best.scores, test, learner.seconds, recipe.training.seed)
    _save(task, materials, finished, best.weights, run_dir / MODEL)
    journal.write(finished)
    result = {"task": task.name, **asdict(finished), "test_data": test_data, "recipe": recipe.model_dump(mode="json")}
    write_json(run_dir / RESULT, result)
    return True


def _save(task: AnyTask, materials: Materials, finished: Finished, weights: dict[str, Tensor], folder: Path) -> None:
    saved = SavedTask(
        task=task,
        recipe=materials.columns.recipe,
        labels=materials.labels,
        vocab=materials.vocab,
        vectors=materials.vectors,
        bilm=materials.bilm,
        weights=weights,
    )
    scores = {f"Development {name}": value for name, value in finished.dev.items()}
    scores |= {f"Test {name}": value for name, value in (finished.test or {}).items()}
    save_task_model(saved, folder, scores=scores)


def _finished_before(run_dir: Path, task: AnyTask, recipe: TaskRecipe, data: TaskData) -> Finished | None:
    """How the run ended, if an earlier piece of it has done all that is asked for, the test too."""
    try:
        result = json.loads((run_dir / RESULT).read_bytes())
        if not same_recipe(result["recipe"], recipe) or not (run_dir / MODEL).is_dir():
            return None
        if data.read_test is not None and result["test_data"] != examples_fingerprint(task, data.read_test(), None):
            if result["test_data"] is not None:
                warnings.warn(
                    f"{run_dir}: was tested on other data before; the scores on these take the place of those",
                    ElmokitWarning,
                    stacklevel=3,
                )
            return None
        return Finished(**{field.name: result[field.name] for field in fields(Finished)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plan(task: AnyTask, learner: Learner, materials: Materials) -> TaskPlan:
    return TaskPlan(
        step=learner.step,
        num_steps=learner.num_steps,
        seconds=learner.seconds,
        num_examples=len(materials.train),
        num_dev=len(materials.dev),
        num_parameters=sum(parameter.numel() for parameter in learned_parameters(learner.model).values()),
        metric=task.metric,
        best=None if learner.best is None else learner.best.scores[task.metric],
    )


def _summary(learner: Learner, steps: list[LearnedStep], num_examples: int, seconds: float) -> TaskStep:
    learner.seconds += seconds
    return TaskStep(
        step=learner.step,
        epoch=learner.epoch,
        loss=sum(step.loss for step in steps) / len(steps),
        gradient_norm=sum(step.gradient_norm for step in steps) / len(steps),
        learning_rate=steps[-1].learning_rate,
        examples_per_second=len(steps) * num_examples / learner.steps_per_epoch / max(seconds, 1e-9),
        seconds=learner.seconds,
    )


class _Stopped(Exception):  # noqa: N818  no error
    """The biLM was asked to stop reading."""


class _Stopwatch:
    def __init__(self) -> None:
        self._mark = time.monotonic()

    def lap(self) -> float:
        """Seconds since the lap before."""
        before, self._mark = self._mark, time.monotonic()
        return self._mark - before
