"""The paper's Table 1 on available data: six tasks, each without ELMo, with it, and with an untrained biLM.

Every run is a task run of its own, below one folder:

    NAME/ARM/seed-0   a task run (see `elmokit.tasks.loop`), and facts.json: its sizes, machine, versions, commit
    layers            biLM layers of the data, for all runs
    untrained-layers  layers of the untrained biLMs, one per seed; removed when no run needs them any more
    inputs.json       hashes of the data, the static vectors and the biLM
    lock              held while a process works here

The arms of a row differ in ELMo alone. Runs are made seed by seed, so that half a table is already useful.
"""

import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from elmokit.analysis.datasets import DataSet
from elmokit.atomic import write_json
from elmokit.errors import ConfigError, InputError, MissingExtraError
from elmokit.runs.claim import claimed
from elmokit.runs.layout import MODEL
from elmokit.runs.provenance import gather_facts
from elmokit.runs.world import ALONE
from elmokit.tasks.loop import RESULT, run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Entry, Finished, finished_from_json
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe
from elmokit.tasks.resume_check import same_recipe
from elmokit.weights.source import file_hashes, load_saved
from elmokit.weights.sums import SHORT_HASH, sha256

ARMS = BASELINE, UNTRAINED, ELMO = ("baseline", "untrained", "elmo")
FOLDER_ENDS = ": "  # in the description of a biLM
FACTS, INPUTS, LAYERS, UNTRAINED_LAYERS = "facts.json", "inputs.json", "layers", "untrained-layers"


@dataclass(frozen=True)
class TableRun:
    """One run of the table."""

    dataset: DataSet
    arm: str
    seed: int
    recipe: TaskRecipe
    folder: Path

    def __str__(self) -> str:
        return f"{self.dataset.name}, {self.arm}, seed {self.seed}"


@dataclass(frozen=True)
class RunFacts:
    """Run metadata beside the scores: sizes, machine, versions, commit."""

    num_train: int  # after the recipe's limits
    num_dev: int
    num_test: int
    num_parameters: int  # that are trained
    machine: str
    versions: str
    kernels: str
    commit: str  # of the code when the process started
    date: str


@dataclass(frozen=True)
class FinishedRun:
    """A finished run with its metadata."""

    finished: Finished
    facts: RunFacts
    result: dict[str, Any]
    """Content of result.json, the recipe among it."""


@dataclass(frozen=True)
class Failed:
    """Reason why a run failed."""

    message: str


Report = Callable[[TableRun, Entry | Failed], None]


def plan_runs(
    datasets: Sequence[DataSet], recipes: Mapping[str, TaskRecipe], run_dir: Path, *, bilm: str, num_seeds: int
) -> list[TableRun]:
    """Return all runs of a table in the order in which they are made. ``recipes`` are those of the tasks, by name."""
    return [
        TableRun(
            dataset,
            arm,
            seed,
            make_recipe(recipes[dataset.task], arm, bilm=bilm, seed=seed),
            run_folder(run_dir, dataset, arm, seed),
        )
        for seed in range(num_seeds)
        for dataset in datasets
        for arm in ARMS
    ]


def make_recipe(base: TaskRecipe, arm: str, *, bilm: str, seed: int) -> TaskRecipe:
    """Return the recipe of an arm. Arms differ in ELMo alone."""
    if base.elmo.place == "none":
        raise ConfigError(f"the recipe of {base.task} has elmo.place = none; set the place of ELMo in it")
    elmo = base.elmo.model_copy(update={"model": bilm, "untrained": arm == UNTRAINED})
    if arm == BASELINE:
        elmo = ElmoSettings(place="none")
    training = base.training.model_copy(update={"seed": seed})
    return base.model_copy(update={"elmo": elmo, "training": training})


def run_folder(run_dir: Path, dataset: DataSet, arm: str, seed: int) -> Path:
    """Return the folder of a run."""
    return run_dir / dataset.name / arm / f"seed-{seed}"


def run_table(
    runs: Sequence[TableRun], data_dir: Path, run_dir: Path, *, report: Report, stop: threading.Event
) -> bool:
    """Make all runs that are not finished; return False if ``stop`` was set before the end.

    A run that fails is reported, and the next one starts.
    """
    facts = gather_facts([])
    with claimed(run_dir, ALONE, work="making a table in it"):
        _check_inputs(runs, data_dir, run_dir / INPUTS)
        read = _DatasetCache(data_dir)
        for index, run in enumerate(runs):
            if stop.is_set():
                return False
            before = read_run(run.folder)
            if before is None:
                if not _make_run(run, read, run_dir, facts, report=report, stop=stop):
                    return False
            elif same_recipe(before.result["recipe"], run.recipe):
                report(run, before.finished)
            else:  # resuming it would mix two recipes
                report(run, Failed(f"{run.folder}: is a finished run of another recipe; remove it to run it anew"))
            if not any((other.arm, other.seed) == (UNTRAINED, run.seed) for other in runs[index + 1 :]):
                # Every seed has its own untrained biLM, and layers are large.
                shutil.rmtree(_untrained_layers(run_dir, run.seed), ignore_errors=True)
    return True


def read_run(folder: Path) -> FinishedRun | None:
    """Return a finished run; None if it is not finished."""
    path = folder / RESULT
    try:
        result = json.loads(path.read_bytes())
        finished = finished_from_json(result)
        path = folder / FACTS
        facts = RunFacts(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    return FinishedRun(finished, facts, result) if (folder / MODEL).is_dir() else None


def read_inputs(run_dir: Path) -> dict[str, str]:
    """Return the inputs of a table: names, and descriptions with hashes."""
    try:
        inputs: dict[str, str] = json.loads((run_dir / INPUTS).read_bytes())
    except FileNotFoundError:
        raise InputError(f"{run_dir}: no table in this folder; check the path, seen from {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise _damaged(run_dir / INPUTS, error) from error
    return inputs


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be read ({error}); remove the folder that it is in, and run it again")


class _DatasetCache:
    """Reads datasets and caches the last one, which all arms of a seed read."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._last: tuple[str, TaskData] | None = None

    def __call__(self, dataset: DataSet) -> TaskData:
        if self._last is None or self._last[0] != dataset.name:
            self._last = None  # frees the old one before the new one is read
            paths = dataset.find_files(self._data_dir)
            self._last = dataset.name, dataset.read(get_task(dataset.task), *paths)
        return self._last[1]


def _make_run(
    run: TableRun,
    read: Callable[[DataSet], TaskData],
    run_dir: Path,
    facts: Mapping[str, str],
    *,
    report: Report,
    stop: threading.Event,
) -> bool:
    """Start or resume a run; return False if ``stop`` was set before its end."""
    layers_dir = _untrained_layers(run_dir, run.seed) if run.arm == UNTRAINED else run_dir / LAYERS
    try:
        finished = run_task(
            get_task(run.dataset.task),
            run.recipe,
            read(run.dataset),
            run.folder,
            report=partial(report, run),
            stop=stop,
            layers_dir=layers_dir,
        )
        if finished is not None:
            _write_facts(run.folder, finished, facts)
    except (ConfigError, InputError, MissingExtraError) as error:
        message = str(error)
        report(run, Failed(message if message.startswith(str(run.folder)) else f"{run.folder}: {message}"))
        return True
    except (RuntimeError, MemoryError) as error:  # torch's: the next runs may still succeed
        report(run, Failed(f"{run.folder}: {type(error).__name__}: {error}"))
        return True
    return finished is not None


def _untrained_layers(run_dir: Path, seed: int) -> Path:
    return run_dir / UNTRAINED_LAYERS / f"seed-{seed}"


def _write_facts(folder: Path, finished: Finished, facts: Mapping[str, str]) -> None:
    if finished.sizes is None:
        raise InputError(f"{folder}: its {FACTS} is missing; remove the folder, and run it again")
    names = ("machine", "versions", "kernels", "commit")
    of_run = asdict(finished.sizes) | {name: facts[name] for name in names} | {"date": date.today().isoformat()}
    write_json(folder / FACTS, asdict(RunFacts(**of_run)))


def _check_inputs(runs: Sequence[TableRun], data_dir: Path, path: Path) -> None:
    """Raise ConfigError if the table was started with other data or models."""
    before = read_inputs(path.parent) if path.exists() else {}
    now = _describe_inputs(runs, data_dir)
    for name in before.keys() & now.keys():
        if _content(before[name]) != _content(now[name]):
            raise ConfigError(
                f"{path.parent}: the table in this folder has a different {name} ({before[name]}, now {now[name]}); "
                "name another folder for the runs, or give the inputs that it was started with"
            )
    write_json(path, before | now)


def _content(description: str) -> str:
    """Return a description without the name of the model's folder, which may have changed."""
    return description.rpartition(FOLDER_ENDS)[2]


def _describe_inputs(runs: Sequence[TableRun], data_dir: Path) -> dict[str, str]:
    datasets = {run.dataset.name: run.dataset for run in runs}
    described = {
        f"data of {name}": ", ".join(map(_hashed, dataset.find_files(data_dir))) for name, dataset in datasets.items()
    }
    for file in {run.recipe.words.file for run in runs} - {None}:
        described["static vectors"] = _hashed(Path(str(file)))
    for model in {run.recipe.elmo.model for run in runs} - {None}:
        described["biLM"] = _describe_bilm(str(model))
    return described


def _describe_bilm(source: str) -> str:
    config = load_saved(source).config
    hashes = ", ".join(f"{name} {value[:SHORT_HASH]}" for name, value in sorted(file_hashes(source).items()))
    return (
        f"{Path(source).name}{FOLDER_ENDS}{config.num_layers} layers of width {config.width}, "
        f"{config.lstm.cell_dim:,} cells; sha256 of {hashes}"
    )


def _hashed(path: Path) -> str:
    try:
        return f"{path.name} (sha256 {sha256(path)[:SHORT_HASH]})"
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path, seen from {Path.cwd()}") from error
