"""The pretraining loop, in reading order: resume, step, log, look at held-out text, save, stop."""

import copy
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import atomic_file, explained, remove_leftovers
from elmokit.errors import OutputError, WeightsError
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.checkpoint import Checkpoint, Writer, checkpoints, load_newest, save_checkpoint
from elmokit.pretrain.distributed import let_first, sum_over_processes, wait_in_touch, work_in_touch
from elmokit.pretrain.trainer import StepLoss, Trainer, direction_threads

LOG_EVERY = 20  # steps that a line of the log is the mean of
CHECKPOINTS, LOG = "checkpoints", "log.jsonl"


@dataclass(frozen=True)
class RunPlan:
    """Where the run stands as it begins or goes on, and where it ends."""

    step: int
    num_steps: int | None  # None if only hours end it
    hours: float | None
    seconds: float  # that earlier pieces of the run took
    num_tokens: int  # of the text
    num_words: int  # that the model can predict
    num_negatives: int | None  # None where the softmax is full
    num_processes: int


@dataclass(frozen=True)
class LogLine:
    """What the log says of the steps since the line before."""

    step: int
    epoch: float
    tokens_per_second: float  # targets of one direction
    sampled: bool  # whether the losses are a sampled softmax's, which say nothing of perplexity
    forward_loss: float
    backward_loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float  # since the run began, time between its pieces left out


@dataclass(frozen=True)
class HeldOut:
    """A look at the held-out text, always with the full softmax."""

    step: int
    forward_perplexity: float
    backward_perplexity: float
    perplexity: float  # the arithmetic mean of both: the lowest is the best
    geometric_mean: float  # of both
    unknown_share: float  # of the targets, those that are <UNK>, which is easy to predict
    text: str  # names it, and how much of it was read: perplexities of different ones cannot be compared


Report = Callable[[RunPlan | LogLine | HeldOut], None]
LookAtHeldOut = Callable[[Trainer], HeldOut]


def train(
    trainer: Trainer,
    run_dir: Path,
    *,
    look: LookAtHeldOut | None,
    save_best: Callable[[LanguageModel], None] | None,
    report: Report,
    stop: threading.Event,
) -> HeldOut | None:
    """Train until the recipe says that it is enough, or ``stop`` is set; return the look after the last step, if any.

    Goes on from the newest intact checkpoint in the folder, and ends with the same bits as a run that was never broken.
    ``save_best`` gets a copy of the model, on a thread of its own, in the first process only.
    """
    settings, world = trainer.recipe.training, trainer.world
    unlogged = _go_on(trainer, run_dir / CHECKPOINTS)
    log = RunLog(run_dir / LOG, from_step=trainer.step, writes=world.is_first)
    report(_plan(trainer))
    start = time.monotonic() - trainer.seconds  # as if there had been one piece
    writer = Writer()
    last_look: HeldOut | None = None
    try:
        with _saves_explained(run_dir / CHECKPOINTS), direction_threads(world.device) as executor:
            while not _must_end(trainer):
                began = time.monotonic()
                loss = trainer.train_step(executor, seconds=began - start, stop=stop.is_set())
                ended = time.monotonic()
                writer.look()  # a disk that is full is told now, not when the next save is due
                unlogged.append((loss, ended - began))
                if trainer.step % LOG_EVERY == 0 or trainer.is_over:
                    line = _summary(trainer, unlogged, ended - start)
                    unlogged.clear()
                    log.write(line)
                    report(line)
                if look is not None and (trainer.step % settings.evaluate_every == 0 or trainer.is_over):
                    last_look = found = look(trainer)
                    log.write(found)
                    report(found)
                    if trainer.note_perplexity(found.perplexity, found.text) and save_best is not None:
                        _wait_for(writer, trainer)
                        if world.is_first:
                            writer.begin(partial(save_best, copy.deepcopy(trainer.model).to("cpu")))
                if trainer.step % settings.checkpoint_every == 0 or _must_end(trainer):
                    _wait_for(writer, trainer)
                    checkpoint = trainer.checkpoint()
                    if checkpoint is not None:
                        checkpoint.facts["unlogged"] = [(asdict(loss), took) for loss, took in unlogged]
                        folder, keep = run_dir / CHECKPOINTS, settings.keep_checkpoints
                        writer.begin(partial(save_after_log, checkpoint, folder, keep=keep, log=log))
                    trainer.corpus.let_go()  # so that memory does not grow with what was read
            _wait_for(writer, trainer)  # all of them: one that went on alone would take the first for lost
    finally:
        writer.close()
    return last_look if last_look is not None and last_look.step == trainer.step else None


class RunLog:
    """One JSON object a line. Lines of steps that are about to be done again are dropped."""

    def __init__(self, path: Path, *, from_step: int, writes: bool) -> None:
        self.path, self.writes = path, writes
        if writes and path.exists():
            lines = path.read_text("utf-8").splitlines()
            with atomic_file(path) as new:
                new.write_text("".join(f"{line}\n" for line in lines if _step_of(line) <= from_step), "utf-8")

    def write(self, entry: Any) -> None:
        """Add an entry: a dataclass with a ``step``."""
        if self.writes:
            with explained(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": type(entry).__name__, **asdict(entry)}) + "\n")

    def flush(self) -> None:
        """Wait until all entries are on the disk."""
        if self.writes and self.path.exists():
            with explained(self.path), self.path.open("ab") as file:
                os.fsync(file.fileno())


def save_after_log(checkpoint: Checkpoint, folder: Path, *, keep: int, log: RunLog) -> None:
    """Save a checkpoint, which must not be ahead of its log if it survives a power cut."""
    log.flush()
    save_checkpoint(checkpoint, folder, keep=keep)


def _wait_for(writer: Writer, trainer: Trainer) -> None:
    """Until the save before is done: the first process may have to wait for its disk, and the others for it."""
    wait_in_touch(lambda seconds: writer.is_free(within=seconds), trainer.world)


@contextmanager
def _saves_explained(folder: Path) -> Iterator[None]:
    """Say of a save that failed what is left of the run."""
    try:
        yield
    except OutputError as error:
        found = checkpoints(folder)
        left = f"the same command goes on from {found[-1].name}" if found else "no checkpoint was saved before"
        raise OutputError(f"{error}; {left}") from error


def _must_end(trainer: Trainer) -> bool:
    return trainer.is_over or trainer.stop_asked


def _go_on(trainer: Trainer, folder: Path) -> list[tuple[StepLoss, float]]:
    """Restore the trainer from the newest checkpoint, if there is one; return the steps that the log has not yet."""
    world = trainer.world
    let_first(lambda: remove_leftovers(folder) if folder.is_dir() else None, world)
    newest = work_in_touch(partial(_restore_newest, trainer, folder), world)  # some disks are slower than others
    everyones = sum_over_processes(torch.tensor([trainer.step], device=world.device), world)
    if int(everyones) != world.size * trainer.step:
        raise WeightsError(
            f"{folder}: this process found step {trainer.step} there, others another; "
            "the run's folder must be the same for all processes, on a disk that they share"
        )
    pending: list[Any] = [] if newest is None else newest.facts["unlogged"]
    return [(StepLoss(**loss), took) for loss, took in pending]


def _restore_newest(trainer: Trainer, folder: Path) -> Checkpoint | None:
    newest = load_newest(folder)
    if newest is not None:
        trainer.restore(newest)
    return newest


def _plan(trainer: Trainer) -> RunPlan:
    return RunPlan(
        step=trainer.step,
        num_steps=trainer.num_steps,
        hours=trainer.recipe.training.hours,
        seconds=trainer.seconds,
        num_tokens=trainer.corpus.num_tokens,
        num_words=len(trainer.vocab),
        num_negatives=trainer.num_negatives,
        num_processes=trainer.world.size,
    )


def _summary(trainer: Trainer, steps: list[tuple[StepLoss, float]], clock: float) -> LogLine:
    settings = trainer.recipe.training
    losses = [loss for loss, _ in steps]
    targets = settings.num_rows * settings.unroll_steps
    return LogLine(
        step=trainer.step,
        epoch=trainer.step * targets / trainer.corpus.num_targets,
        tokens_per_second=targets * len(steps) / sum(took for _, took in steps),
        sampled=trainer.num_negatives is not None,
        forward_loss=sum(loss.forward for loss in losses) / len(losses),
        backward_loss=sum(loss.backward for loss in losses) / len(losses),
        gradient_norm=sum(loss.gradient_norm for loss in losses) / len(losses),
        learning_rate=losses[-1].learning_rate,
        seconds=clock,
    )


def _step_of(line: str) -> int:
    """The step that a line tells of; beyond all steps for one that a crash cut short."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**63
