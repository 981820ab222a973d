"""The plan: tables as data, runs that are shared, and claims whose runs are planned."""

import pytest

from elmokit.errors import InputError
from elmokit.paper.arms import ARMS
from elmokit.paper.claims import CLAIMS
from elmokit.paper.comparisons import (
    Arms,
    BestOf,
    Ensemble,
    ErrorsRemoved,
    Favored,
    Gains,
    Layers,
    Probe,
    Steps,
    Updates,
    Weight,
)
from elmokit.paper.estimates import estimate_runs
from elmokit.paper.page import SECTIONS
from elmokit.paper.plan import ENSEMBLE, TABLES, TAGS, TASK, PaperRun, choose_tables, plan_runs
from elmokit.paper.settings import Recipes

RECIPES = Recipes()


def test_table1_has_five_seeds_where_the_paper_has_and_three_elsewhere():
    runs = plan_runs(["table1"], only=["task"])
    seeds = {row: {run.seed for run in runs if run.row == row and run.arm == "elmo"} for row in ("sst", "squad")}
    assert seeds == {"sst": {0, 1, 2, 3, 4}, "squad": {0, 1, 2}}
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)


def test_options_limit_seeds_rows_arms_and_kinds():
    assert {run.seed for run in plan_runs(["table3"], seeds=2)} == {0, 1}
    runs = plan_runs(choose_tables("all"), only=["ner", "senses", "task"])
    assert {(run.row, run.kind) for run in runs} == {("ner-wikigold", TASK), ("ner-wnut17", TASK)}
    assert {run.row for run in plan_runs(choose_tables("all"), only=["senses"])} == {"wsd"}
    cove = plan_runs(choose_tables("all"), only=["cove", "cove-last", "snli", "srl"])
    assert {(run.row, run.arm, run.kind) for run in cove} == {
        (row, arm, TASK) for row in ("snli", "srl") for arm in ("cove", "cove-last")
    }
    assert PaperRun(ENSEMBLE, "snli", "elmo", 2) in plan_runs(["table1"], seeds=2)
    assert not [run for run in plan_runs(["table1"], seeds=1) if run.kind == ENSEMBLE]
    with pytest.raises(
        InputError, match=r"the plan has no 'nothing'; it has rows and tasks .*, snli, .*; arms .*; kinds of runs"
    ):
        plan_runs(["table1"], only=["nothing"])
    with pytest.raises(InputError, match=r"there is no 'table8' to reproduce; choose table1, .* or all"):
        choose_tables("table8")


def test_runs_with_equal_settings_are_planned_once():
    elmo, both, weighted = (PaperRun(TASK, "snli", arm) for arm in ("elmo", "both", "lambda-0.001"))
    assert RECIPES.distinct([elmo, both, weighted]) == [elmo]  # the recipe has both places and lambda 0.001
    other = PaperRun(TASK, "squad", "elmo"), PaperRun(TASK, "squad", "lambda-0.001")
    assert len(RECIPES.distinct(other)) == 2


@pytest.mark.parametrize("row", ["ner-wikigold", "sst", "snli", "squad", "srl", "coref", "parse"])
def test_arms_differ_in_elmo_alone(row):
    base, untrained, elmo = (RECIPES.recipe(PaperRun(TASK, row, arm)) for arm in ("baseline", "untrained", "elmo"))
    assert base.model_copy(update={"elmo": elmo.elmo}) == elmo
    assert untrained.elmo.model_copy(update={"untrained": False}) == elmo.elmo
    assert (base.elmo.place, base.elmo.model) == ("none", None)
    assert elmo.training.patience is not None  # no run ends before it has converged, if it can be helped
    later = RECIPES.recipe(PaperRun(TASK, row, "elmo", 1))
    assert later.model_copy(update={"training": elmo.training}) == elmo


def test_fractions_are_nested_parts_of_the_same_data():
    sizes = [
        RECIPES.recipe(PaperRun(TASK, "snli", "elmo", 0, share)).training.max_examples for share in (0.001, 0.01, 0.1)
    ]
    assert sizes == [8, 80, 800]


def test_every_run_of_a_claim_is_in_the_plan():
    settings = [RECIPES.settings(run) for run in plan_runs(list(TABLES), only=["task"])]
    planned = {(run.kind, run.row, run.arm) for run in plan_runs(list(TABLES))}
    for claim in (claim for claims in CLAIMS.values() for claim in claims):
        for comparison, _ in claim.tests:
            match comparison:
                case Arms(row, better, worse, _, fraction, other):
                    runs = [PaperRun(TASK, row, better, 0, fraction), PaperRun(TASK, row, worse, 0, other)]
                    assert all(RECIPES.settings(run) in settings for run in runs), comparison
                case Gains(row, fraction):
                    assert RECIPES.settings(PaperRun(TASK, row, "elmo", 0, fraction)) in settings
                case Steps(row, larger, smaller):
                    runs = [PaperRun(TASK, row, arm) for arm in (*larger, *smaller)]
                    assert all(RECIPES.settings(run) in settings for run in runs), comparison
                case BestOf(row, arm, others):
                    runs = [PaperRun(TASK, row, one) for one in (arm, *others)]
                    assert all(RECIPES.settings(run) in settings for run in runs), comparison
                case Ensemble(row, arm):
                    assert (ENSEMBLE, row, arm) in planned
                case Updates(row) | Weight(row) | Favored(row) | ErrorsRemoved(row):
                    assert RECIPES.settings(PaperRun(TASK, row, "elmo")) in settings
                case Probe(row, arm):
                    assert RECIPES.settings(PaperRun(TASK, row, arm)) in settings
                    assert (TAGS, "pos", "bilm") in planned
                case Layers(kind, (encoder, _)):
                    assert any((kind, encoder) == (one[0], one[2]) for one in planned)
                case _:
                    raise AssertionError(comparison)


def test_every_table_has_a_section_and_claims():
    assert list(TABLES) == list(CLAIMS) == [name for name, _, _ in SECTIONS]
    assert all(run.arm in ARMS for run in plan_runs(list(TABLES), only=["task"]))


def test_the_whole_page_fits_in_20_hours_of_two_cores():
    runs = RECIPES.distinct(plan_runs(choose_tables("all")))
    assert sum(estimate_runs(runs, {}, RECIPES).values()) < 2 * 20 * 3600
