"""The length of a run and its learning rates."""

import math
import threading
from pathlib import Path

import pytest
import torch
from toy import toy_recipe, toy_state

from elmokit.errors import ConfigError
from elmokit.pretrain.loop import train
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.schedule import decay_start, learning_rate, planned_steps
from elmokit.pretrain.state import PretrainState

pytestmark = pytest.mark.long


def test_epochs_count_every_target_once(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=None, epochs=2))
    per_step = 4 * 5
    assert state.num_steps == math.ceil(2 * state.corpus.num_targets / per_step)
    both = toy_recipe(epochs=2, steps=3).training
    assert planned_steps(both, state.corpus) == 3


def test_the_rate_rises_then_falls_to_a_twentieth() -> None:
    for schedule in ("linear", "cosine"):
        settings = toy_recipe(schedule=schedule, warmup_steps=4, steps=104, learning_rate=2.0).training
        rates = [learning_rate(settings, step, 104) for step in range(105)]
        assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
        assert rates[4:] == sorted(rates[4:], reverse=True)
        assert rates[-1] == pytest.approx(0.1)
    constant = toy_recipe(learning_rate=2.0).training
    assert {learning_rate(constant, step, 30) for step in range(30)} == {2.0}


def test_constant_linear_decays_over_the_last_fifth_alone() -> None:
    settings = toy_recipe(schedule="constant-linear", warmup_steps=4, steps=100, learning_rate=2.0).training
    rates = [learning_rate(settings, step, 100) for step in range(101)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert set(rates[4:81]) == {2.0}
    assert rates[80:] == sorted(set(rates[80:]), reverse=True)  # falls at every step
    assert rates[90] == pytest.approx(2.0 * 0.525)
    assert rates[100] == pytest.approx(0.1)


def test_a_constant_linear_run_of_few_steps_has_one_to_decay() -> None:
    assert [decay_start(num_steps) for num_steps in (1, 2, 9, 10, 100)] == [0, 1, 8, 8, 80]


def run(folder: Path, recipe: Recipe, *, stop_after: int | None = None) -> PretrainState:
    """Train in a folder, up to a step if one is given."""
    folder.mkdir(exist_ok=True)
    state, stop = toy_state(folder, recipe), threading.Event()
    train_step = state.train_step

    def stopping_step(executor: object, *, seconds: float, stop: bool) -> object:
        return train_step(executor, seconds=seconds, stop=stop or state.step + 1 == stop_after)

    state.train_step = stopping_step
    train(state, folder, evaluate=None, save_best=None, report=lambda _: None, stop=stop)
    return state


def constant_linear(**length: float | None) -> Recipe:
    return toy_recipe(schedule="constant-linear", warmup_steps=3, **{"steps": None} | length)


@pytest.mark.parametrize("length", [{"steps": 30}, {"epochs": 4.0}, {"steps": 10}])
def test_a_constant_linear_run_may_change_its_length_before_the_decay(tmp_path: Path, length: dict) -> None:
    assert run(tmp_path / "run", constant_linear(steps=20), stop_after=8).step == 8
    changed = run(tmp_path / "run", constant_linear(**length))
    unbroken = run(tmp_path / "unbroken", constant_linear(**length))
    assert changed.step == unbroken.step == changed.num_steps != 20
    others = unbroken.model.state_dict()
    assert all(torch.equal(tensor, others[name]) for name, tensor in changed.model.state_dict().items())


@pytest.mark.parametrize(
    ("stop_after", "steps"),
    [(17, 30), (9, 10)],
    ids=["it was decaying", "it would have been decaying"],
)
def test_a_constant_linear_run_keeps_its_length_once_it_decays(tmp_path: Path, stop_after: int, steps: int) -> None:
    run(tmp_path / "run", constant_linear(steps=20), stop_after=stop_after)
    message = f"had 20 steps and now has {steps}, but it has taken {stop_after}, .* decays after step"
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", constant_linear(steps=steps))
    assert run(tmp_path / "run", constant_linear(steps=20)).step == 20


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_change_of_schedule_is_rejected_as_that(tmp_path: Path, schedule: str) -> None:
    run(tmp_path / "run", toy_recipe(schedule=schedule, steps=20), stop_after=4)
    with pytest.raises(ConfigError, match=rf"\(training\.schedule was {schedule}, now constant-linear\)"):
        run(tmp_path / "run", toy_recipe(schedule="constant-linear", steps=30))
