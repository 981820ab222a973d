"""The paper's Table 1 on data that is at hand: six tasks, each without ELMo, with it, and with an untrained biLM.

Every run is a task run of its own, below one folder:

    NAME/ARM/seed-0   a task run (see `elmokit.tasks.loop`), and facts.json: its sizes, and what it ran on
    layers            what the biLM gives all that is read, for all runs
    untrained-layers  the same of the untrained biLMs, one a seed; removed when no run needs it any more
    inputs.json       the hashes of all that the table is made from
    lock              held as long as a process works here

The arms of a row differ in ELMo alone. Runs are made seed by seed, so that half a table already says something.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from elmokit.analysis.datasets import DataSet
from elmokit.atomic import write_json
from elmokit.errors import ConfigError, InputError, MissingExtraError, OutputError
from elmokit.locking import locked
from elmokit.runs.layout import MODEL
from elmokit.runs.provenance import gather_facts
from elmokit.tasks.loop import RESULT, train_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import Entry, Finished, TaskPlan
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
    """What of a run its result does not tell."""

    num_train: int  # that the recipe leaves of them
    num_dev: int
    num_test: int
    num_parameters: int  # that are learned
    machine: str
    versions: str
    kernels: str
    commit: str  # of the code as it was when the process began
    date: str


@dataclass(frozen=True)
class Failed:
    """Why a run ended before its time."""

    message: str


Report = Callable[[TableRun, Entry | Failed], None]


def plan_runs(
    datasets: Sequence[DataSet], recipes: Mapping[str, TaskRecipe], run_dir: Path, *, bilm: str, num_seeds: int
) -> list[TableRun]:
    """All runs of a table in the order in which they are made. ``recipes`` are those of the tasks, by name."""
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
    """The recipe of an arm. Nothing but ELMo differs from the others."""
    if base.elmo.place == "none":
        raise ConfigError(f"the recipe of {base.task} has elmo.place none; say in it where ELMo goes")
    elmo = base.elmo.model_copy(update={"model": bilm, "untrained": arm == UNTRAINED})
    if arm == BASELINE:
        elmo = ElmoSettings(place="none")
    training = base.training.model_copy(update={"seed": seed})
    return base.model_copy(update={"elmo": elmo, "training": training})


def run_folder(run_dir: Path, dataset: DataSet, arm: str, seed: int) -> Path:
    """Where a run is."""
    return run_dir / dataset.name / arm / f"seed-{seed}"


def run_table(
    runs: Sequence[TableRun], data_dir: Path, run_dir: Path, *, report: Report, stop: threading.Event
) -> bool:
    """Make all runs that are not finished; return False if ``stop`` came before the end.

    A run that fails is reported, and the next one begins.
    """
    facts = gather_facts([])
    with _claimed(run_dir):
        _check_inputs(runs, data_dir, run_dir / INPUTS)
        read = _DataInTurn(data_dir)
        for place, run in enumerate(runs):
            if stop.is_set():
                return False
            finished = read_result(run.folder, run.recipe)
            if finished is not None:
                report(run, finished)
            elif read_result(run.folder) is not None:  # to go on with it would give a run of two recipes
                report(run, Failed(f"{run.folder}: is a finished run of another recipe; remove it to run it anew"))
            elif not _make_run(run, read, run_dir, facts, report=report, stop=stop):
                return False
            if not any((other.arm, other.seed) == (UNTRAINED, run.seed) for other in runs[place + 1 :]):
                # Every seed has an untrained biLM of its own, and layers are large.
                shutil.rmtree(_untrained_layers(run_dir, run.seed), ignore_errors=True)
    return True


def read_result(folder: Path, recipe: TaskRecipe | None = None) -> Finished | None:
    """How a run ended; None if it did not yet, or not by the recipe given."""
    try:
        result = json.loads((folder / RESULT).read_bytes())
        if not (folder / MODEL).is_dir() or (recipe and not same_recipe(result["recipe"], recipe)):
            return None
        return Finished(**{field.name: result[field.name] for field in fields(Finished)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder / RESULT, error) from error


def read_facts(folder: Path) -> RunFacts:
    """What a finished run wrote down of itself."""
    try:
        return RunFacts(**json.loads((folder / FACTS).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(folder / FACTS, error) from error


def read_inputs(run_dir: Path) -> dict[str, str]:
    """What a table is made from: names, and descriptions with hashes."""
    try:
        inputs: dict[str, str] = json.loads((run_dir / INPUTS).read_bytes())
    except FileNotFoundError:
        raise InputError(f"{run_dir}: no table was begun there; check the path, seen from {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise _damaged(run_dir / INPUTS, error) from error
    return inputs


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be read ({error}); remove the folder that it is in, and run it again")


@contextmanager
def _claimed(run_dir: Path) -> Iterator[None]:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{run_dir}: cannot be written: {error.strerror}; name another folder") from error
    with locked(run_dir, work="making a table in it"):
        yield


class _DataInTurn:
    """Reads data sets, and keeps the last one: all arms of a seed read it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._last: tuple[str, TaskData] | None = None

    def __call__(self, dataset: DataSet) -> TaskData:
        if self._last is None or self._last[0] != dataset.name:
            self._last = None  # the old one need not be in memory while the new one is read
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
    """Begin a run or go on with it; return False if ``stop`` came before its end."""
    plan: TaskPlan | None = None

    def hear(entry: Entry) -> None:
        nonlocal plan
        plan = entry if isinstance(entry, TaskPlan) else plan
        report(run, entry)

    layers_dir = _untrained_layers(run_dir, run.seed) if run.arm == UNTRAINED else run_dir / LAYERS
    try:
        data = read(run.dataset)

        def read_test() -> Sequence[Any]:
            assert data.read_test is not None
            assert plan is not None
            examples = data.read_test()
            _write_facts(run.folder, plan, facts, num_test=len(examples))
            return examples

        noted = replace(data, read_test=read_test)
        task = get_task(run.dataset.task)
        model = train_task(task, run.recipe, noted, run.folder, report=hear, stop=stop, layers_dir=layers_dir)
    except (ConfigError, InputError, MissingExtraError) as error:
        told = str(error)
        report(run, Failed(told if told.startswith(str(run.folder)) else f"{run.folder}: {told}"))
        return True
    except (RuntimeError, MemoryError) as error:  # torch's: one run less is no reason to lose a night
        report(run, Failed(f"{run.folder}: {type(error).__name__}: {error}"))
        return True
    return model is not None


def _untrained_layers(run_dir: Path, seed: int) -> Path:
    return run_dir / UNTRAINED_LAYERS / f"seed-{seed}"


def _write_facts(folder: Path, plan: TaskPlan, facts: Mapping[str, str], *, num_test: int) -> None:
    of_run = RunFacts(
        num_train=plan.num_examples,
        num_dev=plan.num_dev,
        num_test=num_test,
        num_parameters=plan.num_parameters,
        **{name: facts[name] for name in ("machine", "versions", "kernels", "commit")},
        date=date.today().isoformat(),
    )
    write_json(folder / FACTS, asdict(of_run))


def _check_inputs(runs: Sequence[TableRun], data_dir: Path, path: Path) -> None:
    """Refuse to mix results of different data or models in one table."""
    before = read_inputs(path.parent) if path.exists() else {}
    now = _describe_inputs(runs, data_dir)
    for name in before.keys() & now.keys():
        if _content(before[name]) != _content(now[name]):
            raise ConfigError(
                f"{path.parent}: the table there has another {name} ({before[name]}, now {now[name]}); "
                "name another folder for the runs, or give what it was begun with"
            )
    write_json(path, before | now)


def _content(description: str) -> str:
    """A description without the name of a model's folder, which may be another by now."""
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
