"""Identity of a run: settings and content, never a path. And the file of runs, which is read back by it."""

import json
import lzma
import shutil
from pathlib import Path

import pytest
from toy_datasets import save_toy_bilm, write_home

from elmokit.errors import InputError
from elmokit.paper.inputs import Inputs
from elmokit.paper.plan import ENSEMBLE, SENSES, TASK, TUNING, PaperRun
from elmokit.paper.run_file import RunFile, RunRecord
from elmokit.paper.settings import Recipes

RUNS = {
    "baseline": PaperRun(TASK, "snli", "baseline"),
    "elmo": PaperRun(TASK, "snli", "elmo"),
    "untrained": PaperRun(TASK, "snli", "untrained"),
    "tuned": PaperRun(TASK, "snli", "tuned"),
    "alone": PaperRun(TASK, "snli", "elmo-alone"),
    "ensemble": PaperRun(ENSEMBLE, "snli", "elmo", 2),
    "tuning": PaperRun(TUNING, "snli", "bilm"),
    "senses": PaperRun(SENSES, "wsd", "bilm"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def identities(home: Path, *, recipes: Path | None = None, bilm: Path | None = None) -> dict[str, str]:
    inputs = Inputs(
        home / "data",
        home / "data" / "glove.txt",
        {"bilm": str(bilm or home / "bilm")},
        Recipes(recipes or home / "recipes"),
    )
    return {name: inputs.identity(run) for name, run in RUNS.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_all_runs_differ_and_the_place_of_the_files_does_not_matter(home, tmp_path):
    before = identities(home)
    assert len(set(before.values())) == len(RUNS)
    shutil.copytree(home, tmp_path / "elsewhere")
    for path in (tmp_path / "elsewhere" / "data" / "snli").glob("*.xz"):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    assert identities(tmp_path / "elsewhere") == before


def test_a_changed_recipe_is_another_run(home, tmp_path):
    shutil.copytree(home / "recipes", tmp_path / "recipes")
    recipe = tmp_path / "recipes" / "snli.toml"
    recipe.write_text(recipe.read_text().replace("learning_rate = 0.01", "learning_rate = 0.02"))
    of_tasks = {"baseline", "elmo", "untrained", "tuned", "alone", "ensemble"}
    assert changed(identities(home), identities(home, recipes=tmp_path / "recipes")) == of_tasks


def test_values_that_are_defaults_do_not_matter(home, tmp_path):
    shutil.copytree(home / "recipes", tmp_path / "recipes")
    recipe = tmp_path / "recipes" / "snli.toml"
    recipe.write_text(recipe.read_text().replace("[training]", "[training]\nweight_decay = 0.0"))
    assert not changed(identities(home), identities(home, recipes=tmp_path / "recipes"))


def test_another_bilm_of_the_same_shape_changes_what_reads_its_weights(home, tmp_path):
    other = save_toy_bilm(tmp_path / "bilm", seed=5)
    assert changed(identities(home), identities(home, bilm=other)) == {
        "elmo",
        "tuned",
        "alone",
        "ensemble",
        "tuning",
        "senses",
    }


def test_other_vectors_and_data_are_other_runs(home, tmp_path):
    before = identities(home)
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "home" / "data" / "glove.txt").write_text("ada 1 2 3\n")
    of_vectors = {"baseline", "elmo", "untrained", "tuned", "ensemble"}
    assert changed(before, identities(tmp_path / "home")) == of_vectors
    (tmp_path / "home" / "data" / "snli" / "snli_1.0_dev.jsonl").write_text("{}\n")  # goes before the packed one
    assert changed(before, identities(tmp_path / "home")) == set(RUNS) - {"senses"}


def record(identity: str, score: float = 0.5) -> RunRecord:
    return RunRecord(identity, RUNS["elmo"], {"kind": "task"}, {"data": "d"}, "toy", {"dev": score}, {"date": "today"})


def test_records_are_added_once_and_read_back(tmp_path):
    file = RunFile(tmp_path / "runs.jsonl")
    assert file.read() == {}
    for one in (record("a"), record("b"), record("a", 0.9)):
        file.add(one)
    assert list(file.read()) == ["a", "b"]
    assert file.read()["a"] == record("a")
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["identity"] for line in lines] == ["a", "b"]


def test_a_damaged_line_is_named(tmp_path):
    file = RunFile(tmp_path / "runs.jsonl")
    file.add(record("a"))
    with (tmp_path / "runs.jsonl").open("a") as opened:
        opened.write('{"identity": "b"')
    with pytest.raises(InputError, match=r"runs\.jsonl, line 2: is no finished run"):
        file.read()
