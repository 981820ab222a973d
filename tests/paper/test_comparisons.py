"""Comparisons of arms, steps, ensembles and weights, against differences worked out by hand."""

from pathlib import Path

import numpy as np
import pytest
from paper_records import make_record, task_result
from toy_datasets import write_recipes

from elmokit.paper.comparisons import (
    BestOf,
    Ensemble,
    ErrorsRemoved,
    Favored,
    Probe,
    Steps,
    Updates,
    Weight,
    updates,
)
from elmokit.paper.instances import pack_bits
from elmokit.paper.plan import ENSEMBLE, TAGS, TASK, PaperRun
from elmokit.paper.results import Results
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes
from elmokit.paper.tables import show_updates

SCORES = {  # by arm, those of seeds 0 and 1
    "baseline": (0.50, 0.52),
    "type": (0.51, 0.54),
    "elmo-alone": (0.57, 0.58),
    "elmo": (0.58, 0.58),
}


@pytest.fixture
def recipes(tmp_path: Path) -> Recipes:
    return Recipes(write_recipes(tmp_path / "recipes"))


def open_results(recipes: Recipes, records: list[RunRecord]) -> Results:
    return Results({one.identity: one for one in records}, recipes)


def make_scores(recipes: Recipes, row: str, scores: dict[str, tuple[float, ...]]) -> list[RunRecord]:
    return [
        make_record(recipes, PaperRun(TASK, row, arm, seed), task_result(score))
        for arm, of_arm in scores.items()
        for seed, score in enumerate(of_arm)
    ]


def test_a_step_gains_more_than_another(recipes: Recipes) -> None:
    results = open_results(recipes, make_scores(recipes, "srl", SCORES))
    found = Steps("srl", ("type", "elmo-alone"), ("baseline", "type")).difference(results)
    assert found is not None
    assert found.mean == pytest.approx((0.06 - 0.01 + 0.04 - 0.02) / 2)
    assert found.error == pytest.approx(0.015)
    title = Steps("srl", ("type", "elmo-alone"), ("elmo-alone", "elmo")).title()
    assert title == (
        "EWT PropBank: gain of ELMo without GloVe over ELMo's token layer only, "
        "against gain of + ELMo over ELMo without GloVe"
    )
    assert Steps("srl", ("type", "last"), ("baseline", "type")).difference(results) is None


def test_an_arm_is_compared_with_the_best_of_all_others(recipes: Recipes) -> None:
    scores = {"input": (0.5, 0.6), "both": (0.58, 0.56), "output": (0.5, 0.5), "gate": (0.6, 0.57)}
    records = make_scores(recipes, "snli", scores)
    comparison = BestOf("snli", "gate", ("input", "both", "output"))
    found = comparison.difference(open_results(recipes, records))
    assert found is not None
    assert found.mean == pytest.approx((0.02 + 0.01) / 2)  # both has the best mean, input the best single run
    assert comparison.difference(open_results(recipes, [one for one in records if one.run.arm != "output"])) is None


def test_an_ensemble_is_compared_with_its_members(recipes: Recipes) -> None:
    members = make_scores(recipes, "snli", {"elmo": (0.60, 0.64, 0.99)})
    run = PaperRun(ENSEMBLE, "snli", "elmo", 2)
    inputs = {"members": " ".join(one.identity for one in members[:2])}
    result = {"dev": {"f1": 0.9}, "test": {"f1": 0.66}, "metric": "f1", "seconds": 1.0}
    ensemble = RunRecord("e", run, recipes.settings(run), inputs, "toy", result, members[0].facts)
    found = Ensemble("snli", "elmo").difference(open_results(recipes, [*members, ensemble]))
    assert found is not None
    assert (found.mean, found.num) == (pytest.approx(0.04), 2)
    assert Ensemble("snli", "elmo").difference(open_results(recipes, members)) is None


def test_a_weight_is_claimed_to_be_the_largest_or_below_a_third(recipes: Recipes) -> None:
    results = open_results(recipes, make_scores(recipes, "srl", {"elmo": (0.5, 0.5)}))  # 0.2, 0.7, 0.1
    for weight, mean in (
        (Favored("srl", "input", 1), 0.7 - 0.2),
        (Favored("srl", "input", 2), 0.1 - 0.7),
        (Weight("srl", "input", 2), 1 / 3 - 0.1),
    ):
        found = weight.difference(results)
        assert found is not None
        assert found.mean == pytest.approx(mean)
    assert Weight("srl", "input", 2).title() == "EWT PropBank: 1/3, against weight of layer 2 at the input"
    assert Favored("srl", "input", 1).title().endswith("weight of layer 1 at the input, against the largest other one")


def test_the_errors_that_elmo_removes_are_compared_with_a_goal(recipes: Recipes) -> None:
    scores = {"baseline": (0.8, 0.9), "elmo": (0.85, 0.9)}  # a quarter of 0.2, nothing of 0.1
    found = ErrorsRemoved("parse", 0.1).difference(open_results(recipes, make_scores(recipes, "parse", scores)))
    assert found is not None
    assert (found.mean, found.error) == (pytest.approx((0.15 - 0.1) / 2), pytest.approx(0.125))


def test_a_probe_is_compared_with_a_tagger_over_its_seeds(recipes: Recipes) -> None:
    tagger = make_scores(recipes, "tag", {"baseline": (0.92, 0.94)})
    result = {"dev": [0.8, 0.9], "test": [0.8, 0.95], "num_tokens": 8, "answers": [pack_bits(np.ones(8, bool))] * 2}
    probe = make_record(recipes, PaperRun(TAGS, "pos", "bilm"), result)
    found = Probe("tag", "baseline", 1).difference(open_results(recipes, [*tagger, probe]))
    assert found is not None
    assert (found.mean, found.error) == (pytest.approx(0.02), pytest.approx(0.01))
    assert Probe("tag", "baseline", 1).difference(open_results(recipes, tagger)) is None


def test_a_score_that_elmo_never_reaches_saves_no_updates(recipes: Recipes) -> None:
    results = open_results(recipes, make_scores(recipes, "srl", {"baseline": (0.5, 0.5), "elmo": (0.49, 0.6)}))
    assert updates(results, "srl") == {0: (20, None), 1: (20, 10)}
    found = Updates("srl").difference(results)
    assert found is not None
    assert found.mean == pytest.approx((0 + 0.5) / 2)
    assert "not reached for 20, 10 for 20" in show_updates(results)
