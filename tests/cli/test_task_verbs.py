"""The verbs of the tasks: what they make, what they print where, and how they fail."""

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import start_command
from toy_datasets import write_home

from elmokit import cli
from elmokit.config import find_recipe
from elmokit.tasks.names import TASKS
from elmokit.tasks.recipe import TaskRecipe

pytestmark = pytest.mark.long

FILES = {
    "classify": [f"classify/{part}.tsv" for part in ("train", "dev", "test")],
    "coref": ["coref/litbank-conll.tar.xz"] * 3,
    "ner": [f"ner/wnut17.{part}.conll.xz" for part in ("train", "dev", "test")],
    "parse": [f"trees/ewt.{part}.ptb.xz" for part in ("train", "dev", "test")],
    "snli": [f"snli/snli_1.0_{part}.jsonl.xz" for part in ("train-100k", "dev", "test")],
    "squad": ["squad/train-small.json.xz", "squad/test-small.json.xz", "squad/test-small.json.xz"],
    "srl": [f"srl/ewt-propbank-{part}.conll.xz" for part in ("train", "dev", "test")],
    "sst": [f"sst/{part}.txt.xz" for part in ("train", "dev", "test")],
    "tag": [f"ner/wnut17.{part}.conll.xz" for part in ("train", "dev", "test")],
}
ASKED = {
    "classify": "It was superb.\nThe film was bad.\n",
    "coref": "Ada saw Oslo. She left it.\nBo was late.\n\nDan met Bo.\n",
    "ner": "Ada saw Oslo.\n\nBo met Rome.\n",
    "parse": "Ada saw Oslo.\n",
    "snli": "Ada saw Oslo.\tAda saw nobody.\n",
    "squad": "It was late. Ada saw Oslo.\tWho was it?\n",
    "srl": "Ada *saw* Oslo and *met* Bo .\n",
    "sst": "The film in Oslo superb\n",
    "tag": "Ada saw Oslo.\n",
}
NUM_ASKED = {
    "classify": 2,
    "coref": 2,
    "ner": 2,
    "parse": 1,
    "snli": 1,
    "squad": 1,
    "srl": 2,
    "sst": 1,
    "tag": 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, recipes, vectors and a biLM; and a trained model of NER in the folder ner."""
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    changes = ["training.epochs=8", "training.learning_rate=0.05"]
    assert cli.run([*train(folder, "ner"), *changes, "--run-dir", str(folder / "ner")]) == 0
    return folder


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(home: Path, task: str) -> list[str]:
    parts = zip(("--train", "--dev", "--test"), FILES[task], strict=True)
    files = [word for option, name in parts for word in (option, str(home / "data" / name))]
    recipe = ["--recipe", str(home / "recipes" / f"{task}.toml"), "--elmo", str(home / "bilm")]
    return ["task", "train", task, *files, *recipe, "--vectors", str(home / "data" / "glove.txt")]


def model(home: Path) -> str:
    return str(home / "ner" / "model")


# train


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_trained_evaluated_and_asked(home, task, capfd):
    assert cli.run(train(home, task)) == 0
    out, err = capfd.readouterr()
    result = json.loads(Path("runs", task, "result.json").read_bytes())
    shown = {line.rsplit(maxsplit=2)[0]: line.split()[-2:] for line in out.splitlines()[1:]}
    assert out.splitlines()[0].split() == ["score", "dev", "test"]
    assert shown == {
        name.replace("_", " "): [f"{100 * result[part][name]:.2f}" for part in ("dev", "test")]
        for name in result["test"]
    }
    assert f"the model is in runs/{task}/model\n" in err

    test_file = str(home / "data" / FILES[task][2])
    assert cli.run(["task", "evaluate", task, f"runs/{task}/model", test_file, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {name: found[name] for name in result["test"]} == pytest.approx(result["test"])

    Path("text.txt").write_text(ASKED[task])
    assert cli.run(["task", "predict", task, f"runs/{task}/model", "text.txt", "--json"]) == 0
    said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(said) == NUM_ASKED[task]
    assert not any({"id", "document"} & one.keys() for one in said)  # each would be the first


def test_a_run_is_reported_in_plain_lines_and_a_finished_one_left_as_it_is(home, capfd):
    assert cli.run(train(home, "ner")) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "elmokit: the biLM reads: 40 of 40 tokens"  # four sentences of dev are also in train
    assert lines[1] == (
        "elmokit: 10 examples to train on, 4 in the dev set; 1,942 parameters, static vectors, ELMo at the input"
    )
    looks = [line for line in lines if ", dev f1 " in line]
    assert [re.match(r"elmokit: epoch (\S+),", line)[1] for line in looks] == ["1.00/2", "2.00/2"]
    assert "(the best so far), loss " in looks[0]
    assert re.search(r"examples/s, 0:00:0\d left at most$", looks[0])
    assert lines[-1].startswith("elmokit: the run is finished, after step 6; the best weights are those of ")
    before = Path("runs/ner/model/model.safetensors").stat().st_mtime_ns
    assert cli.run(train(home, "ner")) == 0
    out, err = capfd.readouterr()
    assert "the run was finished before, after step 6" in err
    assert out.splitlines()[0].split() == ["score", "dev", "test"]
    assert Path("runs/ner/model/model.safetensors").stat().st_mtime_ns == before


def recipe_of(*args: str) -> TaskRecipe:
    assert cli.run([*args, "training.epochs=1", "--run-dir", "run"]) == 0
    return TaskRecipe.model_validate_json(Path("run/recipe.json").read_bytes())


def test_options_stand_for_keys_of_the_recipe_and_keys_win(home):
    asked = recipe_of(*train(home, "ner"), "--untrained", "elmo.place=both", "words.file=none")
    assert asked.elmo.model == str(home / "bilm")
    assert (asked.elmo.untrained, asked.elmo.place) == (True, "both")
    assert asked.words.file is None


def test_without_vectors_there_are_none_to_train(home):
    shipped = [word for word in train(home, "ner") if not word.endswith(".toml")]
    shipped.remove("--recipe")
    asked = recipe_of(*shipped[:-2], "model.hidden_dims=[4, 4]")
    assert find_recipe("ner", folder="tasks").read_text().count("trained = true") == 1
    assert (asked.words.file, asked.words.trained) == (None, False)


def test_elmo_none_is_the_baseline_and_a_folder_may_be_called_by_a_number(home, capfd):
    assert recipe_of(*train(home, "ner"), "--elmo", "none").elmo.model is None
    assert "no ELMo" in capfd.readouterr().err
    Path("2024").symlink_to(home / "bilm")
    assert cli.run([*train(home, "ner"), "--elmo", "2024"]) == 0


def test_after_ctrl_c_the_same_command_goes_on(home):
    args = [*train(home, "ner"), "training.epochs=100000"]
    process = start_command(*args)
    try:
        while "epoch 3.00/" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "elmokit: interrupted; the run is saved in runs/ner; run the same command to resume\n" in err
    (step,) = {
        json.loads(path.read_bytes())["step"] for path in sorted(Path("runs/ner/checkpoints").glob("*/*.json"))[-1:]
    }
    assert step >= 9
    assert cli.run([*args[:-1], f"training.epochs={step // 3 + 2}"]) == 0
    log = [json.loads(line) for line in Path("runs/ner/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line["kind"] == "DevScores"] == [3 * n for n in range(1, step // 3 + 3)]


# predict and evaluate


def test_predict_reads_standard_input_and_leaves_blank_lines_out(home, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\nAda saw Oslo.\n\nBo met Rome.\n")))
    assert cli.run(["task", "predict", "ner", model(home)]) == 0
    assert capfd.readouterr().out == "[PER Ada] saw [LOC Oslo] .\n[PER Bo] met [LOC Rome] .\n"


def test_a_typed_line_that_cannot_be_read_is_reported_and_the_next_one_answered(home, capfd, monkeypatch):
    assert cli.run([*train(home, "snli"), "--run-dir", "snli"]) == 0
    capfd.readouterr()
    typed = io.TextIOWrapper(io.BytesIO(b"Ada saw Oslo.\nAda saw Oslo.\tAda was there.\n"))
    typed.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", typed)
    assert cli.run(["task", "predict", "snli", "snli/model", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["line"] == 1
    assert err.splitlines()[1].startswith("elmokit: standard input, line 1: 'Ada saw Oslo.' is not a pair of sentences")


def test_who_types_nothing_has_done_nothing_wrong(home, monkeypatch):
    typed = io.TextIOWrapper(io.BytesIO(b""))
    typed.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", typed)
    assert cli.run(["task", "predict", "ner", model(home)]) == 0


def test_predict_takes_tokens_as_they_are_or_another_languages_rules(home, capfd):
    Path("text.txt").write_text("Ada a quitté l'Université\n")
    found = {}
    for name, options in (("en", []), ("fr", ["--language", "fr"]), ("given", ["--tokenized"])):
        assert cli.run(["task", "predict", "ner", model(home), "text.txt", "--json", *options]) == 0
        found[name] = json.loads(capfd.readouterr().out)["tokens"][3:]
    assert found == {"en": ["l", "'Université"], "fr": ["l'", "Université"], "given": ["l'Université"]}


def test_json_has_the_line_over_all_files_and_many_windows_keep_their_order(home, capfd):
    Path("a.txt").write_text("Ada saw Oslo .\n\n")
    Path("b.txt").write_text("".join(f"Bo met Rome {number} .\n" for number in range(300)))
    assert cli.run(["task", "predict", "ner", model(home), "a.txt", "b.txt", "--json"]) == 0
    said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["line"] for one in said] == [0, *range(2, 302)]
    assert [one["tokens"][3] for one in said] == [".", *map(str, range(300))]


def test_an_ensemble_decides_by_all_its_models(home, capfd):
    for seed in ("1", "2"):
        assert cli.run([*train(home, "snli"), f"training.seed={seed}", "--run-dir", seed]) == 0
    capfd.readouterr()
    Path("text.txt").write_text(ASKED["snli"])
    found = []
    for models in (["1"], ["2"], ["1", "--ensemble", "2/model"]):
        args = ["task", "predict", "snli", f"{models[0]}/model", *models[1:], "text.txt", "--json"]
        assert cli.run(args) == 0
        found.append(json.loads(capfd.readouterr().out)["probabilities"])
    first, second, together = found
    assert first != second
    assert together == pytest.approx({name: (first[name] + second[name]) / 2 for name in first})


@pytest.mark.parametrize("other", ["coref", "snli", "squad", "srl", "sst"])
def test_data_of_another_task_is_rejected_with_the_task_that_was_expected(home, capfd, other):
    file = home / "data" / FILES[other][2]
    assert cli.run(["task", "evaluate", "ner", model(home), str(file)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "(read as data of the task ner)" in err


def test_evaluate_prints_a_table_of_percents(home, capfd):
    test_file = home / "data" / FILES["ner"][2]
    assert cli.run(["task", "evaluate", "ner", model(home), str(test_file), "--ensemble", model(home)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["score", "wnut17.test.conll.xz", "(5)"]
    assert lines[1].split() == ["f1", "100.00"]


# Failures


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--recipe", "pos"], "there is no recipe 'pos'; name a TOML file, or one of ours: classify, coref, "),
        (["--recipe", "none.toml"], "none.toml: no such recipe"),
        (["--recipe", "sst"], r"sst\.toml: is a recipe of the task sst, not of ner"),
        (["--dev", "none.conll"], r"none\.conll: no such file"),
        (["--elmo", "nowhere"], "nowhere: does not exist; expected a folder"),
        (["--elmo", "none", "--untrained"], "an untrained biLM takes the shape of a saved one; name its folder"),
        (["training.epoch=3"], r"did you mean training\.epochs\?"),
        (["model.hidden_dim=3"], r"ner\.toml, \[model\]: hidden_dim: there is no such key; did you mean hidden_dims"),
        (["elmo.model=none", "words.file=none"], "the model would have no inputs"),
    ],
)
def test_a_run_that_cannot_be_is_one_line_and_exit_code_1(home, change, message, capfd):
    assert cli.run([*train(home, "ner"), *change]) == 1
    err = capfd.readouterr().err
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_an_empty_test_file_is_found_before_anything_is_learned(home, tmp_path, capfd):
    (tmp_path / "empty.conll").touch()
    assert cli.run([*train(home, "ner"), "--test", str(tmp_path / "empty.conll")]) == 1
    assert "empty.conll: is empty; give another test file, or none\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["predict", "ner", "BILM", "text.txt"], "is a biLM without a task"),
        (["predict", "ner", "nowhere", "text.txt"], "nowhere: does not exist; expected the folder of a task model"),
        (["predict", "ner", "MODEL", "none.txt"], r"none\.txt: no such file"),
        (["predict", "ner", "MODEL", "empty.txt"], r"no text in empty\.txt; expected one sentence per line"),
        (["predict", "ner", "MODEL", "latin.txt"], r"latin\.txt, line 2: byte 0xe9"),
        (
            ["predict", "ner", "MODEL", "text.txt", "--ensemble", "snli/model"],
            "is a model of the task snli, expected one of ner",
        ),
        (["predict", "sst", "MODEL", "text.txt"], "is a model of the task ner, expected one of sst"),
        (["evaluate", "sst", "MODEL", "text.txt"], "is a model of the task ner, expected one of sst"),
        (
            ["predict", "snli", "snli/model", "text.txt"],
            r"text\.txt, line 2: 'Bo met Rome\.' is not a pair of sentences",
        ),
        (["evaluate", "ner", "MODEL", "none.conll"], r"none\.conll: no such file"),
        (["evaluate", "ner", "MODEL", "text.txt"], r"text\.txt, line 1: "),
        (["evaluate", "ner", "MODEL", "empty.txt"], r"empty\.txt: no sentence"),
        (
            ["evaluate", "snli", "snli/model", "empty.txt"],
            r"empty\.txt: no examples; expected data of the task snli",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line_and_exit_code_1(home, args, message, capfd):
    Path("text.txt").write_text("Ada saw Oslo.\tAda was there.\nBo met Rome.\n")
    Path("empty.txt").write_text("\n \n")
    Path("latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    if "snli/model" in args:
        assert cli.run([*train(home, "snli"), "--run-dir", "snli"]) == 0
    capfd.readouterr()
    places = {"MODEL": model(home), "BILM": str(home / "bilm")}
    assert cli.run(["task", *(places.get(word, word) for word in args)]) == 1
    err = capfd.readouterr().err
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_a_task_that_is_none_is_wrong_usage(home, capfd):
    for args in (train(home, "ner"), ["task", "evaluate", "", model(home), "x"], ["task", "predict", "", model(home)]):
        args[2] = "pos"
        assert cli.run(args) == 2
        assert "'pos' is not one of 'classify', 'coref', 'ner', " in capfd.readouterr().err


# Names and recipes


def test_trees_are_drawn_and_nothing_else(home, tmp_path, capfd):
    (tmp_path / "text.txt").write_text("Ada saw Oslo .\n")
    assert cli.run([*train(home, "parse"), "--run-dir", "parser"]) == 0
    capfd.readouterr()
    assert cli.run(["task", "predict", "parse", "parser/model", "text.txt", "--draw"]) == 0
    drawn = capfd.readouterr().out.splitlines()
    assert [line for line in drawn if line.endswith("saw")]
    assert any(line.startswith("└─") for line in drawn)
    assert cli.run(["task", "predict", "ner", model(home), "text.txt", "--draw"]) == 1
    assert "predictions of ner have no drawing" in capfd.readouterr().err


def test_the_text_of_a_tasks_files_is_printed_once(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text(
        '{"gold_label": "neutral", "sentence1": "Ada slept.", "sentence2": "Bo ran."}\n'
        '{"gold_label": "neutral", "sentence1": "Ada slept.", "sentence2": "Dan sat."}\n'
    )
    assert cli.run(["task", "text", "snli", "a.jsonl"]) == 0
    assert capfd.readouterr().out == "Ada slept .\nBo ran .\nDan sat .\n"
    paragraph = {
        "context": "Ada slept.",
        "qas": [{"id": "1", "question": "Who slept?", "answers": [{"text": "Ada", "answer_start": 0}]}],
    }
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"title": "A", "paragraphs": [paragraph]}]}))
    assert cli.run(["task", "text", "squad", "a.json"]) == 0
    assert capfd.readouterr().out == "Ada slept .\n"
    assert cli.run(["perplexity", "en-small", "a.jsonl"]) == 1
    assert "elmokit task text TASK a.jsonl" in capfd.readouterr().err
    assert cli.run(["finetune", "en-small", "a.jsonl", "-o", "tuned"]) == 1
    assert "elmokit task text TASK a.jsonl" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["train", "predict"])
def test_help_lists_every_task(verb, capfd):
    assert cli.run(["task", verb, "--help"]) == 0
    out = capfd.readouterr().out
    for name, info in TASKS.items():
        assert f"  {name}  " in out
        assert (info.files if verb == "train" else info.line)[:40] in out


@pytest.mark.slow
def test_the_example_trains_and_finds_names():
    example = Path(__file__).parents[2] / "examples" / "train_ner.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[PER Dan] left [LOC Quito] at noon .", "[PER Ada] saw [LOC Oslo] ."]
