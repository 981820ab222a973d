"""Materials of a run before it trains: layers, words, labels, data files."""

from dataclasses import replace
from pathlib import Path

import pytest
from task_runs import of_kind, run
from toy import toy_model
from toy_task import (
    RHYMES,
    Verse,
    recipe,
    toy_data,
    verse,
    verses,
)

from elmokit.errors import ConfigError, ElmokitWarning, InputError
from elmokit.tasks.materials import gather_materials, read_data
from elmokit.tasks.progress import LayersRead, TaskPlan
from elmokit.tasks.saved import load_task

pytestmark = pytest.mark.long


def test_runs_share_the_layers_of_a_bilm(tmp_path: Path, bilm: str) -> None:
    layers = tmp_path / "layers"
    entries = run(tmp_path / "first", recipe(bilm=bilm, epochs=1), layers_dir=layers)
    read = of_kind(LayersRead, entries)
    train_and_dev = {one.tokens for one in [*toy_data().train, *toy_data().dev]}
    assert (sum(map(len, train_and_dev)),) * 2 in {(entry.num_done, entry.num_tokens) for entry in read}
    assert not (tmp_path / "first" / "layers").exists()
    entries = run(tmp_path / "second", recipe(bilm=bilm, epochs=1, seed=6), layers_dir=layers)
    assert of_kind(LayersRead, entries) == []


def test_the_elmo_arm_differs_from_the_baseline_by_what_elmo_adds(tmp_path: Path, bilm: str) -> None:
    plans = [
        of_kind(TaskPlan, run(tmp_path / name, recipe(bilm=path, epochs=1)))[0]
        for name, path in (("baseline", None), ("elmo", bilm))
    ]
    width = toy_model().width
    assert plans[1].num_parameters - plans[0].num_parameters == 4 + 2 * 4 * 8 * width  # a mix; both LSTMs' inputs


def test_an_untrained_bilm_follows_from_the_seed_and_is_saved_like_any_other(tmp_path: Path, bilm: str) -> None:
    elmo = {"untrained": True}
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        run(tmp_path / name, recipe(bilm=bilm, elmo=elmo, epochs=1, seed=seed))
    weights = {
        name: (tmp_path / name / "model" / "bilm" / "model.safetensors").read_bytes()
        for name in ("one", "again", "other")
    }
    assert weights["one"] == weights["again"]
    assert weights["one"] != weights["other"]
    assert weights["one"] != (Path(bilm) / "model.safetensors").read_bytes()
    assert load_task(tmp_path / "one" / "model", expected_task=RHYMES).embedder is not None


def test_a_run_can_be_stopped_while_the_bilm_reads(tmp_path: Path, bilm: str) -> None:
    asked = recipe(bilm=bilm)
    entries = run(tmp_path / "run", asked, when=lambda entry: isinstance(entry, LayersRead))
    assert [type(entry) for entry in entries] == [LayersRead]
    run(tmp_path / "run", asked)


def test_labels_that_training_data_lacks_are_reported_of_once(tmp_path: Path) -> None:
    dev = [*verses(12, seed=2), Verse(("ba", "ka"), ("plain", "echo")), Verse(("ba",), ("echo",))]
    with pytest.warns(ElmokitWarning, match=r"dev data: 2 of 14 examples.*echo \(2\)") as warned:
        run(tmp_path / "run", recipe(), data=replace(toy_data(), dev=dev))
    assert len(warned) == 1


def test_words_are_of_the_part_that_is_learned_from_and_labels_of_all(tmp_path: Path) -> None:
    train = [*toy_data().train, Verse(("x" * 20,) * 30, ("new",) * 30)]
    run(tmp_path / "run", recipe(max_tokens=20, epochs=1), data=replace(toy_data(), train=train))
    loaded = load_task(tmp_path / "run" / "model", expected_task=RHYMES)
    assert loaded.labels.tags == ("new", "plain", "rhyme")
    assert "x" not in loaded.columns.vocab.chars


def test_words_characters_and_labels_of_development_data_are_not_learned(tmp_path: Path, vectors: str) -> None:
    data = replace(toy_data(), dev=[Verse(("xyz",), ("echo",))])
    materials = gather_materials(RHYMES, recipe(words=vectors), data, tmp_path / "layers")
    words = {word for one in data.train for word in one.tokens}
    assert set(materials.vocab.words) == words
    assert set(materials.vocab.chars) == set("".join(words))
    assert materials.labels.tags == ("plain", "rhyme")


@pytest.mark.parametrize(
    ("asked", "data", "error", "message"),
    [
        (recipe().model_copy(update={"task": "ner"}), toy_data(), ConfigError, "for the task 'ner', not for 'rhymes'"),
        (recipe(model={"hiden_dim": 3}), toy_data(), ConfigError, "did you mean hidden_dim"),
        (recipe(chars=False), toy_data(), ConfigError, "no inputs"),
        (recipe(), replace(toy_data(), dev=[]), InputError, "no dev examples"),
        (recipe(), replace(toy_data(), dev=[Verse(())]), InputError, "dev data: example 1 of 1"),
        (recipe(), replace(toy_data(), train=[]), InputError, "no training examples"),
    ],
)
def test_what_cannot_be_learned_is_rejected(tmp_path: Path, asked, data, error, message) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path / "run", asked, data=data)


def test_data_is_read_from_files_and_the_test_file_at_the_end_only(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.txt" for name in ("train", "dev", "test")}
    for name, path in paths.items():
        path.write_text("ba ka\nbo le\n" * (1 + len(name)), "utf-8")
    data = read_data(RHYMES, **paths)
    paths["test"].write_text("ga la ma\n", "utf-8")
    assert (len(data.train), len(data.dev)) == (12, 8)
    assert data.read_test() == [verse("ga", "la", "ma")]
    assert read_data(RHYMES, train=paths["train"], dev=paths["dev"], test=None).read_test is None
    with pytest.raises(InputError, match=r"absent\.txt: no such file"):
        read_data(RHYMES, train=paths["train"], dev=paths["dev"], test=tmp_path / "absent.txt")
