"""The training loop of comparison encoders: resume, step, log, evaluate, save, stop."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elmokit.encoders.progress import EncoderEvaluation, EncoderPlan, EncoderStep, Report, curve_values
from elmokit.encoders.state import EncoderState
from elmokit.runs.checkpoint import clear_unfinished, facts_explained, load_newest
from elmokit.runs.journal import open_journal
from elmokit.runs.layout import CHECKPOINTS
from elmokit.runs.resume_check import changed_settings, check_unchanged
from elmokit.runs.saving import background_writer

LOG_EVERY = 20  # steps per log line, which has their means
SECONDS_AT_RISK = 600.0  # of work that a crash may cost between two evaluations
NUM_CHECKPOINTS = 2


def train_steps(state: EncoderState, run_dir: Path, *, report: Report, stop: threading.Event) -> bool:
    """Train until the recipe's end or until ``stop`` is set; return whether the end was reached.

    Resumes from the newest intact checkpoint in the folder, and ends with the same bits as an uninterrupted run. The
    caller holds the claim on the folder.
    """
    _resume(state, run_dir)
    report(_plan(state))
    with (
        open_journal(run_dir, from_step=state.step, curve_values=curve_values, report=report) as journal,
        background_writer(run_dir / CHECKPOINTS, keep=NUM_CHECKPOINTS, log=journal.log) as writer,
    ):
        steps: list[EncoderStep] = []
        started = last_save = time.monotonic()
        before = state.seconds
        while not (state.is_over or stop.is_set()):
            steps.append(state.train_step())
            state.seconds = before + time.monotonic() - started
            writer.raise_if_failed()
            is_due = state.step % state.settings.evaluate_every == 0 or state.is_over
            if state.step % LOG_EVERY == 0 or is_due or stop.is_set():
                journal.write(_summarize(steps, state))
                steps = []
            if is_due:
                dev_loss, is_best = state.evaluate()
                state.seconds = before + time.monotonic() - started
                journal.write(EncoderEvaluation(state.step, dev_loss, is_best, state.learning_rate))
            if is_due or stop.is_set() or time.monotonic() - last_save > SECONDS_AT_RISK:
                writer.save(state.checkpoint())
                last_save = time.monotonic()
    return state.is_over


def _resume(state: EncoderState, run_dir: Path) -> None:
    clear_unfinished(run_dir / CHECKPOINTS)
    newest = load_newest(run_dir / CHECKPOINTS)
    if newest is not None:
        with facts_explained(run_dir):
            changed = list(changed_settings(newest.facts["follows"], state.objective.resume_key()))
            check_unchanged(changed, folder=run_dir)
            state.restore(newest)


def _plan(state: EncoderState) -> EncoderPlan:
    return EncoderPlan(
        step=state.step,
        num_steps=state.num_steps,
        hours=state.settings.hours,
        seconds=state.seconds,
        steps_per_epoch=state.objective.steps_per_epoch,
        num_parameters=sum(parameter.numel() for parameter in state.model.parameters()),
    )


def _summarize(steps: Sequence[EncoderStep], state: EncoderState) -> EncoderStep:
    num_targets = sum(step.num_targets for step in steps)
    took = max(state.seconds - steps[0].seconds, 1e-9)  # an entry has the clock before its step
    return replace(
        steps[-1],
        loss=sum(step.loss * step.num_targets for step in steps) / num_targets,
        gradient_norm=sum(step.gradient_norm for step in steps) / len(steps),
        num_targets=num_targets,
        targets_per_second=num_targets / took,
        seconds=state.seconds,
    )
