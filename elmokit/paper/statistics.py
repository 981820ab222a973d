"""Statistics of the page: means over seeds, paired differences, and the verdict on a claim."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray

HOLDS, FAILS, OPEN, NOT_RUN = "holds", "does not hold here", "open", "not run yet"
ERRORS = 2.0  # standard errors that a difference must exceed
MARGIN = 0.01  # two sides whose difference is smaller, with two standard errors, do not differ

Scores = Mapping[int, float]
"""Scores by seed, as fractions of 1."""


@dataclass(frozen=True)
class Difference:
    """A mean difference, its standard error, and the number of pairs; no error with a single pair."""

    mean: float
    error: float | None
    num: int

    @property
    def is_above(self) -> bool:
        """True if the mean is positive and exceeds two standard errors."""
        return self.error is not None and self.mean > 0 and self.mean > ERRORS * self.error


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


def judge(differences: Sequence[Difference | None]) -> str:
    """Return the verdict on a claim that all differences are positive."""
    if any(one is None for one in differences) or not differences:
        return NOT_RUN
    known = [one for one in differences if one is not None]
    if any(one.error is None for one in known):
        return OPEN
    return HOLDS if all(one.is_above for one in known) else FAILS


def judge_alike(differences: Sequence[Difference | None]) -> str:
    """Return the verdict on a claim that two sides do not differ, by a point or more.

    It holds if all differences are below `MARGIN` with two standard errors added. It fails if one exceeds two standard
    errors. Otherwise it is open: the runs are too noisy to decide.
    """
    if any(one is None for one in differences) or not differences:
        return NOT_RUN
    known = [one for one in differences if one is not None]
    if any(one.error is None for one in known):
        return OPEN
    sizes = [(abs(one.mean), ERRORS * one.error) for one in known if one.error is not None]
    if all(size + errors < MARGIN for size, errors in sizes):
        return HOLDS
    return FAILS if any(size > errors and size + errors >= MARGIN for size, errors in sizes) else OPEN


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
