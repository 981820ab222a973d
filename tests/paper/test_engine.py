"""The engine: runs are made once, survive a kill, and are read back wherever their data are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from toy_datasets import write_home

from elmokit import cli
from elmokit.paper import settings
from elmokit.paper.comparisons import layer_scores
from elmokit.paper.engine import Event, Failed, Recorded, Skipped, Warned, make_runs
from elmokit.paper.inputs import Inputs
from elmokit.paper.plan import COVERAGE, ENSEMBLE, NEIGHBORS, SENSES, TAGS, TASK, TUNING, PaperRun
from elmokit.paper.results import Results
from elmokit.paper.run_file import RunFile
from elmokit.paper.settings import Recipes
from elmokit.paper.workshop import Workshop
from elmokit.tasks.progress import DevScores, LayersRead, TaskPlan

# Words are longer than the toy biLM reads, and some toy models learn nothing.
pytestmark = [pytest.mark.filterwarnings("ignore::elmokit.errors.ElmokitWarning"), pytest.mark.long]
BASELINE, ELMO = (PaperRun(TASK, "snli", arm) for arm in ("baseline", "elmo"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def open_shop(home: Path, run_dir: Path) -> Workshop:
    vectors = home / "data" / "glove.txt"
    return Workshop(Inputs(home / "data", vectors, {"bilm": str(home / "bilm")}, Recipes(home / "recipes")), run_dir)


class Heard:
    """Events of runs; sets ``stop`` after the first of a kind."""

    def __init__(self, *, stop_at: type | None = None) -> None:
        self.events: list[tuple[PaperRun, Event]] = []
        self.stop, self._stop_at = threading.Event(), stop_at

    def report(self, run: PaperRun, event: Event) -> None:
        self.events.append((run, event))
        if self._stop_at is not None and isinstance(event, self._stop_at):
            self.stop.set()

    def all(self, kind: type) -> list[tuple[PaperRun, Any]]:
        return [(run, event) for run, event in self.events if isinstance(event, kind)]


def make(home: Path, folder: Path, runs: list[PaperRun], *, workers: int = 1, stop_at: type | None = None, **more):
    heard = Heard(stop_at=stop_at)
    file = RunFile(folder / "runs.jsonl")
    shop = open_shop(home, folder / "work")
    is_over = make_runs(runs, shop, file, elmo="toy", workers=workers, report=heard.report, stop=heard.stop, **more)
    return is_over, heard, file


def result_of(file: RunFile, run: PaperRun) -> dict[str, Any]:
    (record,) = (one for one in file.read().values() if one.run == run)
    return {name: value for name, value in record.result.items() if name != "seconds"}


def test_a_finished_run_is_recorded_with_curve_and_mixes_and_its_folder_removed(home, tmp_path):
    last = PaperRun(TASK, "snli", "last")
    is_over, _, file = make(home, tmp_path, [last, ELMO])
    assert is_over
    result = result_of(file, ELMO)
    assert [step for step, _ in result["dev_curve"]] == [3, 6]
    assert result["dev"]["accuracy"] == max(score for _, score in result["dev_curve"])
    assert sum(result["mixes"]["input"]["weights"]) == pytest.approx(1)
    assert result_of(file, last)["mixes"]["input"]["weights"] == [0, 0, 1]
    assert not list((tmp_path / "work" / "snli" / "last").iterdir())
    assert len(list((tmp_path / "work" / "snli" / "elmo").glob("seed-0-*/model"))) == 1  # an ensemble will need it
    text = (tmp_path / "runs.jsonl").read_text()
    assert str(home) not in text
    assert str(tmp_path) not in text


def test_finished_runs_are_read_back_and_never_made_again(home, tmp_path):
    (tmp_path / "first").mkdir()
    _, _, file = make(home, tmp_path / "first", [BASELINE])
    shutil.copytree(home, tmp_path / "moved")
    (tmp_path / "second").mkdir()
    shutil.copy(file.path, tmp_path / "second")
    is_over, heard, again = make(tmp_path / "moved", tmp_path / "second", [BASELINE])
    assert is_over
    assert [(run, event.is_new) for run, event in heard.events] == [(BASELINE, False)]
    assert again.path.read_bytes() == file.path.read_bytes()


def test_runs_with_equal_settings_are_made_once(home, tmp_path):
    _, heard, file = make(home, tmp_path, [PaperRun(TASK, "srl", "elmo"), PaperRun(TASK, "srl", "input")])
    assert len(heard.all(TaskPlan)) == 1
    assert len(file.read()) == 1


def test_an_interrupted_run_is_resumed_and_ends_as_one_that_was_not(home, tmp_path):
    (tmp_path / "whole").mkdir()
    _, _, whole = make(home, tmp_path / "whole", [BASELINE, ELMO])
    is_over, heard, file = make(home, tmp_path, [BASELINE, ELMO], stop_at=DevScores)
    assert not is_over
    assert not file.read()
    is_over, heard, file = make(home, tmp_path, [BASELINE, ELMO])
    assert is_over
    assert [event.step > 0 for _, event in heard.all(TaskPlan)] == [True, False]
    for run in (BASELINE, ELMO):
        assert result_of(file, run) == result_of(whole, run)


def test_every_kind_of_evaluation_is_made(home, tmp_path):
    runs = [
        PaperRun(COVERAGE, "snli", "glove"),
        PaperRun(TUNING, "ner-wikigold", "bilm"),
        PaperRun(NEIGHBORS, "play", "bilm"),
        PaperRun(SENSES, "wsd", "glove"),
        PaperRun(TAGS, "pos", "untrained"),
        PaperRun(TASK, "ner-wikigold", "tuned"),
        PaperRun(TASK, "tag", "baseline"),
        PaperRun(NEIGHBORS, "play", "glove"),
        PaperRun(SENSES, "wsd", "cove"),
    ]
    is_over, heard, file = make(home, tmp_path, runs)
    assert is_over
    assert [run for run, _ in heard.all(Skipped)] == runs[-1:]
    assert not heard.all(Failed)
    assert result_of(file, runs[0])["missing"] == ["nobody", "someone"]
    assert result_of(file, runs[1])["after"]["perplexity"] < result_of(file, runs[1])["before"]["perplexity"]
    ranks = result_of(file, runs[2])["ranks"]
    assert all(of_layers[0] == 3 for of_layers in ranks.values())  # in the token layer all five others are equal
    assert result_of(file, runs[2])["same_sense"][0] == result_of(file, runs[2])["chance"] == pytest.approx(0.2)
    assert len(result_of(file, runs[3])["all"]["layers"]) == 1
    assert len(result_of(file, runs[4])["test"]) == 3
    results = Results(file.read(), Recipes(home / "recipes"))
    for run in runs[2:5]:
        scores = layer_scores(results, run.kind, run.arm)
        assert [answers.mean() for answers in scores.answers] == pytest.approx(scores.layers)
        assert run.kind == TAGS or scores.baseline_answers.mean() == pytest.approx(scores.baseline)
    tuned = {one.run: one.inputs for one in file.read().values()}[runs[5]]
    assert tuned.keys() == {"data", "vectors", "bilm", "shape"}


@pytest.mark.parametrize("run", [PaperRun(SENSES, "wsd", "bilm"), PaperRun(TASK, "sst", "elmo")], ids=str)
def test_an_encoder_stops_while_it_reads(home, tmp_path, run):
    is_over, heard, file = make(home, tmp_path, [run], stop_at=LayersRead)
    assert not is_over
    assert not file.read()
    assert len(heard.all(LayersRead)) == 1


def test_an_ensemble_is_made_of_the_same_runs_or_skipped_without_their_models(home, tmp_path):
    runs = [PaperRun(TASK, "snli", "baseline", seed) for seed in (0, 1)]
    ensemble = PaperRun(ENSEMBLE, "snli", "baseline", 2)
    _, _, file = make(home, tmp_path, [ensemble, *runs])
    assert set(result_of(file, ensemble)) == {"dev", "test", "metric"}
    (tmp_path / "other").mkdir()
    lines = file.path.read_text().splitlines(keepends=True)
    (tmp_path / "other" / "runs.jsonl").write_text("".join(line for line in lines if '"ensemble"' not in line))
    _, heard, _ = make(home, tmp_path / "other", [ensemble, *runs])
    assert [event.message for _, event in heard.all(Skipped)] == [
        "the model of snli, baseline, seed 0 is not on this machine"
    ]


def test_a_run_that_fails_is_reported_and_the_others_continue(home, tmp_path):
    shutil.copytree(home, tmp_path / "home")
    for path in (tmp_path / "home" / "data" / "ner").glob("wnut17.dev*"):
        path.unlink()
    (tmp_path / "home" / "data" / "ner" / "wnut17.dev.conll").write_text("Ada PERSON\n")
    failing = PaperRun(TASK, "ner-wnut17", "baseline")
    is_over, heard, file = make(tmp_path / "home", tmp_path, [failing, BASELINE])
    assert is_over
    ((run, failed),) = heard.all(Failed)
    assert (run, "wnut17.dev.conll, line 1: tag 'PERSON'" in failed.message) == (failing, True)
    assert [one.run for one in file.read().values()] == [BASELINE]


@pytest.mark.slow
def test_two_workers_make_the_same_runs_as_one(home, tmp_path):
    runs = [BASELINE, ELMO, PaperRun(TASK, "snli", "elmo", 1), PaperRun(NEIGHBORS, "play", "bilm")]
    files = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        is_over, heard, file = make(home, folder, runs, workers=workers)
        assert is_over
        assert len(heard.all(Recorded)) == len(runs)
        files.append(file)
    assert any("longer than" in warned.message for _, warned in heard.all(Warned))  # not printed by the process itself
    for run in runs:
        assert result_of(files[0], run) == result_of(files[1], run)
    is_over, heard, file = make(home, tmp_path, runs[:2], workers=2, stop_at=DevScores)
    assert not is_over


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_a_killed_command_resumes_and_its_workers_end(home, tmp_path):
    given = {"--data": "data", "--elmo": "bilm", "--vectors": "data/glove.txt", "--recipes": "recipes"}
    options = [str(word) for name, path in given.items() for word in (name, home / path)]
    options += ["--results", str(tmp_path), "--run-dir", str(tmp_path / "work"), "--only", "snli,task", "--seeds", "1"]
    args = [sys.executable, "-m", "elmokit", "reproduce", "table3", *options]
    with subprocess.Popen(args, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        for line in process.stderr:
            if " runs, about " in line:  # the first run has ended, others are being made
                break
        os.kill(process.pid, signal.SIGKILL)
    killed = {record["identity"] for record in read_lines(tmp_path / "paper-runs.jsonl")}
    assert killed
    for _ in range(600):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a worker outlives its parent")
    assert cli.run(args[3:]) == 0
    records = read_lines(tmp_path / "paper-runs.jsonl")
    assert len(records) == len({record["identity"] for record in records}) == 3
    assert killed <= {record["identity"] for record in records}
    assert (tmp_path / "paper.md").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no data; name its folder with --data, or use --plan or --page"),
        (["--data", "nowhere", "--workers", "1"], "nowhere: has no snli/snli_1.0_train-100k.jsonl"),
        (["--results", "nowhere"], "nowhere: no such folder; create it, or name another with --results"),
        (["--only", "nothing"], "the plan has no 'nothing'"),
    ],
)
def test_what_cannot_be_made_is_one_line(tmp_path, monkeypatch, capfd, options, message):
    monkeypatch.chdir(tmp_path)
    args = ["reproduce", "table7", "--results", str(tmp_path), "--only", "snli,task", *options]
    assert cli.run(args) == 1
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_every_table_and_figure_is_made_from_end_to_end(home, tmp_path, monkeypatch):
    few = {share: {"training.epochs": 2} for share in settings.FRACTION_SETTINGS}
    monkeypatch.setattr(settings, "FRACTION_SETTINGS", few)
    given = {"--data": "data", "--elmo": "bilm", "--vectors": "data/glove.txt", "--recipes": "recipes"}
    options = [str(word) for name, path in given.items() for word in (name, home / path)]
    options += ["--results", str(tmp_path), "--run-dir", str(tmp_path / "work"), "--seeds", "2", "--workers", "1"]
    assert cli.run(["reproduce", "all", *options]) == 0
    page = (tmp_path / "paper.md").read_text("utf-8")
    assert (
        "are open (one seed, or too noisy), and 26 are not run yet." in page
    )  # other encoders, and ELMo at the output
    assert len(list(tmp_path.glob("paper-figure*"))) == 4
