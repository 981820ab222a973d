"""Statistics of the page: means over seeds, paired differences, and the verdict on a claim."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray

HOLDS, FAILS, OPEN, NOT_RUN = "holds", "does not hold here", "open", "not run yet"
ERRORS = 2.0  # standard errors that a difference must exceed
MARGIN = 0.01  # a difference that counts: a point

Expected = Literal["better", "alike", "no worse"]
"""Relation of two sides that a claim states, the side that it names first to the other."""
Scores = Mapping[int, float]
"""Scores by seed, as fractions of 1."""


@dataclass(frozen=True)
class Difference:
    """A mean difference, its standard error, and the number of pairs; no error with a single pair."""

    mean: float
    error: float | None
    num: int


def paired_difference(first: Scores, second: Scores) -> Difference | None:
    """Return the mean of ``first`` minus ``second`` over the seeds that both have; None without any."""
    differences = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    if not differences:
        return None
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return Difference(mean(differences), error, len(differences))


def instance_difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> Difference:
    """Return the mean difference of two scores of the same instances, with its standard error over the instances.

    For scores of 0 and 1, only instances on which the two sides differ add to it, as in McNemar's test.
    """
    differences = first - second
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Difference(float(differences.mean()), error, len(differences))


def judge(difference: Difference | None, expected: Expected = "better") -> str:
    """Return the verdict on a claim about a difference; ``errors`` below are two standard errors.

    ``better`` holds if the difference exceeds its errors, and fails if a point or more is excluded. ``alike`` holds if
    the difference is below a point with its errors added, and fails if it exceeds its errors. ``no worse`` holds if a
    loss of a point or more is excluded, and fails if the loss exceeds its errors. All else is open: one seed, or too
    noisy.
    """
    if difference is None:
        return NOT_RUN
    if difference.error is None:
        return OPEN
    mean, errors = difference.mean, ERRORS * difference.error
    holds, fails = {
        "better": (mean > 0 and mean > errors, mean + errors < MARGIN),
        "alike": (abs(mean) + errors < MARGIN, abs(mean) > errors),
        "no worse": (mean - errors > -MARGIN, mean < 0 and -mean > errors),
    }[expected]
    if holds:
        return HOLDS
    return FAILS if fails else OPEN


def show_scores(scores: Scores) -> str:
    """Return mean, standard deviation and number of seeds in percent: ``61.20 ± 0.35 (3)``."""
    if not scores:
        return NOT_RUN
    percents = [100 * score for score in scores.values()]
    spread = f" ± {stdev(percents):.2f}" if len(percents) > 1 else ""
    return f"{mean(percents):.2f}{spread} ({len(percents)})"


def show_difference(difference: Difference | None) -> str:
    """Return a difference in points with its standard error: ``+1.20 ± 0.10``."""
    if difference is None:
        return NOT_RUN
    error = "" if difference.error is None else f" ± {100 * difference.error:.2f}"
    return f"{100 * difference.mean:+.2f}{error}"


def error_reduction(baseline: Scores, better: Scores) -> float | None:
    """Return the share of the baseline's distance to 1 that ``better`` removes, over the seeds that both have."""
    seeds = baseline.keys() & better.keys()
    if not seeds:
        return None
    before, after = (mean(scores[seed] for seed in seeds) for scores in (baseline, better))
    return None if before == 1 else (after - before) / (1 - before)


def updates_to_reach(curve: Sequence[tuple[int, float]], goal: float) -> int | None:
    """Return the first step of a dev curve whose score is at least ``goal``; None if none is."""
    return next((step for step, score in curve if score >= goal), None)
