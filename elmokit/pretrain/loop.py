"""The pretraining loop, in reading order: resume, step, log, look at held-out text, save, stop."""

import copy
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmokit.errors import WeightsError
from elmokit.model.directions import direction_threads
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.progress import HeldOut, LogLine, Report, RunPlan, curve_values
from elmokit.pretrain.resume_check import check_resume
from elmokit.pretrain.state import StepLoss, Trainer
from elmokit.runs.checkpoint import Checkpoint, clear_unfinished, load_newest
from elmokit.runs.journal import open_journal
from elmokit.runs.layout import CHECKPOINTS
from elmokit.runs.saving import BackgroundWriter, background_writer
from elmokit.runs.world import on_first_rank, run_with_heartbeat, sum_over_ranks, wait_with_heartbeat

LOG_EVERY = 20  # steps per log line, which has their means


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
    unlogged = _resume(trainer, run_dir)
    report(_plan(trainer))
    start = time.monotonic() - trainer.seconds  # as if there had been one session
    last_look: HeldOut | None = None
    with (
        open_journal(
            run_dir, from_step=trainer.step, curve_values=curve_values, report=report, writes=world.is_first
        ) as journal,
        background_writer(run_dir / CHECKPOINTS, keep=settings.keep_checkpoints, log=journal.log) as writer,
        direction_threads(world.device) as executor,
    ):
        while not _must_end(trainer):
            began = time.monotonic()
            loss = trainer.train_step(executor, seconds=began - start, stop=stop.is_set())
            ended = time.monotonic()
            writer.raise_if_failed()
            unlogged.append((loss, ended - began))
            if trainer.step % LOG_EVERY == 0 or trainer.is_over:
                journal.write(_summary(trainer, unlogged, ended - start))
                unlogged.clear()
            if look is not None and (trainer.step % settings.evaluate_every == 0 or trainer.is_over):
                last_look = look(trainer)
                journal.write(last_look)
                if trainer.note_perplexity(last_look.perplexity, last_look.text) and save_best is not None:
                    _wait_for(writer, trainer)
                    if world.is_first:
                        writer.start(partial(save_best, copy.deepcopy(trainer.model).to("cpu")))
            if trainer.step % settings.checkpoint_every == 0 or _must_end(trainer):
                _wait_for(writer, trainer)
                checkpoint = trainer.checkpoint(unlogged)
                if checkpoint is not None:
                    writer.save(checkpoint)
                trainer.corpus.let_go()  # so that memory does not grow with what was read
        _wait_for(writer, trainer)  # on every rank: one that ended early would take the first rank for dead
    return last_look if last_look is not None and last_look.step == trainer.step else None


def _wait_for(writer: BackgroundWriter, trainer: Trainer) -> None:
    """Until the save before is done: the first process may have to wait for its disk, and the others for it."""
    wait_with_heartbeat(lambda seconds: writer.is_free(within=seconds), trainer.world)


def _must_end(trainer: Trainer) -> bool:
    return trainer.is_over or trainer.stop_asked


def _resume(trainer: Trainer, run_dir: Path) -> list[tuple[StepLoss, float]]:
    """Restore the newest checkpoint, if there is one; return the steps that are not in the log yet."""
    world, folder = trainer.world, run_dir / CHECKPOINTS
    on_first_rank(partial(clear_unfinished, folder), world)
    newest = run_with_heartbeat(partial(_restore_newest, trainer, run_dir), world)  # some disks are slower than others
    everyones = sum_over_ranks(torch.tensor([trainer.step], device=world.device), world)
    if int(everyones) != world.size * trainer.step:
        raise WeightsError(
            f"{folder}: rank {world.rank} found step {trainer.step} there, other ranks found another; "
            "all ranks must use the same run folder, on a shared disk"
        )
    pending: list[Any] = [] if newest is None else newest.facts["unlogged"]
    return [(StepLoss(**loss), took) for loss, took in pending]


def _restore_newest(trainer: Trainer, run_dir: Path) -> Checkpoint | None:
    newest = load_newest(run_dir / CHECKPOINTS)
    if newest is not None:
        check_resume(newest.facts["follows"], trainer.resume_key(), folder=run_dir)
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
