"""The pretraining loop, in reading order: resume, step, log, evaluate, save, stop."""

import copy
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from elmokit.errors import WeightsError
from elmokit.model.directions import direction_threads
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.progress import (
    EvaluationStarted,
    HeldOut,
    LogLine,
    MachineChanged,
    Report,
    RunPlan,
    StepDone,
    curve_values,
)
from elmokit.pretrain.resume_check import check_length, check_resume
from elmokit.pretrain.state import PretrainState, StepLoss
from elmokit.runs.checkpoint import Checkpoint, clear_unfinished, facts_explained, load_newest
from elmokit.runs.journal import open_journal
from elmokit.runs.layout import CHECKPOINTS
from elmokit.runs.saving import BackgroundWriter, background_writer
from elmokit.runs.world import on_first_rank, run_with_heartbeat, sum_over_ranks, wait_with_heartbeat

LOG_EVERY = 20  # steps per log line, which has their means

Evaluate = Callable[[PretrainState], HeldOut]


def train(
    state: PretrainState,
    run_dir: Path,
    *,
    evaluate: Evaluate | None,
    save_best: Callable[[LanguageModel], None] | None,
    report: Report,
    stop: threading.Event,
    save_kept: Callable[[int, LanguageModel], None] | None = None,
) -> HeldOut | None:
    """Train to the end of the recipe or until ``stop`` is set; return the evaluation after the last step, if any.

    Resumes from the newest intact checkpoint in ``run_dir``; the result has the same bits as an uninterrupted run's.
    ``save_best`` is called with a copy of the model, on a background thread of the first rank; so is ``save_kept``,
    with the step before it, after every step that the recipe keeps a model of.
    """
    settings, world = state.recipe.training, state.world
    unlogged = _resume(state, run_dir)
    report(_plan(state))
    start = time.monotonic() - state.seconds  # as if there had been one session
    last: HeldOut | None = None
    with (
        open_journal(
            run_dir, from_step=state.step, curve_values=curve_values, report=report, writes=world.is_first
        ) as journal,
        background_writer(run_dir / CHECKPOINTS, keep=settings.keep_checkpoints, log=journal.log) as writer,
        direction_threads(world.device) as executor,
    ):
        if state.machine_before not in (None, state.machine):
            journal.write(MachineChanged(state.step, state.machine_before, state.machine))
        while not _must_end(state):
            began = time.monotonic()
            loss = state.train_step(executor, seconds=began - start, stop=stop.is_set())
            ended = time.monotonic()
            writer.raise_if_failed()
            unlogged.append((loss, ended - began))
            report(StepDone(state.step, loss.mean, ended - start))
            if state.step % LOG_EVERY == 0 or state.is_over:
                journal.write(_summary(state, unlogged, ended - start))
                unlogged.clear()
            if evaluate is not None and (state.step % settings.evaluate_every == 0 or state.is_over):
                report(EvaluationStarted(state.step))
                last = evaluate(state)
                journal.write(last)
                if state.record_perplexity(last.perplexity, last.text) and save_best is not None:
                    _wait_for(writer, state)
                    if world.is_first:
                        writer.start(partial(save_best, copy.deepcopy(state.model).to("cpu")))
            if state.step in settings.keep_models and save_kept is not None:
                _wait_for(writer, state)
                if world.is_first:
                    writer.start(partial(save_kept, state.step, copy.deepcopy(state.model).to("cpu")))
            if state.step % settings.checkpoint_every == 0 or _must_end(state):
                _wait_for(writer, state)
                checkpoint = state.checkpoint(unlogged)
                if checkpoint is not None:
                    writer.save(checkpoint)
                state.corpus.release_pages()  # so that memory does not grow with what was read
        _wait_for(writer, state)  # on every rank: one that ended early would take the first rank for dead
    return last if last is not None and last.step == state.step else None


def _wait_for(writer: BackgroundWriter, state: PretrainState) -> None:
    """Wait on all ranks until the first rank's last save is on disk."""
    wait_with_heartbeat(lambda seconds: writer.is_free(within=seconds), state.world)


def _must_end(state: PretrainState) -> bool:
    return state.is_over or state.stop_requested


def _resume(state: PretrainState, run_dir: Path) -> list[tuple[StepLoss, float]]:
    """Restore the newest checkpoint, if there is one; return the steps that are not in the log yet."""
    world, folder = state.world, run_dir / CHECKPOINTS
    on_first_rank(partial(clear_unfinished, folder), world)
    newest = run_with_heartbeat(partial(_restore_newest, state, run_dir), world)  # some disks are slower than others
    everyones = sum_over_ranks(torch.tensor([state.step], device=world.device), world)
    if int(everyones) != world.size * state.step:
        raise WeightsError(
            f"{folder}: rank {world.rank} found step {state.step} there, other ranks found another; "
            "all ranks must use the same run folder, on a shared disk"
        )
    if newest is None:
        return []
    with facts_explained(folder):
        return [(StepLoss(**loss), float(took)) for loss, took in newest.facts["unlogged"]]


def _restore_newest(state: PretrainState, run_dir: Path) -> Checkpoint | None:
    newest = load_newest(run_dir / CHECKPOINTS)
    if newest is not None:
        with facts_explained(run_dir):
            before = newest.facts["follows"]
            check_resume(before, state.resume_key(), folder=run_dir)
            check_length(before, state.recipe, state.corpus, step=newest.step, folder=run_dir)
            state.restore(newest)
    return newest


def _plan(state: PretrainState) -> RunPlan:
    return RunPlan(
        step=state.step,
        num_steps=state.num_steps,
        hours=state.recipe.training.hours,
        seconds=state.seconds,
        num_tokens=state.corpus.num_tokens,
        num_words=len(state.vocab),
        num_negatives=state.num_negatives,
        num_processes=state.world.size,
    )


def _summary(state: PretrainState, steps: list[tuple[StepLoss, float]], clock: float) -> LogLine:
    settings = state.recipe.training
    losses = [loss for loss, _ in steps]
    targets = settings.num_rows * settings.unroll_steps
    return LogLine(
        step=state.step,
        epoch=state.step * targets / state.corpus.num_targets,
        tokens_per_second=targets * len(steps) / sum(took for _, took in steps),
        sampled=state.num_negatives is not None,
        forward_loss=sum(loss.forward for loss in losses) / len(losses),
        backward_loss=sum(loss.backward for loss in losses) / len(losses),
        gradient_norm=sum(loss.gradient_norm for loss in losses) / len(losses),
        learning_rate=losses[-1].learning_rate,
        seconds=clock,
    )
