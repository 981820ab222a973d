"""Changes of recipe, data and files that a resumed run accepts or rejects."""

from dataclasses import replace
from pathlib import Path

import pytest
from task_runs import assert_same_bits, of_kind, run, stopped_at
from toy_task import (
    RHYMES,
    changed,
    recipe,
    toy_data,
    verses,
)

from elmokit.errors import ConfigError, InputError
from elmokit.runs.checkpoint import load_newest
from elmokit.tasks.progress import DevScores, Finished, TaskStep

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, r"training\.learning_rate was 0\.02, now 0\.5"),
        ({"model": {"hidden_dim": 9}}, r"model\.hidden_dim was unset, now 9"),
        ({"data": toy_data(61)}, "different training data"),
        ({"dev": verses(3, seed=9)}, "different development data"),
    ],
)
def test_another_recipe_or_other_data_is_rejected_and_the_run_can_continue(tmp_path, change, message) -> None:
    run(tmp_path / "run", recipe(), when=stopped_at(8))
    data = change.pop("data", toy_data())
    data = replace(data, dev=change.pop("dev", data.dev))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json*")}
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", recipe(**change), data=data)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json*")} == before
    run(tmp_path / "run", recipe())


def test_another_bilm_or_other_vectors_are_rejected(tmp_path: Path, bilm: str, vectors: str) -> None:
    asked = recipe(bilm=bilm, words=vectors)
    run(tmp_path / "run", asked, when=stopped_at(8))
    Path(vectors).write_text(Path(vectors).read_text("utf-8").replace("0.5", "0.6"), "utf-8")
    with pytest.raises(ConfigError, match="different file of static vectors"):
        run(tmp_path / "run", asked)
    with pytest.raises(ConfigError, match=r"elmo\.untrained was False, now True"):
        run(tmp_path / "run", recipe(bilm=bilm, words=vectors, elmo={"untrained": True}))


def test_files_may_have_moved(tmp_path: Path, bilm: str, vectors: str) -> None:
    run(tmp_path / "run", recipe(bilm=bilm, words=vectors), when=stopped_at(8))
    moved = [Path(path).rename(tmp_path / f"moved{i}.txt") for i, path in enumerate((bilm, vectors))]
    run(tmp_path / "run", recipe(bilm=str(moved[0]), words=str(moved[1])))


def test_more_epochs_go_on_as_if_they_had_been_asked_for_at_first(tmp_path: Path) -> None:
    run(tmp_path / "long", recipe(epochs=5))
    run(tmp_path / "longer", recipe(epochs=3))
    run(tmp_path / "longer", recipe(epochs=5))
    assert_same_bits(tmp_path / "long", tmp_path / "longer")


def test_fewer_epochs_end_a_run_sooner(tmp_path: Path) -> None:
    run(tmp_path / "short", recipe(epochs=3))
    run(tmp_path / "run", recipe(epochs=9), when=stopped_at(16))
    run(tmp_path / "run", recipe(epochs=3))
    assert_same_bits(tmp_path / "short", tmp_path / "run")


def test_fewer_epochs_than_were_learned_are_rejected(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe(epochs=3))
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("result.json", "recipe.json")}
    message = r"run: the run in this folder has taken 24 steps; training\.epochs = 2 has 16; give more epochs"
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", recipe(epochs=2))
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(("before", "now"), [(None, 4), (3, 2)])
def test_less_patience_than_the_run_had_is_rejected(tmp_path: Path, before: int | None, now: int) -> None:
    run(tmp_path / "run", recipe(patience=before), when=stopped_at(8))
    with pytest.raises(ConfigError, match=rf"\(training\.patience was {before}, now {now}\); name another run folder"):
        run(tmp_path / "run", recipe(patience=now))
    run(tmp_path / "run", recipe(patience=None if before is None else before + 1))


def test_a_run_of_another_task_is_reported_as_that(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe(epochs=1))
    asked = recipe(epochs=1).model_copy(update={"task": "tales"})
    with pytest.raises(ConfigError, match="run: is a run of the task rhymes, not of tales; name another run folder"):
        run(tmp_path / "run", asked, task=changed(RHYMES, name="tales"))


def test_a_long_value_is_reported_in_part(tmp_path: Path, vectors: str) -> None:
    run(tmp_path / "run", recipe(words=vectors, epochs=1))
    with pytest.raises(ConfigError, match=r"\(chars was {'char_dim': 4, .{1,48}…, now None\); name another"):
        run(tmp_path / "run", recipe(words=vectors, chars=False, epochs=1))


def test_of_many_differences_some_are_reported(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe(epochs=1))
    asked = recipe(epochs=1, learning_rate=0.5, seed=6, ema=0.9, clip_norm=1.0, batch_size=4)
    with pytest.raises(ConfigError) as refused:
        run(tmp_path / "run", asked)
    told = "training.batch_size was 8, now 4; training.learning_rate was 0.02, now 0.5; training.clip_norm was None"
    assert str(refused.value).startswith(
        f"{tmp_path / 'run'}: the run in this folder was started with different settings ({told}, now 1.0; and 2 more)"
    )


def test_a_run_that_is_shortened_before_its_first_look_has_one(tmp_path: Path) -> None:
    run(
        tmp_path / "run", recipe(epochs=90, batch_size=64, evaluate_every=50), when=stopped_at(20)
    )  # one step per epoch
    reached = load_newest(tmp_path / "run" / "checkpoints").step
    assert reached < 50
    entries = run(tmp_path / "run", recipe(epochs=reached, batch_size=64, evaluate_every=50))
    assert of_kind(TaskStep, entries) == []
    assert [look.step for look in of_kind(DevScores, entries)] == [reached]
    assert of_kind(Finished, entries)[0].best_step == reached


def test_a_run_that_is_rejected_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt"):
        run(tmp_path / "run", recipe(words=str(tmp_path / "nowhere.txt")))
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=r"nowhere\.txt"):
        run(tmp_path / "mine", recipe(words=str(tmp_path / "nowhere.txt")))
    assert (tmp_path / "mine").is_dir()
