"""Runs of the open questions: a biLM that is trained with a task, and encoders of one budget by their names."""

import threading
from pathlib import Path

import pytest
import torch
from toy import toy_model
from toy_datasets import write_home

from elmokit import cli
from elmokit.model.language_model import LanguageModel
from elmokit.paper.engine import Event, Failed, Skipped, make_runs
from elmokit.paper.inputs import Inputs
from elmokit.paper.plan import PERPLEXITY, TAGS, TASK, PaperRun
from elmokit.paper.run_file import RunFile
from elmokit.paper.settings import Recipes
from elmokit.paper.workshop import Workshop
from elmokit.score.saved_lm import save_language_model
from elmokit.text.vocab import Vocab

pytestmark = pytest.mark.filterwarnings("ignore::elmokit.errors.ElmokitWarning")


@pytest.mark.long
def test_every_question_has_runs(tmp_path: Path) -> None:
    write_home(tmp_path)
    vocab = Vocab.from_counts(dict.fromkeys(("ada", "saw", "oslo"), 2))
    for seed, name in enumerate(("left", "right")):
        torch.manual_seed(seed)
        save_language_model(LanguageModel.untrained(toy_model(), len(vocab)), vocab, tmp_path / name)
    pair = f"taglm:{tmp_path}/left,{tmp_path}/right"
    sources = {"bilm": str(tmp_path / "bilm"), "taglm": pair, "shared": str(tmp_path / "left")}
    sources["forward"] = str(tmp_path / "right")
    inputs = Inputs(tmp_path / "data", tmp_path / "data" / "glove.txt", sources, Recipes(tmp_path / "recipes"))
    perplexities = [PaperRun(PERPLEXITY, "ner-wikigold", arm) for arm in ("taglm", "shared", "forward")]
    direction = PaperRun(TAGS, "direction", "bilm")
    runs = [*perplexities, direction, *(PaperRun(TASK, "ner-wikigold", arm) for arm in ("trained", "taglm", "words"))]
    file, heard = RunFile(tmp_path / "runs.jsonl"), list[tuple[PaperRun, Event]]()

    def report(run: PaperRun, event: Event) -> None:
        heard.append((run, event))

    shop = Workshop(inputs, tmp_path / "work")
    assert make_runs(runs, shop, file, elmo="toy", workers=1, report=report, stop=threading.Event())
    assert not [event for _, event in heard if isinstance(event, Failed)]
    skipped = {run: event.message for run, event in heard if isinstance(event, Skipped)}
    assert skipped == {runs[-1]: "needs an encoder; name it with --encoder words=ENCODER"}
    results = {record.run: record.result for record in file.read().values()}
    taglm, left, right = (results[run] for run in perplexities)
    assert (taglm["forward"], taglm["backward"]) == (left["forward"], right["backward"])
    assert left["forward"] != right["forward"]
    assert len(results[direction]["test"]) == 3
    identities = {record.run: record.inputs for record in file.read().values()}
    assert identities[runs[4]].keys() == {"data", "vectors", "shape", "bilm"}
    assert identities[runs[5]].keys() == {"data", "vectors", "taglm"}


def test_an_encoder_that_no_question_has_is_rejected(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    args = ["reproduce", "questions", "--results", str(tmp_path), "--data", str(tmp_path)]
    for pair in ("elmo=folder", "taglm"):
        assert cli.run([*args, "--encoder", pair]) == 1
        message = f"--encoder {pair}: expected NAME=ENCODER with one of the names shared, taglm, forward, words"
        assert message in capfd.readouterr().err
