"""Files written by commit 956d343 load, run and resume with the numbers of that commit.

`tests/assets/956d343/make.py.txt` made them: a biLM with its output layer, a stopped pretraining run, a task model and
a stopped task run. The models are those of the same runs without a break: resumed runs have to arrive at them.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_cases import largest_gap
from safetensors.numpy import load_file

from elmokit import cli
from elmokit.embed.embedder import Embedder
from elmokit.embed.state import State

ASSETS = Path(__file__).parent / "assets" / "956d343"
TOLERANCE = 1e-5
LEARNED_TOLERANCE = 1e-4  # of weights after tens of steps: another machine rounds otherwise


@pytest.fixture(autouse=True)
def _in_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(ASSETS / "files.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ASSETS / "expected.json").read_text("utf-8"))
    return found


def write_lines(name: str, lines: list[str]) -> str:
    Path(name).write_text("\n".join(lines) + "\n", "utf-8")
    return name


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def assert_same_tensors(found: str, expected: str) -> None:
    ours, theirs = load_file(found), load_file(expected)
    assert ours.keys() == theirs.keys()
    assert largest_gap(list(ours.values()), list(theirs.values())) <= LEARNED_TOLERANCE


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_a_model_folder_gives_the_same_vectors(expected: dict[str, Any], state: State) -> None:
    sentences = [sentence.split() for sentence in expected["sentences"]]
    found = Embedder.from_pretrained("bilm", state=state).embed_layers(sentences)
    with np.load(ASSETS / "expected.npz") as arrays:
        assert largest_gap(found, [arrays[f"{state}_{i}"] for i in range(len(sentences))]) <= TOLERANCE


def test_an_output_layer_gives_the_same_scores(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    lines = write_lines("sentences.txt", expected["sentences"])
    assert cli.run(["score", lines, "--model", "bilm", "--tokenized", "--json"]) == 0
    scores = json_lines(capsys.readouterr().out)
    for direction in ("forward", "backward"):
        totals = [score[f"{direction}_total"] for score in scores]
        assert totals == pytest.approx(expected[f"{direction}_totals"], abs=1e-4)


@pytest.mark.long
def test_a_stopped_pretraining_run_resumes_to_the_same_model(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("pretrain-run/log.jsonl").read_text("utf-8")
    run = ["pretrain", "pretrain.toml", "training.precision=fp32", "--run-dir", "pretrain-run", "--workers", "1"]
    assert cli.run(run) == 0  # in the precision of the saved model, on any CPU
    after = Path("pretrain-run/log.jsonl").read_text("utf-8")
    assert after.startswith(before), capsys.readouterr().err
    assert len(after) > len(before)
    for name in ("model", "softmax"):
        assert_same_tensors(f"pretrain-run/model/{name}.safetensors", f"bilm/{name}.safetensors")


def test_a_task_model_gives_the_same_predictions(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    lines = write_lines("asked.txt", expected["asked"])
    assert cli.run(["task", "predict", "ner", "ner-model", lines, "--tokenized"]) == 0
    assert capsys.readouterr().out.splitlines() == expected["predictions"]


@pytest.mark.long
def test_a_stopped_task_run_resumes_to_the_same_model(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("ner-run/log.jsonl").read_text("utf-8")
    options = ["--train", "train.conll", "--dev", "dev.conll", "--elmo", "bilm", "--vectors", "vectors.txt"]
    assert cli.run(["task", "train", "ner", *options, "--recipe", "ner.toml", "--run-dir", "ner-run"]) == 0
    after = Path("ner-run/log.jsonl").read_text("utf-8")
    assert after.startswith(before), capsys.readouterr().err
    assert len(after) > len(before)
    assert_same_tensors("ner-run/model/model.safetensors", "ner-model/model.safetensors")
