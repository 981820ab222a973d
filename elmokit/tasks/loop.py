"""The loop of a task run, in reading order: from examples to a saved model.

A run is a folder. Starting the same run again resumes it, and it ends with the same bits as an uninterrupted one:

    recipe.json    recipe of the run
    log.jsonl      losses, dev scores, and at the end test scores; also as curves in tensorboard
    checkpoints    newest states of the run, each with the best weights so far
    layers         biLM layers of the data, unless they are cached elsewhere
    model          model with the best weights, at the end of the run
    result.json    result of the run: scores, sizes, dev curve, trained mixes
    lock           held while a process works here
"""

import json
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from elmokit.atomic import remove_leftovers, write_json
from elmokit.errors import ConfigError, ElmokitWarning, InputError
from elmokit.runs.checkpoint import Checkpoint, clear_unfinished, facts_explained, load_newest
from elmokit.runs.claim import claimed
from elmokit.runs.journal import Journal, open_journal
from elmokit.runs.layout import CHECKPOINTS, MODEL, RECIPE
from elmokit.runs.saving import background_writer
from elmokit.runs.seeds import seeded
from elmokit.runs.world import ALONE
from elmokit.tasks.batches import TrainingBatches, num_batches, prefetched
from elmokit.tasks.inputs import mix_weights
from elmokit.tasks.materials import Materials, TaskData, all_sequences, gather_materials
from elmokit.tasks.optimizer import TRAINED, learned_parameters
from elmokit.tasks.progress import (
    DevScores,
    Finished,
    LayersRead,
    Logged,
    Report,
    RunSizes,
    TaskPlan,
    TaskStep,
    curve_values,
    finished_from_json,
)
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.resume_check import check_resume, examples_fingerprint, same_recipe
from elmokit.tasks.saved import SavedTask, save_task
from elmokit.tasks.state import START, StepLoss, TaskState
from elmokit.tasks.task import AnyTask
from elmokit.tasks.task_model import TaskModel, build_task_model, warn_of_unknown_labels

LAYERS, RESULT = "layers", "result.json"

LOG_EVERY = 20  # steps per log line, which has their means
SAVE_EVERY = 600.0  # seconds at most between two checkpoints
NUM_CHECKPOINTS = 2
FEW_STEPS = 500


def run_task(
    task: AnyTask,
    recipe: TaskRecipe,
    data: TaskData,
    run_dir: str | Path,
    *,
    report: Report,
    stop: threading.Event,
    layers_dir: str | Path | None = None,
) -> Finished | None:
    """Train a task; return the result, or None if ``stop`` was set before the end. The model is in ``MODEL``.

    Resumes the run in the folder. A finished run is left as it is, unless the recipe has other epochs or patience.
    ``layers_dir`` caches the biLM's layers for other runs to share; the run's own folder by default.
    """
    run_dir = Path(run_dir)
    with claimed(run_dir, ALONE):
        remove_leftovers(run_dir)
        materials = gather_materials(task, recipe, data, run_dir / LAYERS if layers_dir is None else Path(layers_dir))
        newest = _find_newest(run_dir, materials)
        if newest is not None and (finished := _finished_before(run_dir, task, recipe, data)) is not None:
            report(finished)
            return finished
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        warn_of_unknown_labels(task, materials.labels, materials.dev, source="dev data")
        if not _read_layers(materials, [*materials.train, *materials.dev], report=report, stop=stop):
            return None
        with seeded(recipe.training.seed, START):
            model = build_task_model(task, recipe, materials.labels, materials.columns)
        batches = TrainingBatches(model, materials.train)
        state = TaskState(
            model.module,
            recipe.training,
            steps_per_epoch=batches.per_epoch,
            metric=task.metric,
            bilm_rate=recipe.elmo.learning_rate,
        )
        if newest is not None:
            with facts_explained(run_dir):
                state.restore(newest)
        report(_plan(state, materials))
        with open_journal(run_dir, from_step=state.step, curve_values=curve_values, report=report) as journal:
            _train(model, state, batches, materials, run_dir / CHECKPOINTS, journal, stop=stop)
            if not state.is_over:
                return None
            return _finish(model, state, materials, data, run_dir, journal, report=report, stop=stop)


def _find_newest(run_dir: Path, materials: Materials) -> Checkpoint | None:
    """Return the newest checkpoint of the run, if any; reject one that this run cannot resume from."""
    folder = run_dir / CHECKPOINTS
    clear_unfinished(folder)
    newest = load_newest(folder)
    if newest is None:
        return None
    with facts_explained(run_dir):
        check_resume(newest.facts["follows"], materials.resume_key, folder=run_dir)
    settings = materials.recipe.training
    num_steps = settings.epochs * num_batches(len(materials.train), settings.batch_size)
    if newest.step > num_steps:
        raise ConfigError(
            f"{run_dir}: the run in this folder has taken {newest.step:,} steps; training.epochs = {settings.epochs} "
            f"has {num_steps:,}; give more epochs, or name another run folder"
        )
    return newest


def _read_layers(materials: Materials, examples: Sequence[Any], *, report: Report, stop: threading.Event) -> bool:
    """Compute the biLM layers that are not cached yet; return False if ``stop`` was set before the end."""
    if materials.layers is None:
        return True

    def progress(num_done: int, num_tokens: int) -> None:
        report(LayersRead(num_done, num_tokens))
        if stop.is_set():
            raise _Stopped

    try:
        materials.layers.add(all_sequences(materials.task, examples), progress=progress)
    except _Stopped:
        return False
    return True


def _train(
    model: TaskModel,
    state: TaskState,
    batches: TrainingBatches,
    materials: Materials,
    checkpoints: Path,
    journal: Journal[Logged],
    *,
    stop: threading.Event,
) -> None:
    """Train up to the next evaluation, evaluate, save; repeat."""
    watch = _Stopwatch()
    with background_writer(checkpoints, keep=NUM_CHECKPOINTS, log=journal.log) as writer:
        while not (state.is_over or stop.is_set()):
            evaluate_after, save_by = state.next_evaluation, time.monotonic() + SAVE_EVERY
            steps: list[StepLoss] = []
            # Batches are made ahead up to the evaluation only: no other thread reads columns while it predicts.
            for batch in prefetched(batches.make, range(state.step, evaluate_after)):
                steps.append(state.train_step(batch))
                writer.raise_if_failed()
                must_pause = stop.is_set() or time.monotonic() > save_by
                if len(steps) == LOG_EVERY or must_pause or state.step == evaluate_after:
                    journal.write(_summary(state, steps, len(materials.train), watch.lap()))
                    steps = []
                if must_pause:
                    break
            if state.step == evaluate_after:
                journal.write(_evaluate_dev(model, state, materials))
                state.seconds += watch.lap()
            writer.save(state.checkpoint(materials.resume_key))


def _evaluate_dev(model: TaskModel, state: TaskState, materials: Materials) -> DevScores:
    with state.evaluated_weights():
        scores = model.task.score(materials.dev, model.predict_examples(materials.dev))
        return state.record_scores(scores)


def _finish(
    model: TaskModel,
    state: TaskState,
    materials: Materials,
    data: TaskData,
    run_dir: Path,
    journal: Journal[Logged],
    *,
    report: Report,
    stop: threading.Event,
) -> Finished | None:
    """Test the best weights and save them; return None if ``stop`` was set before that."""
    if state.best is None:  # the recipe now has fewer epochs, and the first evaluation went with them
        journal.write(_evaluate_dev(model, state, materials))
    best, recipe = state.best, materials.recipe
    assert best is not None
    _warn_if_untrained(best.scores[model.task.metric], state)
    model.module.load_state_dict(best.weights)
    examples = None if data.read_test is None else _read_test(data)
    test = None
    if examples is not None:
        if not _read_layers(materials, examples, report=report, stop=stop):
            return None
        test = model.evaluate_examples(examples, source="test data")
    finished = Finished(
        step=state.step,
        best_step=best.step,
        dev=best.scores,
        test=test,
        seconds=state.seconds,
        seed=recipe.training.seed,
        sizes=RunSizes(
            num_train=len(materials.train),
            num_dev=len(materials.dev),
            num_test=None if examples is None else len(examples),
            num_parameters=_count_trained(state),
        ),
        dev_curve=state.dev_curve,
        mixes=mix_weights(model.module),
    )
    _save(materials, finished, best.weights, run_dir / MODEL)
    journal.write(finished)
    result = {
        "task": model.task.name,
        **asdict(finished),
        "test_data": None if examples is None else examples_fingerprint(model.task, examples, None),
        "recipe": recipe.model_dump(mode="json"),
    }
    write_json(run_dir / RESULT, result)
    return finished


def _read_test(data: TaskData) -> Sequence[Any]:
    assert data.read_test is not None
    try:
        return data.read_test()
    except InputError as error:
        raise InputError(
            f"{error}; the trained weights are saved, and the same command resumes with the test"
        ) from error


def _warn_if_untrained(dev_score: float, state: TaskState) -> None:
    if dev_score > 0:
        return
    advice = "check that the dev data has the labels of the training data, or lower training.learning_rate"
    if state.step < FEW_STEPS:
        advice = "so few steps rarely train a model: give more training.epochs or more data, or a smaller batch_size"
    warnings.warn(
        f"the best dev {state.metric} is 0 after {state.step:,} steps; {advice}", ElmokitWarning, stacklevel=4
    )


def _save(materials: Materials, finished: Finished, weights: dict[str, Tensor], folder: Path) -> None:
    """Save the model, whose module has the best weights. A biLM that was trained is saved as one, not as weights."""
    trained = materials.columns.trained
    saved = SavedTask(
        task=materials.task,
        recipe=materials.recipe,
        labels=materials.labels,
        vocab=materials.vocab,
        vectors=materials.vectors,
        source=materials.source if trained is None else trained.to_embedder(),
        weights={name: weight for name, weight in weights.items() if not name.startswith(TRAINED)},
    )
    scores = {f"Dev {name}": value for name, value in finished.dev.items()}
    scores |= {f"Test {name}": value for name, value in (finished.test or {}).items()}
    save_task(saved, folder, scores=scores)


def _finished_before(run_dir: Path, task: AnyTask, recipe: TaskRecipe, data: TaskData) -> Finished | None:
    """Return the result in the folder if it is of this recipe and, if asked for, of this test data."""
    try:
        result = json.loads((run_dir / RESULT).read_bytes())
        if not same_recipe(result["recipe"], recipe) or not (run_dir / MODEL).is_dir():
            return None
        if data.read_test is not None and result["test_data"] != examples_fingerprint(task, data.read_test(), None):
            if result["test_data"] is not None:
                warnings.warn(
                    f"{run_dir}: the model was tested on other data before; the new scores replace those",
                    ElmokitWarning,
                    stacklevel=3,
                )
            return None
        return finished_from_json(result)
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return None


def _plan(state: TaskState, materials: Materials) -> TaskPlan:
    return TaskPlan(
        step=state.step,
        num_steps=state.num_steps,
        seconds=state.seconds,
        num_examples=len(materials.train),
        num_dev=len(materials.dev),
        num_parameters=_count_trained(state),
        metric=state.metric,
        best=None if state.best is None else state.best.scores[state.metric],
    )


def _count_trained(state: TaskState) -> int:
    return sum(parameter.numel() for parameter in learned_parameters(state.model).values())


def _summary(state: TaskState, steps: list[StepLoss], num_examples: int, seconds: float) -> TaskStep:
    state.seconds += seconds
    return TaskStep(
        step=state.step,
        epoch=state.epoch,
        loss=sum(step.loss for step in steps) / len(steps),
        gradient_norm=sum(step.gradient_norm for step in steps) / len(steps),
        learning_rate=steps[-1].learning_rate,
        examples_per_second=len(steps) * num_examples / state.steps_per_epoch / max(seconds, 1e-9),
        seconds=state.seconds,
    )


class _Stopped(Exception):  # noqa: N818  not an error
    """Raised to stop the biLM from reading."""


class _Stopwatch:
    def __init__(self) -> None:
        self._mark = time.monotonic()

    def lap(self) -> float:
        """Return the seconds since the lap before."""
        before, self._mark = self._mark, time.monotonic()
        return self._mark - before
