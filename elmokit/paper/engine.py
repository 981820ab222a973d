"""The engine: make all runs of a plan that are not in the file of runs, several at a time.

Every worker is a process with one thread. The parent alone writes the file of runs. A worker whose parent dies saves
its run and ends.
"""

import multiprocessing
import queue
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from elmokit.errors import ConfigError, ElmokitError
from elmokit.paper.plan import BUDGETED, ENSEMBLE, ENSEMBLES, TASK, PaperRun, members
from elmokit.paper.run_file import RunFile, RunRecord
from elmokit.paper.workshop import Result, Workshop
from elmokit.runs.claim import claimed
from elmokit.runs.onednn import use_onednn_products
from elmokit.runs.provenance import gather_facts
from elmokit.runs.world import ALONE
from elmokit.tasks.progress import Entry

FACTS = ("machine", "versions", "kernels", "commit", "date")


@dataclass(frozen=True)
class Recorded:
    """A run that is in the file of runs."""

    record: RunRecord
    is_new: bool


@dataclass(frozen=True)
class Failed:
    """Reason why a run failed."""

    message: str


@dataclass(frozen=True)
class Skipped:
    """Reason why a run cannot be made here."""

    message: str


@dataclass(frozen=True)
class Warned:
    """A warning of a process that makes a run."""

    message: str


Event = Entry | Recorded | Failed | Skipped | Warned
Report = Callable[[PaperRun, Event], None]


@dataclass(frozen=True)
class _Made:
    """Outcome of a run: its result, or None if it was stopped; with the facts of the worker."""

    result: Result | None
    facts: dict[str, str]


_Message = Entry | _Made | Failed | Warned


@dataclass(eq=False)
class _Plan:
    """Runs by identity, and what has become of them."""

    shop: Workshop
    file: RunFile
    elmo: str
    report: Report
    identities: dict[PaperRun, str]
    records: dict[str, RunRecord]
    keep_models: bool

    def record(self, run: PaperRun, made: _Made) -> None:
        """Add a finished run to the file, and remove its folder unless it is still needed."""
        assert made.result is not None
        inputs = self.shop.inputs
        record = RunRecord(
            identity=self.identities[run],
            run=run,
            settings=inputs.recipes.settings(run),
            inputs=inputs.inputs_of(run),
            elmo=self.elmo,
            result=made.result,
            facts=made.facts,
        )
        self.file.add(record)
        self.records[record.identity] = record
        self.report(run, Recorded(record, is_new=True))
        self.remove_folder(run)
        if run.kind == ENSEMBLE:
            for member in members(run):
                self.remove_folder(member)

    def remove_folder(self, run: PaperRun) -> None:
        """Remove the folder of a recorded task run, unless an ensemble needs its model."""
        if self.keep_models or run.kind != TASK:
            return
        if not any(run in members(one) for one in self._open_ensembles(run.row)):
            shutil.rmtree(self.shop.folder(run), ignore_errors=True)

    def _open_ensembles(self, row: str) -> Iterator[PaperRun]:
        ensembles = (one for of_table in ENSEMBLES.values() for one in of_table if one[0] == row)
        for _, arms, size in ensembles:
            for run in (PaperRun(ENSEMBLE, row, arm, size) for arm in arms):
                if self.shop.inputs.identity(run) not in self.records:
                    yield run


def make_runs(
    runs: Sequence[PaperRun],
    shop: Workshop,
    file: RunFile,
    *,
    elmo: str,
    workers: int,
    report: Report,
    stop: threading.Event,
    keep_models: bool = False,
) -> bool:
    """Make all runs that are not in the file; return False if ``stop`` was set before the end.

    A run that fails is reported, and the next one starts.

    Args:
        runs: Runs of the plan, in order. Runs with equal settings and inputs are made once.
        shop: Makes the runs.
        file: File of finished runs, which grows.
        elmo: Name of the biLM, for the records.
        workers: Number of runs at a time. With one, runs are made in this process.
        report: Called with the entries of every run, and with its end.
        stop: An event. Once it is set, unfinished runs are saved, and the same call resumes them.
        keep_models: Leave the folders of finished runs in place.
    """
    with claimed(shop.run_dir, ALONE, work="making runs in it"):
        records = file.read()
        waiting, identities = _choose(runs, shop, records, report)
        plan = _Plan(shop, file, elmo, report, identities, records, keep_models)
        for run in identities:
            if identities[run] in records:
                plan.remove_folder(run)  # the process may have been killed before it did
        if workers == 1:
            return _make_here(waiting, plan, stop)
        return _make_in_processes(waiting, plan, workers, stop)


def _choose(
    runs: Sequence[PaperRun], shop: Workshop, records: dict[str, RunRecord], report: Report
) -> tuple[list[PaperRun], dict[PaperRun, str]]:
    """Return the runs to make, and the identities of all that can be made."""
    waiting: dict[str, PaperRun] = {}
    identities: dict[PaperRun, str] = {}
    for run in runs:
        source = shop.inputs.missing_source(run)
        if source is not None:
            option = f"--encoder {source}=ENCODER" if source in BUDGETED else f"--{source}"
            report(run, Skipped(f"needs an encoder; name it with {option}"))
            continue
        if shop.inputs.lacks_output_layer(run):
            report(run, Skipped("the biLM has no output layer, and so no perplexity"))
            continue
        identities[run] = shop.inputs.identity(run)
        if identities[run] in records:
            report(run, Recorded(records[identities[run]], is_new=False))
        else:
            waiting.setdefault(identities[run], run)
    return list(waiting.values()), identities


def _next_run(waiting: list[PaperRun], running: Sequence[PaperRun], plan: _Plan) -> PaperRun | None:
    """Take the next run off the list; an ensemble waits for its members."""
    for run in list(waiting):
        if run.kind == ENSEMBLE:
            if any(member in running or member in waiting for member in members(run)):
                continue
            missing = plan.shop.missing_member(run)
            if missing is not None:
                waiting.remove(run)
                plan.report(run, Skipped(f"the model of {missing} is not on this machine"))
                continue
        waiting.remove(run)
        return run
    return None


# In this process


def _make_here(waiting: list[PaperRun], plan: _Plan, stop: threading.Event) -> bool:
    facts = _facts()
    while (run := _next_run(waiting, [], plan)) is not None:
        if stop.is_set():
            return False
        made = _make(plan.shop, run, partial(plan.report, run), stop, facts)
        if isinstance(made, Failed):
            plan.report(run, made)
        elif made.result is None:
            return False
        else:
            plan.record(run, made)
    return True


def _make(
    shop: Workshop, run: PaperRun, report: Callable[[Entry], None], stop: threading.Event, facts: dict[str, str]
) -> _Made | Failed:
    start = time.monotonic()
    try:
        result = shop.make(run, report=report, stop=stop)
    except ElmokitError as error:
        return Failed(f"{run}: {error}")
    except (RuntimeError, MemoryError) as error:  # torch's: the next runs may still succeed
        return Failed(f"{run}: {type(error).__name__}: {error}")
    if result is not None:
        result.setdefault("seconds", time.monotonic() - start)
    return _Made(result, facts)


def _facts() -> dict[str, str]:
    facts = gather_facts([])
    return {name: facts[name] for name in FACTS}


# In several processes


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection
    run: PaperRun | None = None


def _make_in_processes(waiting: list[PaperRun], plan: _Plan, count: int, stop: threading.Event) -> bool:
    is_told = False
    with _workers(plan.shop, min(count, max(1, len(waiting)))) as workers:
        while True:
            for worker in workers:
                if worker.run is None and not stop.is_set():
                    running = [one.run for one in workers if one.run is not None]
                    worker.run = _next_run(waiting, running, plan)
                    if worker.run is not None:
                        worker.connection.send(worker.run)
            busy = {worker.connection: worker for worker in workers if worker.run is not None}
            if not busy:
                return not stop.is_set()
            if stop.is_set() and not is_told:
                is_told = True
                for connection in busy:
                    connection.send(None)
            _receive(busy, plan)


def _receive(busy: dict[Connection, _Worker], plan: _Plan) -> None:
    """Handle one message of each worker that has one."""
    for connection in wait(list(busy), timeout=0.5):
        assert isinstance(connection, Connection)
        worker = busy[connection]
        assert worker.run is not None
        try:
            message: _Message = connection.recv()
        except EOFError:
            raise ConfigError(
                f"{worker.run}: its process ended with code {worker.process.exitcode}; is memory short? "
                "Run the same command again, perhaps with --workers 1"
            ) from None
        if isinstance(message, _Made):
            run, worker.run = worker.run, None
            if message.result is not None:
                plan.record(run, message)
        elif isinstance(message, Failed):
            run, worker.run = worker.run, None
            plan.report(run, message)
        else:
            plan.report(worker.run, message)


@contextmanager
def _workers(shop: Workshop, count: int) -> Iterator[list[_Worker]]:
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, shop), daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
        yield workers
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join()


def _serve(connection: Connection, shop: Workshop) -> None:
    """Make the runs that the parent sends, until it sends None or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    torch.set_num_threads(1)
    use_onednn_products()
    facts, stop = _facts(), threading.Event()
    jobs: queue.SimpleQueue[PaperRun | None] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                run = connection.recv()
            except (EOFError, OSError):  # the parent has ended
                run = None
            if run is None:
                stop.set()
            jobs.put(run)
            if run is None:
                return

    def send(message: _Message) -> None:
        with suppress(OSError):  # without a parent, the run is saved all the same
            connection.send(message)

    def send_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        send(Warned(str(message)))

    warnings.simplefilter("default", UserWarning)
    warnings.showwarning = send_warning
    threading.Thread(target=listen, daemon=True).start()
    while (run := jobs.get()) is not None:
        send(_make(shop, run, send, stop, facts))
