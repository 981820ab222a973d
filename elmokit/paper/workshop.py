"""Making one run of the plan on this machine.

ROW/ARM/seed-0-IDENTITY    a task run (see `elmokit.tasks.loop`), removed when it is recorded
tuned/ROW-IDENTITY         biLM tuned on the text of a row; its perplexities in ROW-IDENTITY.json
layers                     layers of the data, for all runs
lock                       held while a process makes runs here
"""

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from elmokit.analysis.datasets import find_dataset
from elmokit.atomic import atomic_file, write_json
from elmokit.encoders.static_vectors import read_static_vectors
from elmokit.errors import InputError
from elmokit.locking import locked
from elmokit.paper.evaluations import cover, evaluate, nearest_words
from elmokit.paper.inputs import Inputs, source_of
from elmokit.paper.perplexities import measure_text
from elmokit.paper.plan import COVERAGE, ENSEMBLE, NEIGHBORS, PERPLEXITY, TASK, TUNING, UNTUNED_ROWS, PaperRun, members
from elmokit.paper.settings import TUNING_SETTINGS
from elmokit.paper.sources import open_source, read_training
from elmokit.pretrain.finetune import finetune
from elmokit.pretrain.recipe import DataSettings
from elmokit.runs.layout import MODEL
from elmokit.tasks.columns import reads_elmo
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData, all_sequences, gather_materials
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Entry, Finished, LayersRead
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import SharedParts, load_task
from elmokit.tasks.task import AnyTask
from elmokit.tasks.task_model import predict_examples
from elmokit.weights.source import has_softmax

LAYERS, TUNED = "layers", "tuned"
Report = Callable[[Entry], None]
Result = dict[str, Any]


@dataclass(eq=False)
class Workshop:
    """Makes runs in a folder."""

    inputs: Inputs
    run_dir: Path
    _last: tuple[str, TaskData] | None = field(default=None, repr=False)  # the dataset read last

    def make(self, run: PaperRun, *, report: Report, stop: threading.Event) -> Result | None:
        """Make or resume a run; return its result, or None if ``stop`` was set before the end."""
        if run.kind == TASK:
            return self._train(run, report, stop)
        if run.kind == ENSEMBLE:
            return self._combine(run)
        if run.kind == TUNING:
            return self._tune(run.row, stop)
        if run.kind == COVERAGE:
            train, dev = find_dataset(run.row).read_text(self.inputs.data_dir)
            return cover(read_static_vectors(self.inputs.vectors), [*train, *dev])
        if run.kind == PERPLEXITY:
            train, dev = find_dataset(run.row).read_text(self.inputs.data_dir)
            text = dev if run.row in UNTUNED_ROWS else [*train, *dev]  # beside the dev texts of tuned rows
            return asdict(measure_text(self.inputs.sources[run.arm], text))
        if run.kind == NEIGHBORS and run.arm == "glove":  # vectors of words, not of their occurrences
            return nearest_words(read_static_vectors(self.inputs.vectors))
        return self._evaluate(run, report, stop)

    def folder(self, run: PaperRun) -> Path:
        """Return the folder of a task run."""
        return run_folder(self.run_dir, run) / f"seed-{run.seed}-{self.inputs.identity(run)}"

    def missing_member(self, run: PaperRun) -> PaperRun | None:
        """Return a member of an ensemble whose model is not here; None if all are."""
        found = (member for member in members(run) if not (self.folder(member) / MODEL).is_dir())
        return next(found, None)

    def _evaluate(self, run: PaperRun, report: Report, stop: threading.Event) -> Result | None:
        """Evaluate the layers of an encoder; an interrupted evaluation starts again."""

        def progress(num_tokens: int) -> None:
            report(LayersRead(num_tokens, 0))
            if stop.is_set():
                raise _Stopped

        source = open_source(run.arm, self.inputs.sources, str(self.inputs.vectors))
        try:
            result = evaluate(run, source, self.inputs.files(run.row), progress=progress)
        except _Stopped:
            return None
        training = read_training(run.arm, self.inputs.sources)
        return result if training is None else {**result, "training": training}

    # Tasks

    def _train(self, run: PaperRun, report: Report, stop: threading.Event) -> Result | None:
        source = source_of(run)
        model = self._tuned_model(run.row, stop) if source == "tuned" else self.inputs.sources.get(_base(source))
        if source == "tuned" and model is None:
            return None
        recipe = with_paths(self.inputs.recipes.recipe(run), vectors=str(self.inputs.vectors), model=model)
        dataset = find_dataset(run.row)
        task, data, folder = get_task(dataset.task), self._read(run.row), self.folder(run)
        layers_dir = None if source == "untrained" else self.run_dir / LAYERS
        if layers_dir is not None and reads_elmo(recipe) and not recipe.elmo.train:
            try:
                self._compute_layers(task, recipe, data, layers_dir, report, stop)
            except _Stopped:
                return None
        finished = run_task(task, recipe, data, folder, report=report, stop=stop, layers_dir=layers_dir)
        return None if finished is None else to_result(finished, metric=dataset.metric)

    def _compute_layers(
        self, task: AnyTask, recipe: TaskRecipe, data: TaskData, layers_dir: Path, report: Report, stop: threading.Event
    ) -> None:
        """Compute all layers of a run before it starts. Processes take turns, because one at a time may add layers."""
        materials = gather_materials(task, recipe, data, layers_dir)
        assert materials.layers is not None
        assert data.read_test is not None
        examples = [*materials.train, *materials.dev, *data.read_test()]

        def progress(done: int, total: int) -> None:
            report(LayersRead(done, total))
            if stop.is_set():
                raise _Stopped

        layers_dir.mkdir(parents=True, exist_ok=True)
        with locked(layers_dir, work="computing layers in it", wait=True):
            materials.layers.add(all_sequences(task, examples), progress=progress)

    def _read(self, row: str) -> TaskData:
        """Read a dataset and cache it, because its other arms usually come next."""
        if self._last is None or self._last[0] != row:
            self._last = None  # frees the old one before the new one is read
            dataset = find_dataset(row)
            data = dataset.read(get_task(dataset.task), *self.inputs.files(row))
            assert data.read_test is not None
            self._last = row, replace(data, read_test=cache(data.read_test))
        return self._last[1]

    def _combine(self, run: PaperRun) -> Result:
        missing = self.missing_member(run)
        if missing is not None:
            raise InputError(f"{self.folder(missing)}: has no model; an ensemble needs the models of all its members")
        shared, data = SharedParts(), self._read(run.row)
        dataset = find_dataset(run.row)
        task = get_task(dataset.task)
        models = [load_task(self.folder(one) / MODEL, expected_task=task, shared=shared) for one in members(run)]
        assert data.read_test is not None
        parts = {"dev": data.dev, "test": data.read_test()}
        return {name: task.score(examples, predict_examples(models, examples)) for name, examples in parts.items()} | {
            "metric": dataset.metric
        }

    # The biLM on a row's own text

    def _tuned_model(self, row: str, stop: threading.Event) -> str | None:
        return None if self._tune(row, stop) is None else str(self._tuned_folder(row))

    def _tuned_folder(self, row: str) -> Path:
        return self.run_dir / TUNED / f"{row}-{self.inputs.identity(PaperRun(TUNING, row, 'bilm'))}"

    def _tune(self, row: str, stop: threading.Event) -> Result | None:
        """Tune the biLM on the text of a row, unless it was done before; return the perplexities of the dev text."""
        folder = self._tuned_folder(row)
        done = folder.with_name(f"{folder.name}.json")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent, work="tuning a biLM in it", wait=True):
            if done.exists():
                result: Result = json.loads(done.read_bytes())
                return result
            shutil.rmtree(folder, ignore_errors=True)  # tuned, but its result was not written
            texts = [folder.with_name(f"{folder.name}.{part}.txt") for part in ("train", "dev")]
            for path, sentences in zip(texts, find_dataset(row).read_text(self.inputs.data_dir), strict=True):
                _write_text(path, sentences)
            tuned = finetune(
                self.inputs.sources["bilm"],
                DataSettings(train=(str(texts[0]),), heldout=(str(texts[1]),), tokenized=True),
                folder,
                settings=TUNING_SETTINGS,
                stop=stop,
            )
            if not tuned.is_finished:
                return None
            assert tuned.before is not None
            assert tuned.after is not None
            result = {"before": asdict(tuned.before), "after": asdict(tuned.after), "num_steps": tuned.num_steps}
            if row == "squad":
                result["questions"] = self._measure_questions(folder)
            write_json(done, result)
            for path in texts:
                path.unlink()
        return result

    def _measure_questions(self, tuned: Path) -> Result:
        """Return the perplexity of SQuAD's dev questions before and after tuning on the paragraphs.

        A biLM without an output layer has none before.
        """
        questions = find_dataset("squad").read_questions(self.inputs.data_dir)
        source = self.inputs.sources["bilm"]
        models = {"before": source} if has_softmax(source) else {}
        models["after"] = str(tuned)
        found = {when: measure_text(model, questions) for when, model in models.items()}
        return {when: {"perplexity": one.arithmetic_mean, **asdict(one)} for when, one in found.items()}


def run_folder(run_dir: Path, run: PaperRun) -> Path:
    """Return the folder of an arm's runs."""
    share = "" if run.fraction == 1 else f"-{run.fraction:g}"
    return run_dir / run.row / f"{run.arm}{share}"


def with_paths(recipe: TaskRecipe, *, vectors: str, model: str | None) -> TaskRecipe:
    """Return a recipe with paths in place of its placeholders."""
    changes: dict[str, Any] = {}
    if recipe.words.file is not None:
        changes["words"] = recipe.words.model_copy(update={"file": vectors})
    if recipe.elmo.model is not None:
        changes["elmo"] = recipe.elmo.model_copy(update={"model": model})
    return recipe.model_copy(update=changes)


def to_result(finished: Finished, *, metric: str) -> Result:
    """Return the result of a task run as JSON values; of the dev curve only steps and the metric."""
    result = asdict(finished)
    curve = [[point.step, point.scores[metric]] for point in finished.dev_curve or []]
    return {**result, "metric": metric, "dev_curve": curve}


class _Stopped(Exception):  # noqa: N818  not an error
    """Raised to stop an encoder from reading."""


def _base(source: str) -> str:
    return "bilm" if source == "untrained" else source


def _write_text(path: Path, sentences: Sequence[Sequence[str]]) -> None:
    with atomic_file(path) as new:
        new.write_text("".join(f"{' '.join(tokens)}\n" for tokens in sentences), "utf-8")
