"""Runs from a recipe to a model folder, and the verbs that start them."""

import errno
import json
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from commands import Command, start_command
from processes import run_alone, with_text
from toy import TEXT, toy_recipe

from elmokit import Embedder, cli
from elmokit.errors import ConfigError, ElmokitWarning, InputError, OutputError
from elmokit.pretrain.pretraining import pretrain
from elmokit.pretrain.progress import BuildStarted, RunPlan
from elmokit.pretrain.recipe import DataSettings, Recipe, VocabSettings
from elmokit.score.saved_lm import load_language_model

pytestmark = pytest.mark.long

TOML = """\
[data]
train = "toy.txt"
tokenized = true

[model]
char_encoder = { char_dim = 4, filters = [[1, 4], [2, 6]], num_highway = 1, max_chars = 12 }
lstm = { cell_dim = 8, proj_dim = 4 }

[softmax]
kind = "sampled"
num_negatives = 30

[training]
num_rows = 4
unroll_steps = 5
steps = 25
evaluate_every = 20
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy.txt").write_text(TEXT, "utf-8")
    (tmp_path / "toy.toml").write_text(TOML, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(run_dir: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.name != "vocab.txt"}


def test_a_run_leaves_models_that_embed_and_predict(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=20), tmp_path), tmp_path / "run"
    assert run_alone(recipe, run_dir) == run_dir / "model"
    for name in ("model", "best"):
        loaded = load_language_model(run_dir / name)
        assert len(loaded.vocab) == len(loaded.model.softmax.bias) == 80
        assert loaded.start_state is not None
        (layers,) = Embedder.from_pretrained(run_dir / name).embed_layers([["the", "river"]])
        assert layers.shape == (3, 2, 12)
    assert Recipe.model_validate_json((run_dir / "recipe.json").read_bytes()) == recipe
    assert (run_dir / "vocab.txt").read_text("utf-8").split() == list(loaded.vocab.words)


def test_a_finished_run_is_left_alone_until_more_is_asked_for(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=10), tmp_path), tmp_path / "run"
    run_alone(recipe, run_dir)
    model = files(run_dir / "model")
    assert run_alone(recipe, run_dir) == run_dir / "model"
    assert files(run_dir / "model") == model
    run_alone(with_text(toy_recipe(steps=12), tmp_path), run_dir)
    assert files(run_dir / "model") != model


def test_a_run_that_was_killed_before_its_model_was_saved_saves_it_when_started_again(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=10), tmp_path), tmp_path / "run"
    run_alone(recipe, run_dir)
    (run_dir / "finished.json").unlink()
    before = files(run_dir / "model")
    run_alone(recipe, run_dir)
    assert files(run_dir / "model") != before


def test_a_stopped_run_has_no_model_yet(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    recipe = with_text(toy_recipe(steps=10), tmp_path)
    assert pretrain(recipe, tmp_path / "run", report=lambda _: None, stop=stop) is None
    assert not (tmp_path / "run" / "model").exists()
    assert run_alone(recipe, tmp_path / "run") == tmp_path / "run" / "model"


def test_a_rejected_recipe_is_not_saved(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=10), tmp_path), tmp_path / "run"
    run_alone(recipe, run_dir)
    with pytest.raises(ConfigError, match="learning_rate"):
        run_alone(with_text(toy_recipe(steps=10, learning_rate=0.1), tmp_path), run_dir)
    assert Recipe.model_validate_json((run_dir / "recipe.json").read_bytes()) == recipe


def everything(run_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(run_dir.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("change", "message"),
    [("text", "different text"), ("vocabulary", "different vocabulary"), ("max_size", "different vocabulary")],
)
def test_a_run_survives_a_rejected_recipe_and_can_be_resumed(tmp_path: Path, change: str, message: str) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=10), tmp_path), tmp_path / "run"
    run_alone(recipe, run_dir)
    (tmp_path / "other.txt").write_text("another text\n")
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\nriver\n")
    other = str(tmp_path / "other.txt")
    changes = {
        "text": {"data": recipe.data.model_copy(update={"train": (other,), "heldout": (other,)})},
        "vocabulary": {"vocab": VocabSettings(file=str(tmp_path / "words.txt"))},
        "max_size": {"vocab": VocabSettings(max_size=20), "data": recipe.data.model_copy(update={"heldout": (other,)})},
    }
    before = everything(run_dir)
    with pytest.raises(ConfigError, match=message):
        run_alone(recipe.model_copy(update=changes[change]), run_dir)
    assert everything(run_dir) == before
    (tmp_path / "toy.txt").unlink()  # the run has its own copy
    (tmp_path / "toy.txt").write_text(TEXT, "utf-8")
    assert run_alone(with_text(toy_recipe(steps=12), tmp_path), run_dir) is not None


@pytest.mark.parametrize("pattern", ["toy.txt", "*.txt"])
@pytest.mark.filterwarnings("ignore:.*not there any more:elmokit.errors.ElmokitWarning")
def test_a_run_is_resumed_without_the_files_of_its_text(folder: Path, pattern: str) -> None:
    data = DataSettings(train=(pattern,), heldout=(pattern,), tokenized=True)
    recipe, longer = (toy_recipe(steps=steps).model_copy(update={"data": data}) for steps in (10, 12))
    run_alone(recipe, folder / "run")
    run_alone(longer, folder / "with")
    (folder / "toy.txt").unlink()
    with pytest.warns(ElmokitWarning, match=r"toy\.txt is not there any more; .*run/(text|heldout)\)") as caught:
        run_alone(longer, folder / "run")
    assert len(caught) == 2  # of each text
    for name in ("model.safetensors", "softmax.safetensors"):
        expected = (folder / "with" / "model" / name).read_bytes()
        assert (folder / "run" / "model" / name).read_bytes() == expected
    with pytest.raises(InputError, match=r"no such file|no file has such a name"):
        run_alone(recipe, folder / "new")
    for change in ({"train": ("other.txt",)}, {"heldout": ("other.txt",)}, {"tokenized": False}):
        other = longer.model_copy(update={"data": data.model_copy(update=change)})
        with pytest.raises((InputError, ConfigError), match=r"other\.txt: no such file|different text"):
            run_alone(other, folder / "run")


def test_one_of_several_texts_that_is_gone_is_no_hindrance(folder: Path) -> None:
    (folder / "more.txt").write_text("the river rose again\n", "utf-8")
    data = DataSettings(train=("toy.txt", "m*.txt"), tokenized=True)
    recipe, longer = (toy_recipe(steps=steps).model_copy(update={"data": data}) for steps in (10, 12))
    run_alone(recipe, folder / "run")
    (folder / "more.txt").unlink()
    fewer = longer.model_copy(update={"data": data.model_copy(update={"train": ("toy.txt",)})})
    with pytest.raises(ConfigError, match="different text"):
        run_alone(fewer, folder / "run")
    with pytest.warns(ElmokitWarning, match=r"more\.txt is not there any more"):
        assert run_alone(longer, folder / "run") is not None
    (folder / "toy.txt").write_text("another text\n", "utf-8")
    with pytest.raises(ConfigError, match="different text"):
        run_alone(longer, folder / "run")


def test_models_of_chosen_steps_are_kept_as_they_were_then(tmp_path: Path) -> None:
    few = with_text(toy_recipe(steps=4, checkpoint_every=3), tmp_path)
    run_alone(few, tmp_path / "few")
    training = few.training.model_copy(update={"steps": 7, "keep_models": (4, 6, 99)})
    many = few.model_copy(update={"training": training})
    run_alone(many, tmp_path / "many")
    assert sorted(path.name for path in (tmp_path / "many").glob("at-*")) == ["at-4", "at-6"]
    kept, expected, last = (
        load_language_model(tmp_path / name).model.state_dict() for name in ("many/at-4", "few/model", "many/model")
    )
    assert all(torch.equal(kept[name], expected[name]) for name in expected)
    assert not all(torch.equal(kept[name], last[name]) for name in last)
    resumed = few.model_copy(update={"training": few.training.model_copy(update={"steps": 6, "keep_models": (5,)})})
    run_alone(resumed, tmp_path / "few")  # the steps to keep may change
    assert (tmp_path / "few" / "at-5").is_dir()


def test_another_held_out_text_starts_a_new_best(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=10), tmp_path), tmp_path / "run"
    run_alone(recipe, run_dir)
    first = (run_dir / "best" / "model.safetensors").read_bytes()
    (tmp_path / "hard.txt").write_text("zebra quagga " * 20 + "\n")
    data = recipe.data.model_copy(update={"heldout": (str(tmp_path / "hard.txt"),)})
    more = with_text(toy_recipe(steps=11), tmp_path).model_copy(update={"data": data})
    run_alone(more, run_dir)
    assert (run_dir / "best" / "model.safetensors").read_bytes() != first


def test_words_too_long_for_the_model_are_warned_of(tmp_path: Path) -> None:
    recipe = with_text(toy_recipe(steps=1), tmp_path)
    (tmp_path / "toy.txt").write_text("a counterrevolutionary river\n")
    with pytest.warns(ElmokitWarning, match="1 of the text's 3 distinct words have more than 10 bytes"):
        run_alone(recipe, tmp_path / "run")


def test_the_words_can_come_from_a_file_or_be_fewer_than_the_negatives(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\nriver\n", "utf-8")
    recipe = with_text(toy_recipe(negatives=50, steps=2), tmp_path)
    recipe = recipe.model_copy(update={"vocab": VocabSettings(file=str(tmp_path / "words.txt"))})
    entries: list[object] = []
    pretrain(recipe, tmp_path / "run", report=entries.append, stop=threading.Event())
    assert isinstance(entries[0], BuildStarted)
    assert isinstance(entries[1], RunPlan)
    assert (entries[1].num_words, entries[1].num_negatives) == (5, None)


def test_one_sentence_is_enough(tmp_path: Path) -> None:
    recipe = with_text(toy_recipe(steps=3), tmp_path)
    (tmp_path / "toy.txt").write_text("hello world\n", "utf-8")
    assert run_alone(recipe, tmp_path / "run") is not None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataSettings(), "names no training text"),
        (DataSettings(train="none*.txt"), r"none\*\.txt: no file has such a name"),
        (DataSettings(train="none.txt"), r"none\.txt: no such file"),
        (DataSettings(train="empty.txt"), "no sentence in"),
        (DataSettings(train="latin.txt"), r"latin\.txt, line 2.*not UTF-8"),
        (DataSettings(train="toy.txt", heldout="empty.txt"), "no sentence in"),
    ],
)
def test_unusable_text_is_an_error_with_the_reason(folder: Path, data: DataSettings, message: str) -> None:
    (folder / "empty.txt").write_text("\n \n")
    (folder / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    recipe = toy_recipe(steps=3).model_copy(update={"data": data})
    with pytest.raises((InputError, ConfigError), match=message):
        run_alone(recipe, folder / "run")


def test_two_runs_in_one_folder_are_rejected(tmp_path: Path) -> None:
    recipe, run_dir = with_text(toy_recipe(steps=3), tmp_path), tmp_path / "run"

    def second(_entry: object) -> None:
        with pytest.raises(OutputError, match="another process is training in it"):
            run_alone(recipe, run_dir)

    pretrain(recipe, run_dir, report=second, stop=threading.Event())


def test_a_file_system_without_locks_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(ElmokitWarning, match="no locks"):
        assert run_alone(with_text(toy_recipe(steps=1), tmp_path), tmp_path / "run") is not None


def test_a_run_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="name another folder"):
        run_alone(with_text(toy_recipe(steps=3), tmp_path), tmp_path / "file" / "run")


# The verbs


@pytest.mark.usefixtures("folder")
def test_pretrain_reports_in_plain_lines(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pretrain", "toy.toml", "data.heldout=toy.txt", "--workers", "1"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == ("elmokit: 125 tokens of text, 80 words to predict, softmax sampled with 30 negatives")
    assert lines[1].startswith("elmokit: warning: the run has only 25 steps, too few to learn much; set more training.")
    assert lines[2].startswith("elmokit: step 20/25, epoch 2.86, ")
    assert " left, loss (sampled) " in lines[2]
    assert lines[3].startswith("elmokit: step 20: held-out perplexity ")
    assert lines[-1] == "elmokit: the run is finished, after step 25; the model is in runs/toy/model"
    assert cli.run(["pretrain", "toy.toml", "data.heldout=toy.txt", "--workers", "1"]) == 0
    assert "after step 25; more epochs, steps or hours resume it" in capfd.readouterr().err
    (Path("runs/toy/best") / "notes.txt").touch()
    assert cli.run(["pretrain", "toy.toml", "data.heldout=toy.txt", "training.epochs=9", "--workers", "1"]) == 1
    assert "runs/toy/best: also holds notes.txt; move that away" in capfd.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_finished_run_with_a_decayed_rate_offers_no_more_steps(capfd: pytest.CaptureFixture[str]) -> None:
    falling = ["pretrain", "toy.toml", "training.schedule=linear", "--workers", "1"]
    assert cli.run(falling) == 0
    capfd.readouterr()
    assert cli.run(falling) == 0
    assert "train longer in another --run-dir; the model is in" in capfd.readouterr().err


def test_pretrain_suggests_the_nearest_name_of_an_unknown_key(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pretrain", "toy.toml", "training.epoch=3"]) == 1
    assert "did you mean training.epochs?" in capfd.readouterr().err
    assert not (folder / "runs").exists()


def test_vocab_lists_specials_then_words_by_falling_count(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "a.txt").write_text("b a b\n")
    (folder / "b.txt").write_text("c b a\n")
    assert cli.run(["vocab", "[ab].txt", "-o", "v.txt", "--tokenized", "--workers", "1", "--min-count", "2"]) == 0
    assert (folder / "v.txt").read_text("utf-8") == "<S>\n</S>\n<UNK>\nb\na\n"
    assert "5 words including three specials; the text has 3 distinct words in 6 tokens" in capfd.readouterr().err
    assert {path.name for path in folder.iterdir()} == {"a.txt", "b.txt", "v.txt", "toy.txt", "toy.toml"}


def test_vocab_splits_paragraphs_as_a_run_does(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "a.txt").write_text("It rose. We\nfled.\n")
    for options, num_sentences in (([], 2), (["--split"], 3), (["--wrapped"], 2), (["--split", "--wrapped"], 2)):
        assert cli.run(["vocab", "a.txt", "-o", "v.txt", *options]) == 0
        assert f"and {num_sentences} sentences" in capfd.readouterr().err


def test_vocab_rejects_a_folder_before_it_counts(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["vocab", "gone.txt", "-o", "."]) == 1
    assert ".: is a directory; name a file to write to" in capfd.readouterr().err
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"heldout": ("gone.txt",)}}, r"gone\.txt: no such file"),
        ({"vocab": {"file": "gone.txt"}}, r"gone\.txt: no such file"),
    ],
)
def test_missing_files_are_reported_before_any_text_is_prepared(tmp_path: Path, change: dict, message: str) -> None:
    recipe = with_text(toy_recipe(steps=10), tmp_path)
    changed = {name: getattr(recipe, name).model_copy(update=update) for name, update in change.items()}
    with pytest.raises(InputError, match=message):
        run_alone(recipe.model_copy(update=changed), tmp_path / "run")
    assert not (tmp_path / "run" / "text").exists()


def start(*args: str) -> Command:
    return start_command("pretrain", "toy.toml", "training.steps=1000000", *args)


def newest_step(run_dir: Path) -> int:
    return json.loads((sorted((run_dir / "checkpoints").iterdir())[-1] / "state.json").read_bytes())["step"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_first_signal_saves_and_says_how_to_resume(folder: Path, number: signal.Signals) -> None:
    process = start("--workers", "1")
    try:
        while "step 20/" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "finishing the step, then saving" in err
    assert "elmokit: interrupted; the run is saved in runs/toy; run the same command to resume\n" in err
    assert newest_step(folder / "runs" / "toy") >= 20


@pytest.mark.slow
def test_the_second_signal_ends_at_once(folder: Path) -> None:
    # A step of this takes long: the second signal comes in the middle of one.
    slow = ["training.num_rows=400", "training.unroll_steps=200", "model.lstm.cell_dim=300", "--workers", "1"]
    process = start(*slow)
    try:
        while "to predict" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert "finishing the step" in process.stderr.readline()  # two during one long operation would be one
        time.sleep(1.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert not (folder / "runs" / "toy" / "checkpoints").exists()


def test_a_recipe_is_a_file_or_the_name_of_one_of_ours(tmp_path: Path, capfd) -> None:
    text = tmp_path / "text"
    text.write_text(TEXT)
    tiny = ["model.lstm.cell_dim=8", "model.lstm.proj_dim=4", "training.steps=1", "training.num_rows=2"]
    changes = [f"data.train={text}", *tiny, "softmax.kind=full", "model.char_encoder.filters=[[1, 4]]"]
    assert cli.run(["pretrain", "small", *changes, "--run-dir", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "model").is_dir()
    assert cli.run(["pretrain", "smal"]) == 1
    assert (
        "there is no recipe 'smal'; name a TOML file, or one of ours: en-medium, en-small, la-small, paper, small"
        in capfd.readouterr().err
    )
