"""Task runs: they learn, they go on after any end, and they choose and test as they say."""

import json
import math
import multiprocessing
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from task_runs import assert_same_bits, of_kind, run, state, stopped_at
from toy_task import (
    EVERY_STEP,
    LISTENERS,
    RHYMES,
    Verse,
    VerseModel,
    changed,
    recipe,
    toy_data,
    train_slowly,
    verse,
    verses,
)

from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, ElmokitWarning, InputError, OutputError
from elmokit.runs.checkpoint import load_newest
from elmokit.tasks.loop import run_task
from elmokit.tasks.progress import DevScores, Entry, Finished, TaskPlan, TaskStep, finished_from_json
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import load_task

pytestmark = pytest.mark.long

SERVER = multiprocessing.get_context("forkserver")


SERVER.set_forkserver_preload(["elmokit.tasks.loop"])  # so that a process starts at once


def test_a_run_learns_a_task_that_the_loop_has_not_heard_of(tmp_path: Path) -> None:
    asked = recipe(epochs=10, learning_rate=0.03, seed=6, model={"hidden_dim": 16, "dropout": 0.0})
    entries = run(tmp_path / "run", asked, data=toy_data(160))
    (plan,), (finished,) = of_kind(TaskPlan, entries), of_kind(Finished, entries)
    looks, steps = of_kind(DevScores, entries), of_kind(TaskStep, entries)
    assert (plan.step, plan.num_steps, plan.num_examples, plan.num_dev) == (0, 200, 160, 12)
    assert [look.step for look in looks] == list(range(20, 201, 20))
    assert [look.epoch for look in looks] == list(range(1, 11))
    assert steps[0].loss > 5 * steps[-1].loss
    assert finished.dev["accuracy"] == max(look.scores["accuracy"] for look in looks) > 0.95
    assert finished.test["accuracy"] > 0.9
    assert finished.test["num_tags"] == sum(len(one.tokens) for one in verses(15, seed=3))
    assert (finished.step, finished.seed) == (200, 6)
    assert all(step.examples_per_second > 0 for step in steps)


def test_a_run_leaves_its_recipe_log_result_and_model(tmp_path: Path) -> None:
    folder, asked = tmp_path / "run", recipe()
    entries = run(folder, asked)
    assert TaskRecipe.model_validate_json((folder / "recipe.json").read_bytes()) == asked
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["TaskStep", "DevScores"] * 3 + ["Finished"]
    (finished,) = of_kind(Finished, entries)
    assert lines[-1]["test"] == finished.test
    result = json.loads((folder / "result.json").read_bytes())
    assert result["test"] == finished.test
    assert result["dev"] == finished.dev
    assert (result["task"], result["seed"], result["step"]) == ("rhymes", 5, 24)
    loaded = load_task(folder / "model", expected_task=RHYMES)
    test = verses(15, seed=3)
    again = loaded.evaluate_examples(test, source="the test data")
    assert again == finished.test


RUNS = {
    "adam": {"evaluate_every": 5, "schedule": "halve", "weight_decay": 1e-3, "clip_norm": 1.0},
    "adadelta": {"ema": 0.9, "learning_rate": 1.0, "clip_value": 0.1, "patience": 2},
    "adagrad": {"schedule": "exponential", "learning_rate": 0.1},
    "sgd": {"evaluate_every": 7, "ema": 0.5, "max_examples": 40, "max_tokens": 8},
}


@pytest.mark.parametrize(
    "optimizer", ["adam", "sgd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adadelta", "adagrad"))]
)
def test_stopped_anywhere_and_started_again_a_run_ends_with_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    task = changed(
        EVERY_STEP,
        vary=lambda example, chance: verse(*example.tokens[: chance.integers(1, 1 + len(example.tokens))]),
    )
    asked = recipe(optimizer=optimizer, **RUNS[optimizer])
    run(tmp_path / "straight", asked, task=task)
    found, num_pieces = None, 0
    while found is None:
        stop, learned = threading.Event(), []
        torch.manual_seed(num_pieces)  # nothing may follow from what others draw
        LISTENERS.append(lambda learned=learned, stop=stop: (learned.append(1), len(learned) == 3 and stop.set()))
        found = run_task(task, asked, toy_data(), tmp_path / "broken", report=lambda _: None, stop=stop)
        LISTENERS.clear()
        num_pieces += 1
    assert num_pieces >= 5
    assert_same_bits(tmp_path / "straight", tmp_path / "broken")


def test_a_broken_runs_log_tells_of_every_step_once(tmp_path: Path) -> None:
    asked = recipe(epochs=6)
    for step in (16, 24):
        run(tmp_path / "run", asked, when=stopped_at(step))
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-000000024")  # as if it had died before that was saved
    run(tmp_path / "run", asked)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "DevScores"] == [8, 16, 24, 32, 40, 48]
    assert [line["step"] for line in lines if line["kind"] == "TaskStep"] == [8, 16, 24, 32, 40, 48]
    seconds = [line["seconds"] for line in lines if line["kind"] == "TaskStep"]
    assert seconds == sorted(seconds)


@pytest.mark.slow
def test_killed_again_and_again_a_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    asked = recipe(epochs=4, evaluate_every=3, ema=0.9)
    run(tmp_path / "straight", asked)
    folder, reached = tmp_path / "broken", []
    for target in (3, 12):
        process = SERVER.Process(target=train_slowly, args=(asked, folder))
        process.start()
        until = time.monotonic() + 60
        while not list(folder.glob(f"checkpoints/step-{target:09d}")):
            assert process.is_alive()
            assert time.monotonic() < until
            time.sleep(0.002)
        process.kill()
        process.join()
        reached.append(load_newest(folder / "checkpoints").step)
    assert reached == sorted(reached)
    assert reached[-1] < 32
    run(folder, asked)
    assert_same_bits(tmp_path / "straight", folder)


def test_work_between_two_evaluations_is_saved_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.tasks.loop.SAVE_EVERY", 0.0)
    saved: list[int] = []

    def note(entry: Entry) -> bool:
        if isinstance(entry, TaskStep):
            saved.append(entry.step)
        return False

    run(tmp_path / "run", recipe(), when=note)
    run(tmp_path / "other", recipe())
    assert saved == list(range(1, 25))
    monkeypatch.undo()
    run(tmp_path / "straight", recipe())
    assert_same_bits(tmp_path / "run", tmp_path / "straight")


def scripted(scores: list[float]) -> Any:
    """The task with scores that were decided beforehand, one for every look; the last is that of the test."""
    remaining = iter(scores)
    return changed(RHYMES, score=lambda *_: {"accuracy": next(remaining)})


def test_the_best_weights_are_the_earliest_with_the_best_score(tmp_path: Path) -> None:
    entries = run(tmp_path / "run", recipe(epochs=5), task=scripted([0.1, 0.7, 0.3, 0.7, 0.6, 0.99]))
    (finished,) = of_kind(Finished, entries)
    assert finished.best_step == 16
    assert (finished.dev, finished.test) == ({"accuracy": 0.7}, {"accuracy": 0.99})
    assert [look.is_best for look in of_kind(DevScores, entries)] == [True, True, False, False, False]
    run(tmp_path / "short", recipe(epochs=2), task=scripted([0.1, 0.7, 0.99]))
    tensors = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "short")]
    assert tensors[0] == tensors[1]


def test_patience_ends_a_run_and_every_look_without_a_rise_halves_the_rate(tmp_path: Path) -> None:
    asked = recipe(epochs=50, patience=3, schedule="halve", learning_rate=0.08)
    entries = run(tmp_path / "run", asked, task=scripted([0.1, 0.5, 0.4, 0.6, 0.6, 0.5, 0.2, 0.0]))
    assert [look.step for look in of_kind(DevScores, entries)][-1] == 7 * 8
    rates = [step.learning_rate for step in of_kind(TaskStep, entries)]
    assert rates == [0.08, 0.08, 0.08, 0.04, 0.04, 0.02, 0.01]


def test_the_test_data_is_read_once_after_everything_was_learned(tmp_path: Path) -> None:
    events: list[Any] = []

    def read_test() -> list[Verse]:
        events.append("read")
        return verses(15, seed=3)

    data = replace(toy_data(), read_test=read_test)
    stop = threading.Event()
    run_task(RHYMES, recipe(), data, tmp_path / "run", report=events.append, stop=stop)
    assert events.count("read") == 1
    assert isinstance(events[-1], Finished)
    assert events[-2] == "read"
    entries = run(tmp_path / "run", recipe(), data=data)
    assert [type(entry) for entry in entries] == [Finished]  # read once more, to see that it is the same


def test_a_finished_run_is_tested_on_other_data_when_that_is_asked_for(tmp_path: Path) -> None:
    def finish(seed: int | None) -> Finished:
        read_test = None if seed is None else lambda: verses(15, seed=seed)
        (finished,) = of_kind(Finished, run(tmp_path / "run", recipe(), data=replace(toy_data(), read_test=read_test)))
        return finished

    untested, tested = finish(None), finish(3)
    with pytest.warns(
        ElmokitWarning, match="run: the model was tested on other data before; the new scores replace those"
    ):
        tested_otherwise = finish(4)
    assert untested.test is None
    assert tested.test is not None
    assert tested_otherwise.test is not None
    assert tested.test["num_tags"] == sum(len(one.tokens) for one in verses(15, seed=3))
    assert tested_otherwise.test["num_tags"] == sum(len(one.tokens) for one in verses(15, seed=4))
    assert untested.step == tested.step == tested_otherwise.step
    assert untested.dev == tested.dev == tested_otherwise.dev


def test_the_same_tokens_with_other_tags_are_other_data(tmp_path: Path) -> None:
    data = toy_data()
    run(tmp_path / "run", recipe(epochs=1), data=data)
    one = data.train[0]
    turned = replace(one, tags=one.tags[::-1])
    assert turned != one
    with pytest.raises(ConfigError, match="different training data"):
        run(tmp_path / "run", recipe(epochs=2), data=replace(data, train=[turned, *data.train[1:]]))


def test_a_run_without_test_data_has_no_test_scores(tmp_path: Path) -> None:
    (finished,) = of_kind(Finished, run(tmp_path / "run", recipe(), data=replace(toy_data(), read_test=None)))
    assert finished.test is None
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["test"] is None


def test_the_moving_mean_is_what_is_evaluated_and_saved(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe(ema=0.95, epochs=1))
    tensors = state(tmp_path / "run")
    name = "emit.weight"
    assert torch.equal(tensors[f"best/{name}"], tensors[f"mean/{name}"])
    assert not torch.equal(tensors[f"best/{name}"], tensors[f"model/{name}"])
    loaded = load_task(tmp_path / "run" / "model", expected_task=RHYMES)
    assert torch.equal(loaded.module.state_dict()[name], tensors[f"mean/{name}"])


def test_a_loss_that_is_not_finite_names_the_step(tmp_path: Path) -> None:
    class Diverging(VerseModel):
        num_losses = 0

        def loss(self, batch):
            self.num_losses += 1
            return super().loss(batch) * (math.nan if self.num_losses == 11 else 1)

    with pytest.raises(ConfigError, match=r"loss of step 11 is nan.*lower training\.learning_rate"):
        run(tmp_path / "run", recipe(), task=changed(RHYMES, build=Diverging))
    assert load_newest(tmp_path / "run" / "checkpoints").step == 8


def test_the_penalty_of_the_mixes_is_part_of_the_loss(tmp_path: Path, bilm: str) -> None:
    # Nothing but the penalty moves weights that the loss does not depend on.
    class Deaf(VerseModel):
        def loss(self, batch):
            return super().loss(batch) * 0

    class Skewed(Deaf):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            with torch.no_grad():
                self.tokens.input_mix.weights[0] = 1.0

    asked = recipe(bilm=bilm, elmo={"penalty": 0.5}, optimizer="sgd", learning_rate=0.1, epochs=1)
    run(tmp_path / "run", asked, task=changed(RHYMES, build=Skewed))
    found = state(tmp_path / "run")["model/tokens.input_mix.weights"]
    torch.testing.assert_close(found, torch.tensor([(1 - 2 * 0.5 * 0.1) ** 8, 0, 0]))


def test_test_data_that_cannot_be_read_cost_nothing_of_what_was_learned(tmp_path: Path) -> None:
    def fail() -> Sequence[Any]:
        raise InputError("test.txt, line 2: no verse")

    message = (
        r"^test\.txt, line 2: no verse; the trained weights are saved, and the same command resumes with the test$"
    )
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", recipe(), data=replace(toy_data(), read_test=fail))
    entries = run(tmp_path / "run", recipe())
    assert of_kind(TaskStep, entries) == []
    assert of_kind(Finished, entries)[0].test is not None


def test_a_run_that_was_killed_before_its_result_was_written_writes_it(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe())
    before = json.loads((tmp_path / "run" / "result.json").read_bytes())
    (tmp_path / "run" / "result.json").unlink()
    entries = run(tmp_path / "run", recipe())
    assert of_kind(TaskStep, entries) == []
    assert json.loads((tmp_path / "run" / "result.json").read_bytes()) == before


def test_a_folder_is_for_one_run_at_a_time(tmp_path: Path) -> None:
    def start_another(entry: Entry) -> bool:
        if isinstance(entry, TaskPlan):
            with pytest.raises(OutputError, match="another process is training in it"):
                run(tmp_path / "run", recipe())
        return False

    run(tmp_path / "run", recipe(epochs=1), when=start_another)


def test_a_run_leaves_others_randomness_alone(tmp_path: Path) -> None:
    torch.manual_seed(11)
    np.random.seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    run(tmp_path / "run", recipe(epochs=1))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_curves_are_drawn_where_tensorboard_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path / "run", recipe(epochs=1))
    run(tmp_path / "run", recipe(epochs=3))  # goes on, in the same curves
    drawn = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    looks = [
        line
        for line in map(json.loads, (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines())
        if line["kind"] == "DevScores"
    ]
    assert len(looks) == 3
    assert [(point.step, point.value) for point in drawn.Scalars("dev/accuracy")] == [
        (look["step"], pytest.approx(look["scores"]["accuracy"])) for look in looks
    ]


def test_static_vectors_are_learned_further_and_saved(tmp_path: Path, vectors: str) -> None:
    run(tmp_path / "run", recipe(words=vectors, epochs=1))
    saved = StaticVectors.load(tmp_path / "run" / "model" / "vectors")
    assert saved.width == 3
    learned = state(tmp_path / "run")["model/tokens.learned"]
    assert learned.abs().max() > 0
    assert learned[0].abs().max() == 0


# Results


def test_a_result_has_sizes_dev_curve_and_normalized_mixes(tmp_path: Path, bilm: str) -> None:
    entries = run(tmp_path / "run", recipe(bilm=bilm, chars=False, elmo={"place": "both"}, epochs=2))
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    finished = entries[-1]
    assert finished_from_json(result) == finished
    assert finished.dev_curve == of_kind(DevScores, entries)
    assert (finished.sizes.num_train, finished.sizes.num_dev, finished.sizes.num_test) == (60, 12, 15)
    assert finished.sizes.num_parameters == of_kind(TaskPlan, entries)[0].num_parameters
    assert set(finished.mixes) == {"input", "output"}
    weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for place, mix in finished.mixes.items():
        assert mix.weights == pytest.approx(weights[f"tokens.{place}_mix.weights"].softmax(dim=0).tolist())
        assert mix.gamma == weights[f"tokens.{place}_mix.gamma"].item() != 1


def test_a_resumed_run_has_the_whole_dev_curve(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", recipe())[-1]
    run(tmp_path / "broken", recipe(), when=lambda entry: isinstance(entry, DevScores) and entry.step == 16)
    assert run(tmp_path / "broken", recipe())[-1].dev_curve == straight.dev_curve
    assert len(straight.dev_curve) == 3


def test_results_of_older_versions_lack_sizes_curve_and_mixes() -> None:
    old = {"task": "ner", "step": 9, "best_step": 6, "dev": {"f1": 0.5}, "test": None, "seconds": 1.0, "seed": 0}
    assert finished_from_json(old) == Finished(9, 6, {"f1": 0.5}, None, 1.0, 0)


def test_a_run_too_short_to_train_anything_warns(tmp_path: Path) -> None:
    task = changed(RHYMES, score=lambda *_: {"accuracy": 0.0})
    with pytest.warns(ElmokitWarning, match="best dev accuracy is 0 after 8 steps; so few steps rarely train a model"):
        run(tmp_path / "run", recipe(epochs=1), task=task)
