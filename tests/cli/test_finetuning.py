"""Fine-tuning on the command line."""

import inspect
import json
import re
import signal
from pathlib import Path

import pytest
import torch
from commands import start_command
from published import PublishedModel
from toy import TEXT, toy_model

from elmokit import cli
from elmokit.cli.finetuning import finetune as finetune_verb
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.finetune import ONE_EPOCH
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.text.vocab import SPECIAL_WORDS, Vocab


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a model folder with an output layer, whose vocabulary has half of the text's words."""
    vocab = Vocab([*SPECIAL_WORDS, *list(dict.fromkeys(TEXT.split()))[::2]])
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("model") / "ours"
    save_language_model(LanguageModel.untrained(toy_model(), len(vocab)), vocab, folder)
    return str(folder)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the text in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def test_finetune_reports_the_held_out_perplexity_before_and_after(folder, model, capfd):
    args = ["finetune", model, "te*.txt", "-o", "tuned", "--heldout", "text.txt", "--tokenized", "--rows", "4"]
    assert cli.run([*args, "--epochs", "3", "--learning-rate", "0.1"]) == 0
    out, err = capfd.readouterr()
    *lines, unknown = out.splitlines()[1:]
    assert unknown.split() == ["unknown", "words", "39.3%", "39.3%"]
    rows = {line.split()[0]: [float(number) for number in line.split()[1:]] for line in lines}
    assert rows["mean"][1] < rows["mean"][0]
    assert cli.run(["perplexity", model, "text.txt", "--tokenized", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    expected = [found["forward"], found["backward"], found["arithmetic_mean"]]
    assert [rows[name][0] for name in ("forward", "backward", "mean")] == pytest.approx(expected, abs=0.006)
    assert err.endswith("elmokit: tuned in 6 steps; the model is in tuned\n")  # 140 targets are two steps of 4 x 20
    assert "warning: the run has only 6 steps, too few to learn much; use fewer --rows or more --epochs" in err
    assert "training" not in err
    assert "rose" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["text.txt", "tuned"]


def test_a_rate_that_does_harm_is_reported(model, capfd):
    args = ["finetune", model, "text.txt", "-o", "tuned", "--heldout", "text.txt", "--tokenized", "--rows", "4"]
    assert cli.run([*args, "--learning-rate", "40"]) == 0
    err = capfd.readouterr().err
    found = re.search(r"warning: the held-out perplexity rose from ([\d.,]+) to ([\d.,]+) with --learning-rate 40", err)
    assert found is not None
    before, after = (float(number.replace(",", "")) for number in found.groups())
    assert after > before
    assert "a short text needs a lower rate, try 10" in err


@pytest.mark.parametrize("as_pair", [True, False])
def test_a_published_model_is_tuned_from_its_folder_or_its_two_files(published_model: PublishedModel, capfd, as_pair):
    pair = [str(path) for path in reversed(published_model.pair)]
    source = pair if as_pair else [str(published_model.options_path.parent)]
    options = ["--tokenized", "--rows", "4", "--vocab-size", "20", "--softmax-epochs", "2"]
    assert cli.run(["finetune", *source, "text.txt", "-o", "tuned", *options]) == 0
    err = capfd.readouterr().err
    alone, together = err.index("training the new output layer alone"), err.index("training everything together")
    assert alone < together
    assert "step 4/4" in err[alone:together]
    assert "step 2/2" in err[together:]
    assert len(load_language_model("tuned").vocab) == 20
    assert cli.run(["score", "text.txt", "-m", "tuned", "--tokenized"]) == 0


def test_the_options_not_given_are_the_paper_s():
    defaults = {name: option.default for name, option in inspect.signature(finetune_verb).parameters.items()}
    assert defaults["epochs"] == ONE_EPOCH.epochs
    assert defaults["rows"] == ONE_EPOCH.num_rows
    assert defaults["learning_rate"] == ONE_EPOCH.learning_rate


def test_a_model_is_replaced_only_by_force(model):
    args = ["finetune", model, "text.txt", "-o", "tuned", "--tokenized"]
    assert cli.run(args) == 0
    before = Path("tuned/model.safetensors").read_bytes()
    assert cli.run([*args, "--rows", "4"]) == 1
    assert Path("tuned/model.safetensors").read_bytes() == before
    assert cli.run([*args, "--rows", "4", "--force"]) == 0
    assert Path("tuned/model.safetensors").read_bytes() != before


@pytest.mark.long
def test_after_ctrl_c_the_same_command_resumes(folder, model, capfd):
    args = ["finetune", model, "text.txt", "-o", "tuned", "--tokenized", "--rows", "2", "--epochs", "30"]
    process = start_command(*args)
    for line in process.stderr:
        if line.startswith("elmokit: step 20/"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    told = "elmokit: interrupted; the work is saved in tuned.work; run the same command to resume"
    assert err.splitlines()[-1] == told
    assert not (folder / "tuned").exists()
    assert cli.run(args) == 0
    assert "elmokit: resuming after step " in capfd.readouterr().err
    assert (folder / "tuned").is_dir()
    assert not (folder / "tuned.work").exists()
