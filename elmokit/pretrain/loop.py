"""The pretraining loop, in reading order: resume, step, log, look at held-out text, save, stop."""

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import remove_leftovers
from elmokit.errors import WeightsError
from elmokit.model.directions import direction_threads
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.progress import HeldOut, LogLine, Report, RunPlan
from elmokit.pretrain.state import StepLoss, Trainer
from elmokit.runs.checkpoint import Checkpoint, Writer, load_newest
from elmokit.runs.log import RunLog, explain_failed_save, save_after_log
from elmokit.runs.world import on_first_rank, run_with_heartbeat, sum_over_ranks, wait_with_heartbeat

LOG_EVERY = 20  # steps that a line of the log is the mean of
CHECKPOINTS, LOG = "checkpoints", "log.jsonl"


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
        with explain_failed_save(run_dir / CHECKPOINTS), direction_threads(world.device) as executor:
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


def _wait_for(writer: Writer, trainer: Trainer) -> None:
    """Until the save before is done: the first process may have to wait for its disk, and the others for it."""
    wait_with_heartbeat(lambda seconds: writer.is_free(within=seconds), trainer.world)


def _must_end(trainer: Trainer) -> bool:
    return trainer.is_over or trainer.stop_asked


def _go_on(trainer: Trainer, folder: Path) -> list[tuple[StepLoss, float]]:
    """Restore the trainer from the newest checkpoint, if there is one; return the steps that the log has not yet."""
    world = trainer.world
    on_first_rank(lambda: remove_leftovers(folder) if folder.is_dir() else None, world)
    newest = run_with_heartbeat(partial(_restore_newest, trainer, folder), world)  # some disks are slower than others
    everyones = sum_over_ranks(torch.tensor([trainer.step], device=world.device), world)
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
