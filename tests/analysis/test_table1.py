"""Table 1: three arms that differ in ELMo alone, runs that go on, means that say over what, and its page."""

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_datasets import save_toy_bilm, write_data, write_home, write_tagged

from elmokit import cli
from elmokit.analysis.datasets import DATASETS, DataSet, choose_datasets
from elmokit.analysis.table1 import (
    ARMS,
    Failed,
    TableRun,
    make_recipe,
    plan_runs,
    read_run,
    run_table,
)
from elmokit.analysis.table1_summary import error_reduction, row_cells, summarize, verdict
from elmokit.cli.progress import Progress
from elmokit.cli.table_display import TableDisplay
from elmokit.config import read_recipe
from elmokit.errors import ConfigError, InputError, OutputError
from elmokit.locking import locked
from elmokit.runs.provenance import TREE, find_commit, gather_facts, shown_word
from elmokit.runs.seeds import seeded
from elmokit.tasks.batches import TrainingBatches
from elmokit.tasks.materials import all_sequences, gather_materials
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import DevScores, Entry, Finished, TaskPlan
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe, WordSettings
from elmokit.tasks.state import START
from elmokit.tasks.task_model import build_task_model

TWO_ROWS = ["ner-wnut17", "snli"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, recipes, vectors and a biLM; and a finished table of two rows and two seeds in the folder whole."""
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    entries: list[Any] = []
    assert run_table(
        plan(folder, folder / "whole"),
        folder / "data",
        folder / "whole",
        report=lambda *entry: entries.append(entry),
        stop=threading.Event(),
    )
    return folder


def plan(home: Path, run_dir: Path, *, rows: list[str] = TWO_ROWS, num_seeds: int = 2) -> list[TableRun]:
    words = WordSettings(file=str(home / "data" / "glove.txt"), lower="always")
    datasets = choose_datasets(rows)
    recipes = {
        one.task: read_recipe(TaskRecipe, home / "recipes" / f"{one.task}.toml", []).model_copy(update={"words": words})
        for one in datasets
    }
    return plan_runs(datasets, recipes, run_dir, bilm=str(home / "bilm"), num_seeds=num_seeds)


def outcome(folder: Path) -> dict[str, Any]:
    result = json.loads((folder / "result.json").read_bytes())
    return {name: result[name] for name in ("step", "best_step", "dev", "test", "seed")}


def command(home: Path, *options: str) -> list[str]:
    given = {"--data": home / "data", "--elmo": home / "bilm", "--vectors": home / "data" / "glove.txt"}
    given |= {"--recipes": home / "recipes", "--tasks": ",".join(TWO_ROWS), "--seeds": 2}
    return ["reproduce", "table1", *(str(word) for pair in given.items() for word in pair), *options]


# The arms


def differences(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def test_arms_differ_in_elmo_alone_and_seeds_in_the_seed_alone(home, tmp_path):
    runs = {(run.dataset.name, run.arm, run.seed): run.recipe.model_dump() for run in plan(home, tmp_path)}
    for name in TWO_ROWS:
        base, untrained, elmo = (runs[name, arm, 0] for arm in ("baseline", "untrained", "elmo"))
        assert differences(base, elmo) == differences(untrained, elmo) == {"elmo"}
        assert differences(untrained["elmo"], elmo["elmo"]) == {"untrained"}
        assert (base["elmo"]["place"], base["elmo"]["model"]) == ("none", None)
        later = runs[name, "elmo", 1]
        assert differences(later, elmo) == {"training"}
        assert differences(later["training"], elmo["training"]) == {"seed"}


def test_untrained_and_elmo_begin_with_the_same_weights_and_all_arms_have_the_same_batches(home, tmp_path):
    begun = {}
    for run in plan(home, tmp_path, rows=["snli"], num_seeds=1):
        task = get_task(run.dataset.task)
        data = run.dataset.read(task, *run.dataset.find_files(home / "data"))
        materials = gather_materials(task, run.recipe, data, tmp_path / run.arm)
        if materials.layers is not None:
            materials.layers.add(all_sequences(task, materials.train))
        with seeded(run.seed, START):
            model = build_task_model(task, run.recipe, materials.labels, materials.columns)
        batches = TrainingBatches(model, materials.train)
        begun[run.arm] = model.module.state_dict(), [batches.make(step) for step in range(2 * batches.per_epoch)]
    (_, of_baseline), (untrained, of_untrained), (elmo, of_elmo) = (begun[arm] for arm in ARMS)
    assert all(torch.equal(untrained[name], elmo[name]) for name in elmo)
    for one, *others in zip(of_baseline, of_untrained, of_elmo, strict=True):
        assert all(torch.equal(one.target.classes_B, other.target.classes_B) for other in others)
        for column, *theirs in zip(one.columns, *(other.columns for other in others), strict=True):
            assert all(torch.equal(column.words_BT, other.words_BT) for other in theirs)


def test_the_elmo_of_the_recipe_is_kept():
    base = TaskRecipe(task="ner", elmo=ElmoSettings(place="both", penalty=0.3))
    made = make_recipe(base, "elmo", bilm="b", seed=0)
    assert (made.elmo.place, made.elmo.penalty, made.elmo.model) == ("both", 0.3, "b")
    with pytest.raises(ConfigError, match=r"has elmo\.place = none"):
        make_recipe(TaskRecipe(task="ner", elmo=ElmoSettings(place="none")), "elmo", bilm="b", seed=0)


def test_runs_are_made_seed_by_seed(home, tmp_path):
    runs = plan(home, tmp_path)
    order = [(run.seed, run.dataset.name, run.arm) for run in runs]
    assert order == [(seed, name, arm) for seed in (0, 1) for name in TWO_ROWS for arm in ARMS]
    assert runs[0].folder == tmp_path / "ner-wnut17" / "baseline" / "seed-0"


def test_the_untrained_arm_has_the_size_of_the_one_with_elmo(home):
    layers = {
        arm: json.loads((home / "whole" / "snli" / arm / "seed-0" / "result.json").read_bytes())["recipe"]["elmo"]
        for arm in ARMS
    }
    assert [layers[arm]["untrained"] for arm in ARMS] == [False, True, False]
    parameters = {arm: read_run(home / "whole" / "snli" / arm / "seed-0").facts.num_parameters for arm in ARMS}
    assert parameters["baseline"] < parameters["untrained"] == parameters["elmo"]


# Runs


class Stop(threading.Event):
    """Is set once a run reports what one waits for."""

    def __init__(self, when: Callable[[TableRun, Entry | Failed], bool]) -> None:
        super().__init__()
        self.when = when
        self.entries: list[tuple[TableRun, Entry | Failed]] = []

    def report(self, run: TableRun, entry: Entry | Failed) -> None:
        self.entries.append((run, entry))
        if self.when(run, entry):
            self.set()

    def started(self) -> list[str]:
        return [str(run) for run, entry in self.entries if isinstance(entry, TaskPlan)]


@pytest.mark.long
def test_an_interrupted_table_is_resumed_and_ends_as_one_that_was_not(home, tmp_path):
    runs = plan(home, tmp_path)
    # In the middle of the fifth run, after it has looked at the development data once.
    stop = Stop(lambda run, entry: run is runs[4] and isinstance(entry, DevScores))
    assert not run_table(runs, home / "data", tmp_path, report=stop.report, stop=stop)
    assert stop.started() == [str(run) for run in runs[:5]]
    assert read_run(runs[4].folder) is None
    model = (runs[0].folder / "model" / "model.safetensors").stat().st_mtime_ns

    again = Stop(lambda *_: False)
    assert run_table(runs, home / "data", tmp_path, report=again.report, stop=again)
    assert again.started() == [str(run) for run in runs[4:]]
    assert next(entry for _, entry in again.entries if isinstance(entry, TaskPlan)).step > 0
    assert (runs[0].folder / "model" / "model.safetensors").stat().st_mtime_ns == model
    assert {str(run) for run, entry in again.entries if isinstance(entry, Finished)} == {str(run) for run in runs}
    for run in runs:
        assert outcome(run.folder) == outcome(home / "whole" / run.folder.relative_to(tmp_path))


def copy_of_one_row(home: Path, folder: Path) -> Path:
    """A finished table of one row and one seed, to change something of."""
    run_dir = folder / "runs"
    for arm in ARMS:
        shutil.copytree(home / "whole" / "snli" / arm / "seed-0", run_dir / "snli" / arm / "seed-0")
    shutil.copy(home / "whole" / "inputs.json", run_dir)
    return run_dir


def change_recipe(run: TableRun, part: str, **values: Any) -> TableRun:
    settings = getattr(run.recipe, part).model_copy(update=values)
    return replace(run, recipe=run.recipe.model_copy(update={part: settings}))


def test_finished_runs_stay_as_they_are_wherever_their_files_are_now(home, tmp_path):
    run_dir = copy_of_one_row(home, tmp_path)
    shutil.copytree(home / "data", tmp_path / "moved")
    shutil.copytree(home / "bilm", tmp_path / "renamed")
    runs = [
        change_recipe(run, "words", file=str(tmp_path / "moved" / "glove.txt"))
        for run in plan(home, run_dir, rows=["snli"], num_seeds=1)
    ]
    runs = [
        run if run.arm == "baseline" else change_recipe(run, "elmo", model=str(tmp_path / "renamed")) for run in runs
    ]
    before = {
        path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.name in ("facts.json", "result.json")
    }
    said: list[Any] = []
    assert run_table(
        runs, tmp_path / "moved", run_dir, report=lambda _, entry: said.append(entry), stop=threading.Event()
    )
    assert [type(entry) for entry in said] == [Finished] * 3
    assert before
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("change", [{"epochs": 1}, {"patience": 1}])
def test_a_finished_run_of_another_recipe_is_not_gone_on_with(home, tmp_path, change):
    run_dir = copy_of_one_row(home, tmp_path)
    runs = [change_recipe(run, "training", **change) for run in plan(home, run_dir, rows=["snli"], num_seeds=1)]
    said: list[Any] = []
    assert run_table(runs, home / "data", run_dir, report=lambda _, entry: said.append(entry), stop=threading.Event())
    assert [type(entry) for entry in said] == [Failed] * 3
    assert "is a finished run of another recipe; remove it to run it anew" in said[0].message


def test_layers_are_shared_and_those_of_the_untrained_arm_removed(home):
    assert len(list((home / "whole" / "layers").iterdir())) == 1  # of one biLM, for all rows and seeds
    assert list((home / "whole" / "untrained-layers").iterdir()) == []
    assert not list((home / "whole").glob("*/*/*/layers"))


def test_test_data_is_read_once_a_run_and_sizes_are_kept(home, tmp_path):
    reads: list[str] = []

    def read(task: Any, *paths: Path) -> Any:
        reads.append("data")
        data = dataset.read(task, *paths)
        return replace(data, read_test=lambda: reads.append("test") or data.read_test())

    (dataset,) = choose_datasets(["ner-wnut17"])
    runs = [replace(run, dataset=replace(dataset, read=read)) for run in plan(home, tmp_path, rows=["ner-wnut17"])][:2]
    for _ in range(2):  # the second time all is finished, and nothing is read
        run_table(runs, home / "data", tmp_path, report=lambda *_: None, stop=threading.Event())
    assert reads == ["data", "test", "test"]
    facts = read_run(runs[0].folder).facts
    assert (facts.num_train, facts.num_dev, facts.num_test) == (10, 4, 5)
    now = gather_facts([])
    assert all(getattr(facts, name) == now[name] for name in ("machine", "versions", "kernels", "commit", "date"))


def test_a_run_that_fails_is_reported_and_the_others_continue(home, tmp_path):
    write_data(tmp_path / "data")
    (tmp_path / "data" / "ner" / "wnut17.dev.conll.xz").unlink()
    (tmp_path / "data" / "ner" / "wnut17.dev.conll").write_text("Ada PERSON\n")
    runs = plan(home, tmp_path / "run", num_seeds=1)
    heard = Stop(lambda *_: False)
    assert run_table(runs, tmp_path / "data", tmp_path / "run", report=heard.report, stop=heard)
    failed = {str(run): entry.message for run, entry in heard.entries if isinstance(entry, Failed)}
    assert list(failed) == [str(run) for run in runs[:3]]
    assert "wnut17.dev.conll, line 1: tag 'PERSON'" in failed[str(runs[0])]
    assert failed[str(runs[0])].startswith(str(runs[0].folder))
    assert [read_run(run.folder) is not None for run in runs] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("what", ["biLM", "static vectors", "data of snli"])
def test_other_inputs_are_rejected_though_their_names_are_the_same(home, tmp_path, what):
    write_data(tmp_path / "data")
    (tmp_path / "recipes").symlink_to(home / "recipes")
    save_toy_bilm(tmp_path / "bilm")
    runs = plan(tmp_path, tmp_path / "run", num_seeds=1)
    stop = threading.Event()
    stop.set()
    assert not run_table(runs, tmp_path / "data", tmp_path / "run", report=lambda *_: None, stop=stop)
    if what == "biLM":
        (tmp_path / "bilm").rename(tmp_path / "old")
        save_toy_bilm(tmp_path / "bilm", seed=5)
    elif what == "static vectors":
        (tmp_path / "data" / "glove.txt").write_text("ada 1 2 3\n")
    else:
        (tmp_path / "data" / "snli" / "snli_1.0_dev.jsonl").write_text("{}\n")  # goes before the packed one
    with pytest.raises(ConfigError, match=f"the table in this folder has a different {what}"):
        run_table(runs, tmp_path / "data", tmp_path / "run", report=lambda *_: None, stop=stop)


def test_two_processes_cannot_make_one_table(home, tmp_path):
    with locked(tmp_path, work="making a table in it"), pytest.raises(OutputError, match="making a table"):
        run_table(plan(home, tmp_path), home / "data", tmp_path, report=lambda *_: None, stop=threading.Event())


# Data


def test_rows_have_the_metric_of_their_task_and_all_tasks_have_a_row():
    assert {one.task for one in DATASETS} == {"coref", "ner", "snli", "squad", "srl", "sst"}
    assert all(get_task(one.task).metric == one.metric for one in DATASETS)


def test_rows_are_chosen_by_their_name_or_their_task():
    assert [one.name for one in choose_datasets(["snli", "ner"])] == ["ner-wikigold", "ner-wnut17", "snli"]
    assert [one.name for one in choose_datasets(["ner-wnut17"])] == ["ner-wnut17"]
    assert choose_datasets([]) == list(DATASETS)
    with pytest.raises(InputError, match="no row 'pos'; its rows are ner-wikigold, "):
        choose_datasets(["pos"])


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda one: one.name)
def test_every_row_reads_its_files_and_no_example_is_in_two_parts(home: Path, dataset: DataSet) -> None:
    task = get_task(dataset.task)
    data = dataset.read(task, *dataset.find_files(home / "data"))
    assert data.train
    assert data.dev
    assert data.read_test()
    if dataset.split != "as published" and dataset.task != "snli":
        divided = [data.train, data.dev, *([data.read_test()] if len(dataset.files) == 1 else [])]
        parts = [{repr(task.sequences(example)[0]) for example in part} for part in divided]
        for one, other in combinations(parts, 2):
            assert one.isdisjoint(other)


def test_files_are_found_packed_or_not_and_a_missing_one_is_named(tmp_path):
    (dataset,) = choose_datasets(["ner-wikigold"])
    with pytest.raises(InputError, match=r"has no ner/wikigold\.conll \(or \.xz or \.gz of it\).*--tasks"):
        dataset.find_files(tmp_path)
    for name in ("wikigold.conll.gz", "wikigold.conll"):
        (tmp_path / "ner").mkdir(exist_ok=True)
        (tmp_path / "ner" / name).touch()
        assert [path.name for path in dataset.find_files(tmp_path)] == [name]


# Numbers


def test_a_mean_over_fewer_seeds_says_how_many():
    assert summarize({0: 0.5, 1: 0.52, 2: 0.54}, num_seeds=3) == "52.00 ± 2.00"
    assert summarize({0: 0.5, 2: 0.54}, num_seeds=3) == "52.00 ± 2.83 (n=2)"
    assert summarize({1: 0.5}, num_seeds=3) == "50.00 (n=1)"
    assert summarize({0: 0.5}, num_seeds=1) == "50.00"
    assert summarize({}, num_seeds=3) == "-"


def test_the_error_reduction_is_over_the_seeds_that_both_arms_have():
    assert error_reduction({0: 0.6, 1: 0.8}, {0: 0.8, 1: 0.9}, num_seeds=2) == "50.0%"
    assert error_reduction({0: 0.6, 1: 0.8}, {1: 0.75, 2: 1.0}, num_seeds=3) == "-25.0% (n=1)"
    assert error_reduction({0: 0.6}, {1: 0.8}, num_seeds=2) == "-"
    assert error_reduction({0: 1.0}, {0: 0.5}, num_seeds=1) == "-"


def test_a_row_is_of_test_scores():
    (dataset,) = choose_datasets(["snli"])
    results = {
        ("snli", arm, seed): Finished(9, 9, {"accuracy": 0.1}, {"accuracy": score}, 60.0, seed)
        for arm, seed, score in (("baseline", 0, 0.5), ("elmo", 0, 0.75), ("baseline", 1, 0.7))
    }
    assert row_cells(dataset, results, num_seeds=2) == ["60.00 ± 14.14", "-", "75.00 (n=1)", "50.0% (n=1)"]


def test_a_row_that_elmo_does_not_help_is_reported():
    datasets = choose_datasets(["snli", "sst"])
    scores = {("snli", "baseline"): 0.5, ("snli", "elmo"): 0.75, ("sst", "baseline"): 0.5, ("sst", "elmo"): 0.5}
    results = {
        (name, arm, 0): Finished(9, 9, {"accuracy": 0.1}, {"accuracy": score}, 1800.0, 0)
        for (name, arm), score in scores.items()
    }
    expected = (
        "With ELMo 1 of 2 rows are above their baselines on average; not above: SST-5. The 4 finished runs trained "
    )
    assert verdict(datasets, results) == expected + "for 2.0 hours in total."
    assert verdict(datasets[1:], results).startswith("With ELMo 1 of 1 rows are above their baselines on average. The")
    assert verdict(datasets, {}).startswith("With ELMo 0 of 0 rows")


def test_the_display_tells_ends_and_the_time_left(home, tmp_path, capfd):
    runs = plan(home, tmp_path)
    display = TableDisplay(runs, Progress(None))
    for run, seconds in ((runs[0], 60.0), (runs[1], 100.0)):
        display.report(run, TaskPlan(0, 9, 0.0, 10, 4, 7, "f1"))
        display.report(run, Finished(9, 6, {"f1": 0.5}, {"f1": 0.4}, seconds, 0))
    display.report(runs[2], Finished(9, 6, {"f1": 0.5}, {"f1": 0.4}, 80.0, 0))  # it was finished before
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "elmokit: ner-wnut17, baseline, seed 0: started",
        "elmokit: ner-wnut17, baseline, seed 0: test f1 40.00, dev 50.00, after 0:01:00; "
        "1 of 12 runs, 0:05:00 left for the rows with a finished run",
        "elmokit: ner-wnut17, untrained, seed 0: started",
        "elmokit: ner-wnut17, untrained, seed 0: test f1 40.00, dev 50.00, after 0:01:40; "
        "2 of 12 runs, 0:05:20 left for the rows with a finished run",
    ]
    for run in runs[3:]:
        display.report(run, Failed("no luck"))
    assert display._all_left() == ""


# The command


def test_the_command_makes_the_table_and_its_page(home, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    notes = ["--note", "Made in a hurry.", f"--note={'Very ' * 100}cold."]
    args = command(home, "--run-dir", str(home / "whole"), *notes, "--save", "page.md")
    monkeypatch.setattr("sys.argv", ["elmokit", *args])
    assert cli.run(args) == 0
    out, err = capfd.readouterr()
    assert err == "elmokit: the table is in page.md, its runs in page-runs.jsonl\n"  # all were finished before
    rows = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert rows[0] == ["task", "data", "metric", "baseline", "+ untrained", "+ ELMo", "error reduction", "runs"]
    assert [row[:3] for row in rows[1:]] == [["ner", "WNUT-17", "f1"], ["snli", "SNLI", "accuracy"]]
    assert all(row[-1] == "6/6" for row in rows[1:])
    page = Path("page.md").read_text("utf-8")
    for row in rows[1:]:
        assert f"| {' | '.join(row[:-1])} |" in page
    assert "| WNUT-17 | as published | 10 | 4 | 5 | wnut17.train.conll.xz (sha256 " in page
    scores = [outcome(home / "whole" / "snli" / "elmo" / f"seed-{seed}")["test"]["accuracy"] for seed in (0, 1)]
    assert f"| {100 * scores[0]:.2f}, {100 * scores[1]:.2f} |" in page
    asked = "--data data --elmo bilm --vectors glove.txt --recipes recipes --tasks ner-wnut17,snli --seeds 2"
    assert f"- command: elmokit reproduce table1 {asked} --run-dir whole --save page.md\n" in page
    assert page.count("\n\nMade in a hurry.\n\n") == page.count("Very cold.\n\nEvery run with its recipe is in ") == 1
    assert "- biLM: bilm: 3 layers of width 12, 12 cells; sha256 of config.json " in page
    assert f"- commit: {find_commit()}\n" in page
    assert str(home) not in page


def test_every_run_stands_beside_the_page(home, tmp_path, monkeypatch, capfd):
    save = tmp_path / "tasks.md"
    args = command(home, "--run-dir", str(home / "whole"), "--only-print", "--save", str(save))
    monkeypatch.setattr("sys.argv", ["elmokit", *args])
    assert cli.run(args) == 0
    capfd.readouterr()
    page = save.read_text("utf-8")
    assert "(tasks-runs.jsonl)" in page
    assert str(tmp_path) not in page
    text = (tmp_path / "tasks-runs.jsonl").read_text("utf-8")
    first, *runs = map(json.loads, text.splitlines())
    assert first["inputs"] == json.loads((home / "whole" / "inputs.json").read_bytes())
    assert [(run["row"], run["arm"], run["seed"]) for run in runs] == list(product(TWO_ROWS, ARMS, (0, 1)))
    for run in runs:
        folder = home / "whole" / run["row"] / run["arm"] / f"seed-{run['seed']}"
        expected = json.loads((folder / "result.json").read_bytes())
        assert run["facts"] == json.loads((folder / "facts.json").read_bytes())
        assert differences(run["result"], expected) == {"recipe"}
        recipe = run["result"]["recipe"]
        assert differences(recipe, expected["recipe"]) == ({"words"} if run["arm"] == "baseline" else {"words", "elmo"})
        assert recipe["words"]["file"] == "glove.txt"
        assert recipe["elmo"]["model"] == (None if run["arm"] == "baseline" else "bilm")
    assert str(home) not in text


def test_only_print_shows_what_there_is_and_how_much_of_it(home, capfd):
    args = ["reproduce", "table1", "--only-print", "--run-dir", str(home / "whole"), "--tasks", "ner", "--seeds", "3"]
    assert cli.run(args) == 0
    out = capfd.readouterr().out
    wikigold, wnut = (re.split(r"  +", line.strip()) for line in out.splitlines()[1:])
    assert wikigold[3:] == ["-", "-", "-", "-", "0/9"]
    assert wnut[-1] == "6/9"
    assert all("(n=2)" in cell for cell in wnut[3:7])


def test_only_print_rejects_to_compare_runs_of_different_recipes(home, tmp_path, capfd):
    runs = plan(home, tmp_path, rows=["snli"], num_seeds=1)
    training = runs[1].recipe.training.model_copy(update={"epochs": 1})
    runs[1] = replace(runs[1], recipe=runs[1].recipe.model_copy(update={"training": training}))
    run_table(runs, home / "data", tmp_path, report=lambda *_: None, stop=threading.Event())
    assert cli.run(["reproduce", "table1", "--only-print", "--run-dir", str(tmp_path), "--tasks", "snli"]) == 1
    assert "untrained/seed-0: has another recipe than " in capfd.readouterr().err


def test_only_print_rejects_runs_that_read_elmo_otherwise(home, tmp_path, capfd):
    run_dir = copy_of_one_row(home, tmp_path)
    path = run_dir / "snli" / "elmo" / "seed-0" / "result.json"
    result = json.loads(path.read_bytes())
    result["recipe"]["elmo"]["dropout"] = 0.123
    path.write_text(json.dumps(result))
    assert cli.run(["reproduce", "table1", "--only-print", "--run-dir", str(run_dir), "--tasks", "snli"]) == 1
    assert "has another recipe than " in capfd.readouterr().err


def test_an_interrupted_command_shows_all_that_is_finished(home, tmp_path, monkeypatch, capfd):
    shutil.copytree(home / "whole", tmp_path / "runs")
    monkeypatch.setattr("elmokit.analysis.table1.run_table", lambda *_, **__: False)  # stopped before its first run
    assert cli.run([*command(home, "--run-dir", str(tmp_path / "runs"))]) == 130
    assert "6/6" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "pos"], "the table has no row 'pos'"),
        (["--data", "nowhere"], r"nowhere: has no ner/wnut17\.train\.conll"),
        (["--elmo", "nowhere"], "nowhere: does not exist"),
        (["--vectors", "nowhere.txt"], r"nowhere\.txt: cannot be read: No such file"),
        (["--recipes", "nowhere"], r"nowhere/ner\.toml: no such recipe"),
        (["--only-print", "--run-dir", "nowhere"], "nowhere: no table in this folder"),
        (["--note", "Cold."], "--note is a paragraph of the page that --save writes; add --save FILE.md"),
        (["--save", "nowhere/tasks.md"], r"nowhere/tasks\.md: there is no folder nowhere; make it first"),
    ],
)
def test_a_table_that_cannot_be_made_is_one_line(home, tmp_path, monkeypatch, capfd, options, message):
    monkeypatch.chdir(tmp_path)
    assert cli.run(command(home, *options)) == 1
    err = capfd.readouterr().err
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_the_command_needs_data(capfd):
    assert cli.run(["reproduce", "table1", "--seeds", "1"]) == 1
    assert "no data; name its folder with --data, or use --only-print" in capfd.readouterr().err


@pytest.mark.slow
def test_the_whole_table_is_made_of_all_six_tasks(home, tmp_path, capfd):
    args = command(home, "--run-dir", str(tmp_path / "run"), "--tasks", "", "--seeds", "1")
    assert cli.run(args) == 0
    rows = capfd.readouterr().out.splitlines()[1:]
    assert len(rows) == len(DATASETS)
    assert all(row.endswith("3/3") for row in rows)


def test_a_failed_run_is_exit_code_1_at_the_end(home, tmp_path, capfd):
    write_data(tmp_path / "data")
    write_tagged(tmp_path / "data" / "ner" / "wikigold.conll", 4)  # one document, which cannot be split
    options = ["--data", str(tmp_path / "data"), "--run-dir", str(tmp_path / "run"), "--tasks", "ner-wikigold"]
    assert cli.run(command(home, *options, "--seeds", "1")) == 1
    err = capfd.readouterr().err
    assert err.count("1 documents cannot be split") == 3
    assert err.splitlines()[-1] == "elmokit: 3 of 3 runs failed, see above; the others are finished"


def test_facts_tell_machine_versions_commit_date_and_command():
    facts = gather_facts(["elmokit", "reproduce", "a b"])
    assert facts["command"] == "elmokit reproduce 'a b'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["date"])
    assert list(facts) == ["machine", "versions", "kernels", "commit", "date", "command"]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--seeds", "--seeds"),
        ("runs/table1", "runs/table1"),
        ("/home/ada/data", "data"),
        ("../ada/data", "data"),
        ("--data=/home/ada/data", "--data=data"),
        ("training.epochs=3", "training.epochs=3"),
        (f"{TREE}/results/tasks.md", "results/tasks.md"),
    ],
)
def test_a_command_is_shown_without_the_machines_folders(word, shown):
    assert shown_word(word) == shown
