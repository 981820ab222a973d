"""The page and the figures, from a file of runs alone: neither data nor models exist here."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from paper_records import FACTS, WEIGHTS, make_record, task_result
from toy_datasets import write_recipes

from elmokit import cli
from elmokit.errors import InputError
from elmokit.paper.comparisons import updates
from elmokit.paper.evaluations import QUERIES
from elmokit.paper.instances import pack_bits
from elmokit.paper.page import make_page
from elmokit.paper.plan import ENSEMBLE, SENSES, TASK, TUNING, PaperRun
from elmokit.paper.results import Results
from elmokit.paper.run_file import RunFile, RunRecord
from elmokit.paper.settings import Recipes

pytestmark = pytest.mark.long


def make_records(recipes: Recipes) -> Iterator[RunRecord]:
    for seed in range(3):
        for row in ("snli", "srl"):
            for fraction in (0.1, 1.0):
                less = 0.2 * (fraction < 1)
                baseline, elmo = (PaperRun(TASK, row, arm, seed, fraction) for arm in ("baseline", "elmo"))
                yield make_record(recipes, baseline, task_result(0.5 - less + seed / 100, place=None))
                yield make_record(recipes, elmo, task_result(0.6 - less / 2 + seed / 100))
    yield make_record(recipes, PaperRun(TASK, "ner-wikigold", "elmo"), task_result(0.7))
    perplexities = {"before": {"perplexity": 90.0}, "after": {"perplexity": 30.0}}
    yield make_record(recipes, PaperRun(TUNING, "sst", "bilm"), perplexities)
    senses = {"num_instances": 6798, "first_sense": 0.659, "layers": [0.6, 0.65, 0.7], "num_unseen": 9}
    rights = np.arange(6798) < 6798 * np.array([[0.6], [0.65], [0.7], [0.659]])  # each one has what a worse one has
    *layers, first = map(pack_bits, rights)
    answers = {"answers": layers, "first_sense_answers": first}
    yield make_record(recipes, PaperRun(SENSES, "wsd", "bilm"), {"all": senses, **answers})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of runs, and the recipes of its plan."""
    root = tmp_path_factory.mktemp("results")
    recipes = Recipes(write_recipes(root / "recipes"))
    file = RunFile(root / "paper-runs.jsonl")
    for record in make_records(recipes):
        file.add(record)
    return root


def open_results(folder: Path, *more: RunRecord, elmo: str | None = None) -> Results:
    records = RunFile(folder / "paper-runs.jsonl").read()
    return Results(records | {one.identity: one for one in more}, Recipes(folder / "recipes"), elmo=elmo)


def test_the_command_writes_page_and_figures_from_the_file_alone_always_the_same(folder, capfd):
    args = ["reproduce", "all", "--page", "--results", str(folder), "--recipes", str(folder / "recipes")]
    assert cli.run(args) == 0
    assert "its 27 runs are in" in capfd.readouterr().err
    page = (folder / "paper.md").read_text("utf-8")
    claim = "ELMo improves every task."
    assert f"| {claim} | SNLI: + ELMo, against baseline | 88.7, 88.0 | +10.00 ± 0.00 | holds |" in page
    assert "|  | EWT PropBank: + ELMo, against baseline | 84.6, 81.4 | +10.00 ± 0.00 | holds |" in page
    assert (
        "| snli | SNLI | accuracy | 51.00 ± 1.00 (3) | not run yet | 61.00 ± 1.00 (3) | not run yet | 20.4% |" in page
    )
    assert "| SST-5 | 90.0 | 30.0 | 131.5, 78.6 |" in page
    assert "| biLM | 2 | 70.00 | 69.0 |" in page
    assert "biLM, layer 2, against the first sense | 69.0, 65.9 | +4.10 ± 0.24 | holds |" in page
    assert "| EWT PropBank | 10 for 20, 10 for 20, 10 for 20 |" in page
    assert "| SNLI | input | 0.20, 0.70, 0.10 | 1.50 | 3 |" in page
    rows = "SQuAD, a part; LitBank; Wikigold; WNUT-17; SST-5; EWT trees"
    assert f"Claims without runs: ELMo improves every task ({rows}). " in page
    assert "Not run yet: WNUT-17; SST-5; SQuAD, a part; LitBank; EWT trees." in page
    assert "Ensembles of the same runs, test scores: not run yet." in page
    assert "| [Table 5: word senses](#table-5-word-senses) | 2 | 1 | 0 | 4 |" in page
    for name in ("figure1", "figure2"):
        assert f"(paper-{name}.svg)" in page
        assert (folder / f"paper-{name}.png").read_bytes().startswith(b"\x89PNG")
    drawn = {path: path.read_bytes() for path in folder.glob("paper-figure*")}
    assert len(drawn) == 4
    svg = drawn[folder / "paper-figure2.svg"].decode()
    assert svg.count("<pattern") == 3  # two weights are below 1/3, one above 2/3, each in its own color
    assert all(f"<!-- {weight:.2f} -->" in svg for weight in WEIGHTS)
    assert cli.run(args) == 0
    assert drawn == {path: path.read_bytes() for path in drawn}


def test_how_an_encoder_was_trained_stands_below_its_senses(folder):
    recipes = Recipes(folder / "recipes")
    senses = {"num_instances": 6798, "first_sense": 0.659, "layers": [0.5, 0.6], "num_unseen": 9}
    answers = {
        "answers": [pack_bits(np.arange(6798) < 3399)] * 2,
        "first_sense_answers": pack_bits(np.arange(6798) < 9),
    }
    training = {"num_examples": 1234, "epochs": 1.5, "seconds": 5400.0, "test_perplexity": 9.87, "unknown_share": 0.042}
    run = PaperRun(SENSES, "wsd", "cove")
    published, trained = (
        make_page(open_results(folder, make_record(recipes, run, result)), runs_file="x", figures={})
        for result in ({"all": senses, **answers}, {"all": senses, **answers, "training": training})
    )
    assert "| CoVe | 1,234 pairs | 1.50 | 1.5 | 9.9 (4.2% unknown words) |" in trained
    assert "Encoders that were trained" not in published


def test_updates_are_read_from_the_dev_curves(folder):
    assert updates(open_results(folder), "srl") == {0: (20, 10), 1: (20, 10), 2: (20, 10)}


def test_runs_of_other_recipes_and_other_data_do_not_count(folder, tmp_path):
    recipes = Recipes(write_recipes(tmp_path / "recipes"))
    path = tmp_path / "recipes" / "snli.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.01", "learning_rate = 0.5"))
    run = PaperRun(TASK, "snli", "elmo")
    assert Results(RunFile(folder / "paper-runs.jsonl").read(), recipes).find(run) is None
    newer = make_record(Recipes(folder / "recipes"), PaperRun(TASK, "snli", "last"), task_result(0.4), data="newer")
    results = open_results(folder, newer)
    assert results.find(newer.run) == newer
    assert results.find(run) is None
    assert results.find(PaperRun(TASK, "srl", "elmo")) is not None


def test_each_bilm_has_its_own_runs_and_all_share_the_baselines(folder):
    other = make_record(Recipes(folder / "recipes"), PaperRun(TASK, "snli", "elmo"), task_result(0.9), elmo="large")
    newest, named = open_results(folder, other), open_results(folder, other, elmo="toy")
    assert (newest.elmo, named.elmo) == ("large", "toy")
    assert newest.scores("snli", "elmo", "dev") == {0: 0.9}
    assert named.scores("snli", "elmo", "dev") == {0: 0.6, 1: 0.61, 2: 0.62}
    assert newest.scores("snli", "baseline", "dev") == named.scores("snli", "baseline", "dev")
    with pytest.raises(InputError, match="has none with huge; it has runs with toy, large"):
        open_results(folder, other, elmo="huge")


def test_a_bilm_is_called_by_its_name_or_by_that_of_its_run(folder, tmp_path, capfd):
    run = tmp_path / "my-run"
    (run / "model").mkdir(parents=True)
    args = ["reproduce", "all", "--page", "--results", str(folder), "--recipes", str(folder / "recipes")]
    for elmo, name in (
        (str(tmp_path / "my-run" / "model"), "my-run"),
        (str(tmp_path / "my-run"), "my-run"),
        ("x", "x"),
    ):
        assert cli.run([*args, "--elmo", elmo]) == 1
        assert f"the file of runs has none with {name};" in capfd.readouterr().err


def test_an_ensemble_counts_if_its_members_do(folder):
    results = open_results(folder)
    members = [results.find(PaperRun(TASK, "snli", "elmo", seed)).identity for seed in (0, 1)]
    run = PaperRun(ENSEMBLE, "snli", "elmo", 2)
    recipes = Recipes(folder / "recipes")
    result = {"dev": {"f1": 0.7}, "test": {"f1": 0.7}, "metric": "f1", "seconds": 1.0}

    def ensemble(inputs: str) -> RunRecord:
        return RunRecord(f"e {inputs}", run, recipes.settings(run), {"members": inputs}, "toy", result, FACTS)

    assert open_results(folder, ensemble(" ".join(members))).ensemble("snli", "elmo") == (2, result)
    assert open_results(folder, ensemble(f"{members[0]} other")).ensemble("snli", "elmo") is None


def test_a_page_without_runs_says_so(tmp_path):
    assert cli.run(["reproduce", "all", "--page", "--results", str(tmp_path)]) == 0
    assert "Of 109 comparisons 0 hold, 0 do not, 0 are open (one seed, or too noisy), and 109 are not run yet." in (
        tmp_path / "paper.md"
    ).read_text("utf-8")
    assert not list(tmp_path.glob("*.svg"))
    assert len(QUERIES) == 2


def test_the_plan_has_hours_and_counts_what_is_finished(folder, capfd):
    args = ["reproduce", "figure1", "--plan", "--results", str(folder), "--recipes", str(folder / "recipes")]
    assert cli.run([*args, "--seeds", "1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["row", "kind", "runs", "core", "hours", "arms"]
    assert lines[1].split()[:3] == ["snli", "task", "5"]
    assert lines[-1].startswith("10 runs to make, 8 finished; ")
