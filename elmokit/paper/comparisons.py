"""Comparisons that a claim is judged by. Each returns a difference that the claim says is positive."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.datasets import find_dataset
from elmokit.paper.arms import ARMS, BASELINE, ELMO, UNTRAINED
from elmokit.paper.instances import unpack_bits
from elmokit.paper.plan import BUDGETED, NEIGHBORS, SENSES, TAGS, Kind
from elmokit.paper.results import Results
from elmokit.paper.statistics import Difference, Scores, instance_difference, paired_difference, updates_to_reach

FIRST_SENSE = "the first sense"
ENCODER_TITLES = {
    "bilm": "biLM",
    UNTRAINED: "untrained biLM",
    "cove": "CoVe",
    "context2vec": "context2vec",
    "glove": "GloVe",
    **{name: ARMS[name].title for name in BUDGETED},
}
Layer = tuple[str, int]
"""Encoder, number of the layer."""
Answers = NDArray[np.float64]
"""Score per test instance, from 0 to 1."""


class Comparison(Protocol):
    """A comparison of two numbers of the page."""

    def title(self) -> str:
        """Return the two sides in words."""

    def difference(self, results: Results) -> Difference | None:
        """Return the difference; None if a side was not run."""


@dataclass(frozen=True)
class Arms:
    """Two arms of a row, paired by seed."""

    row: str
    better: str
    worse: str
    part: str = "dev"
    fraction: float = 1.0
    other_fraction: float = 1.0

    def title(self) -> str:
        """Return the two sides in words."""
        sides = [
            ARMS[arm].title + ("" if share == 1 else f" at {share:.1%}")
            for arm, share in ((self.better, self.fraction), (self.worse, self.other_fraction))
        ]
        return f"{find_dataset(self.row).title}: {sides[0]}, against {sides[1]}"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the scores."""
        return paired_difference(
            results.scores(self.row, self.better, self.part, fraction=self.fraction),
            results.scores(self.row, self.worse, self.part, fraction=self.other_fraction),
        )


@dataclass(frozen=True)
class Gains:
    """ELMo's gain on a fraction of the data against its gain on all."""

    row: str
    fraction: float

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{find_dataset(self.row).title}: ELMo's gain on {self.fraction:.1%} of the data, against all"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the gains."""
        part, whole = (_gains(results, self.row, (BASELINE, ELMO), fraction=share) for share in (self.fraction, 1.0))
        return paired_difference(part, whole)


@dataclass(frozen=True)
class Steps:
    """The gain from one arm to the next, against the gain of another such step; paired by seed."""

    row: str
    larger: tuple[str, str]
    """The arms before and after the step that is claimed to gain more."""
    smaller: tuple[str, str]

    def title(self) -> str:
        """Return the two sides in words."""
        sides = [f"{ARMS[after].title} over {ARMS[before].title}" for before, after in (self.larger, self.smaller)]
        return f"{find_dataset(self.row).title}: gain of {sides[0]}, against gain of {sides[1]}"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the gains."""
        larger, smaller = (_gains(results, self.row, arms) for arms in (self.larger, self.smaller))
        return paired_difference(larger, smaller)


def _gains(results: Results, row: str, arms: tuple[str, str], *, fraction: float = 1.0) -> Scores:
    """Return by seed how much the second arm gains over the first, on dev."""
    before, after = (results.scores(row, arm, "dev", fraction=fraction) for arm in arms)
    return {seed: after[seed] - before[seed] for seed in before.keys() & after.keys()}


@dataclass(frozen=True)
class Ensemble:
    """An ensemble against each of its members."""

    row: str
    arm: str

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{find_dataset(self.row).title}: ensemble of {ARMS[self.arm].title}, against its members"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the test scores, over the members."""
        found = results.ensemble(self.row, self.arm)
        if found is None:
            return None
        size, result = found
        members = {seed: score for seed, score in results.scores(self.row, self.arm, "test").items() if seed < size}
        return paired_difference(dict.fromkeys(members, result["test"][result["metric"]]), members)


@dataclass(frozen=True)
class ErrorsRemoved:
    """Share of the baseline's errors that ELMo removes, against a goal; test scores, paired by seed."""

    row: str
    goal: float

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{find_dataset(self.row).title}: share of the errors that ELMo removes, against {self.goal:.0%}"

    def difference(self, results: Results) -> Difference | None:
        """Return the share minus the goal."""
        before, after = (results.scores(self.row, arm, "test") for arm in (BASELINE, ELMO))
        removed = {
            seed: (after[seed] - before[seed]) / (1 - before[seed])
            for seed in before.keys() & after.keys()
            if before[seed] < 1
        }
        return paired_difference(removed, dict.fromkeys(removed, self.goal))


@dataclass(frozen=True)
class Probe:
    """The linear classifier of a biLM's layer against a task model on the same data; test accuracy, over its seeds."""

    row: str
    arm: str
    layer: int

    def title(self) -> str:
        """Return the two sides in words."""
        arm = ARMS[self.arm].title.removeprefix("+ ")
        return f"{show_layer(('bilm', self.layer))}, against the biLSTM-CRF tagger ({arm})"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the accuracies."""
        found, scores = layer_scores(results, TAGS, "bilm"), results.scores(self.row, self.arm, "test")
        return None if found is None else paired_difference(dict.fromkeys(scores, found.layers[self.layer]), scores)


@dataclass(frozen=True)
class BestOf:
    """An arm against the best of several others: the one with the highest mean dev score."""

    row: str
    arm: str
    others: tuple[str, ...]

    def title(self) -> str:
        """Return the two sides in words."""
        others = ", ".join(ARMS[arm].title for arm in self.others)
        return f"{find_dataset(self.row).title}: {ARMS[self.arm].title}, against the best of {others}"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the dev scores; None until all others were run."""
        scores = {arm: results.scores(self.row, arm, "dev") for arm in self.others}
        if not all(scores.values()):
            return None
        best = max(self.others, key=lambda arm: mean(scores[arm].values()))
        return paired_difference(results.scores(self.row, self.arm, "dev"), scores[best])


@dataclass(frozen=True)
class Updates:
    """Updates of the baseline to its best dev score, against those that ELMo needs to reach that score."""

    row: str

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{find_dataset(self.row).title}: share of the baseline's updates that ELMo saves"

    def difference(self, results: Results) -> Difference | None:
        """Return the share of updates saved, paired by seed."""
        found = updates(results, self.row)
        saved = {seed: 0.0 if needed is None else 1 - needed / best for seed, (best, needed) in found.items()}
        return paired_difference(saved, dict.fromkeys(saved, 0.0))


def updates(results: Results, row: str) -> dict[int, tuple[int, int | None]]:
    """Return by seed the baseline's best step, and the step at which ELMo reaches its score; None if it never does.

    The numbers come from the dev curves of the runs.
    """
    before, after = results.runs(row, BASELINE), results.runs(row, ELMO)
    found = {}
    for seed in sorted(before.keys() & after.keys()):
        baseline, elmo = before[seed].result, after[seed].result
        goal = baseline["dev"][baseline["metric"]]
        curve = [(step, score) for step, score in elmo["dev_curve"]]
        found[seed] = baseline["best_step"], updates_to_reach(curve, goal)
    return found


@dataclass(frozen=True)
class Layers:
    """Two layers in an evaluation; `FIRST_SENSE` in place of a layer is WordNet's first sense."""

    kind: Kind
    better: Layer
    worse: Layer | str

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{show_layer(self.better)}, against {show_layer(self.worse)}"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of accuracies, paired by test instance."""
        found = [layer_scores(results, self.kind, self.better[0])]
        found.append(found[0] if isinstance(self.worse, str) else layer_scores(results, self.kind, self.worse[0]))
        if found[0] is None or found[1] is None:
            return None
        other = found[1].baseline_answers if isinstance(self.worse, str) else found[1].answers[self.worse[1]]
        return instance_difference(found[0].answers[self.better[1]], other)


@dataclass(frozen=True)
class LayerScores:
    """Accuracy per layer, and that of a baseline (the first sense, or chance), with the score of each instance."""

    layers: Sequence[float]
    answers: Sequence[Answers]
    baseline: float = 0.0
    baseline_answers: Answers = field(default_factory=lambda: np.zeros(0))


def layer_scores(results: Results, kind: Kind, encoder: str, *, row: str | None = None) -> LayerScores | None:
    """Return the accuracies of an encoder's layers in an evaluation; None if it was not run.

    ``row`` is the row of the evaluation; by default that of the paper.
    """
    row = row or {NEIGHBORS: "play", SENSES: "wsd", TAGS: "pos"}[kind]
    found: Any = results.evaluation(kind, row, encoder)
    if found is None:
        return None
    if kind == NEIGHBORS:
        answers = [np.array(of_layer) for of_layer in found["answers"]]
        return LayerScores(found["same_sense"], answers, found["chance"], np.array(found["chance_answers"]))
    num = found["all"]["num_instances"] if kind == SENSES else found["num_tokens"]
    answers = [unpack_bits(text, num) for text in found["answers"]]
    if kind == TAGS:
        return LayerScores(found["test"], answers)
    first = unpack_bits(found["first_sense_answers"], num)
    return LayerScores(found["all"]["layers"], answers, found["all"]["first_sense"], first)


def show_layer(layer: Layer | str) -> str:
    """Return a layer in words."""
    if isinstance(layer, str):
        return layer
    encoder, number = layer
    return f"{ENCODER_TITLES[encoder]}, layer {number if encoder != 'cove' else number + 1}"


@dataclass(frozen=True)
class Weight:
    """Weight of a layer in the trained mix of a place, claimed to be below the plain mean's share."""

    row: str
    place: str
    layer: int

    def title(self) -> str:
        """Return the two sides in words."""
        return f"{find_dataset(self.row).title}: 1/3, against weight of layer {self.layer} at the {self.place}"

    def difference(self, results: Results) -> Difference | None:
        """Return the share of a plain mean minus the weight, over seeds."""
        mixes = mix_weights(results, self.row, self.place)
        weights = {seed: mix[self.layer] for seed, mix in mixes.items()}
        return paired_difference({seed: 1 / len(mix) for seed, mix in mixes.items()}, weights)


@dataclass(frozen=True)
class Favored:
    """Weight of a layer in the trained mix of a place, against the largest weight of the others."""

    row: str
    place: str
    layer: int

    def title(self) -> str:
        """Return the two sides in words."""
        weight = f"weight of layer {self.layer} at the {self.place}"
        return f"{find_dataset(self.row).title}: {weight}, against the largest other one"

    def difference(self, results: Results) -> Difference | None:
        """Return the difference of the weights, over seeds."""
        mixes = mix_weights(results, self.row, self.place)
        weights = {seed: mix[self.layer] for seed, mix in mixes.items()}
        others = {seed: max(mix[: self.layer] + mix[self.layer + 1 :]) for seed, mix in mixes.items()}
        return paired_difference(weights, others)


def mix_weights(results: Results, row: str, place: str) -> dict[int, list[float]]:
    """Return the trained weights after the softmax by seed, of the runs with ELMo at a place."""
    runs = results.runs(row, ELMO)
    return {
        seed: run.result["mixes"][place]["weights"]
        for seed, run in runs.items()
        if place in (run.result["mixes"] or {})
    }


def mean_weights(mixes: dict[int, list[float]]) -> list[float]:
    """Return the mean weights over seeds."""
    return [mean(weights) for weights in zip(*mixes.values(), strict=True)]
