"""A task in three lines: the defaults of the command line, and a model that answers."""

import json
from pathlib import Path

import pytest
from toy_datasets import write_home

import elmokit
from elmokit.errors import ConfigError, InputError
from elmokit.metrics.tags import bio_to_spans
from elmokit.tasks.progress import DevScores, Finished
from elmokit.tasks.recipe import TaskRecipe, find_task_recipe, resolve_recipe
from elmokit.weights.bundled import EN_SMALL

SETTINGS = {"training.epochs": 8, "training.learning_rate": 0.05}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def train(home: Path, run_dir: Path | None, **options) -> elmokit.TaskModel:
    files = {part: home / "data" / "ner" / f"wnut17.{part}.conll.xz" for part in ("train", "dev", "test")}
    options = {"elmo": home / "bilm", "vectors": home / "data" / "glove.txt", "settings": SETTINGS} | options
    return elmokit.train_task("ner", **files, recipe=home / "recipes" / "ner.toml", run_dir=run_dir, **options)


@pytest.fixture(scope="module")
def model(home: Path) -> elmokit.TaskModel:
    return train(home, home / "run")


@pytest.mark.long
def test_a_prediction_prints_as_a_person_reads_it_and_has_its_parts(model: elmokit.TaskModel):
    first, second = model.predict(["Ada saw Oslo .", ["Bo", "met", "Rome", "."]])
    assert [str(first), str(second)] == ["[PER Ada] saw [LOC Oslo] .", "[PER Bo] met [LOC Rome] ."]
    assert (first.text_index, second.text_index) == (0, 1)
    assert [span.label for span in bio_to_spans(first.value)] == ["PER", "LOC"]
    assert json.loads(json.dumps(first.json))["entities"][0]["tokens"] == ["Ada"]
    assert repr(model).startswith("TaskModel(task='ner', ")


def test_scores_are_those_of_the_run_and_a_saved_model_says_the_same(home: Path, model: elmokit.TaskModel):
    result = json.loads((home / "run" / "result.json").read_bytes())
    path = home / "data" / "ner" / "wnut17.test.conll.xz"
    loaded = elmokit.load_task(home / "run" / "model")
    assert model.evaluate(path) == loaded.evaluate(str(path)) == result["test"]
    texts = ["Dan left Quito .", "Cleo was late"]
    assert loaded.predict(texts) == model.predict(texts)
    assert loaded.predict([]) == []


def test_the_same_call_trains_nothing_again_and_reports_the_result(home: Path, model: elmokit.TaskModel):
    del model  # it is trained by now
    entries = []
    train(home, home / "run", report=entries.append)
    (finished,) = entries
    assert isinstance(finished, Finished)
    assert finished.dev_curve is not None
    assert [type(point) for point in finished.dev_curve] == [DevScores] * 8


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("Ada saw Oslo .", r"^texts is the string 'Ada saw Oslo .'; expected a list"),
        (["Ada left .", " "], r"^text 1: no words in ' '"),
        ([["Ada", "New York"]], r"^text 0: the token 'New York' is not a string without white space"),
        ([["Ada", ""]], r"^text 0: the token '' is not"),
    ],
)
def test_texts_that_cannot_be_read_are_rejected_by_their_index(model: elmokit.TaskModel, texts, message: str):
    with pytest.raises(InputError, match=message):
        model.predict(texts)


def test_data_of_another_format_is_rejected_with_the_name_of_the_task(home: Path, model: elmokit.TaskModel):
    with pytest.raises(InputError, match=r"glove\.txt, line 1: .* \(read as data of the task ner\)"):
        model.evaluate(home / "data" / "glove.txt")


def test_the_run_is_named_after_its_recipe(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    train(home, None, settings=["training.epochs=1"], elmo="none")
    assert (tmp_path / "runs" / "ner" / "model").is_dir()


def read_recipe(run_dir: Path) -> TaskRecipe:
    return TaskRecipe.model_validate_json((run_dir / "recipe.json").read_bytes())


def test_every_option_reaches_the_recipe_of_the_run(home: Path, model: elmokit.TaskModel, tmp_path: Path):
    del model  # it is trained by now
    found = read_recipe(home / "run")
    given = resolve_recipe("ner", home / "recipes" / "ner.toml", settings=SETTINGS)
    assert (found.model, found.training) == (given.model, given.training)
    assert (found.elmo.model, found.words.file) == (str(home / "bilm"), str(home / "data" / "glove.txt"))
    assert not found.elmo.untrained
    train(home, tmp_path / "run", settings={"training.epochs": 1}, untrained=True)
    assert read_recipe(tmp_path / "run").elmo.untrained


def test_an_unknown_task_is_rejected():
    with pytest.raises(InputError, match="unknown task 'pos'; known: classify, coref, ner"):
        elmokit.train_task("pos", train="a", dev="b")


# Recipes


def resolve(**options):
    return resolve_recipe("ner", find_task_recipe("ner", None), **options)


def test_the_bundled_model_is_the_default_and_none_turns_elmo_off():
    assert resolve().elmo.model == str(EN_SMALL)
    assert resolve(elmo="none").elmo.model is None
    assert resolve(settings={"elmo.model": None}).elmo.model is None
    assert resolve(settings=["elmo.model=none"]).elmo.model is None
    assert resolve(elmo="2024").elmo.model == "2024"
    assert resolve(settings={"elmo.place": "none"}).elmo.model is None


def test_vectors_are_trained_only_if_there_are_any():
    assert (resolve().words.file, resolve().words.trained) == (None, False)
    assert (resolve(vectors=Path("v.txt")).words.file, resolve(vectors="v.txt").words.trained) == ("v.txt", True)


def test_settings_take_precedence_over_options():
    assert resolve(vectors="v.txt", settings={"words.file": "none"}).words.file is None


def test_an_untrained_model_needs_a_shape():
    assert resolve(untrained=True).elmo.untrained
    with pytest.raises(InputError, match="takes the shape of a saved one"):
        resolve(untrained=True, elmo="none")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.depth": 3}, r"\[model\]: depth: there is no such key"),
        ({"training.epochs": 0}, r"training\.epochs = 0"),
        ({"task": "sst"}, "is a recipe of the task sst, not of ner"),
        ({"training..epochs": 1}, "does not change a recipe"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(settings, message: str):
    with pytest.raises(ConfigError, match=message):
        resolve(settings=settings)
