"""The length of a run, and the learning rate of every step."""

import math

from elmokit.pretrain.recipe import PretrainSettings
from elmokit.text.corpus import Corpus

LAST_SHARE = 0.05  # of the peak learning rate, at the end of a decaying schedule
DECAY_PART = 5  # constant-linear decays over one fifth of the run


def planned_steps(settings: PretrainSettings, corpus: Corpus) -> int | None:
    """Return the number of steps of the run, or None if only hours end it."""
    per_epoch = corpus.num_targets / (settings.num_rows * settings.unroll_steps)
    ends = [settings.steps] if settings.steps is not None else []
    if settings.epochs is not None:
        ends.append(max(1, math.ceil(settings.epochs * per_epoch)))
    return min(ends, default=None)


def decay_start(num_steps: int) -> int:
    """Return the number of steps that a constant-linear run takes before its learning rate decays."""
    return num_steps - max(1, num_steps // DECAY_PART)


def learning_rate(settings: PretrainSettings, step: int, num_steps: int | None) -> float:
    """Return the learning rate of a step, counted from 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant" or num_steps is None:
        return settings.learning_rate
    start = settings.warmup_steps
    if settings.schedule == "constant-linear":
        start = max(start, decay_start(num_steps))
        if step < start:
            return settings.learning_rate
    done = (step - start) / max(1, num_steps - start)
    falling = (1 + math.cos(math.pi * done)) / 2 if settings.schedule == "cosine" else 1 - done
    return settings.learning_rate * (LAST_SHARE + (1 - LAST_SHARE) * falling)
