"""Whole runs on a toy text: training, stopping and resuming."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy import TEXT, toy_model, toy_recipe, toy_state

from elmokit.errors import ConfigError, ElmokitWarning, OutputError
from elmokit.pretrain.heldout import heldout_evaluation
from elmokit.pretrain.loop import train
from elmokit.pretrain.progress import EvaluationStarted, HeldOut, LogLine, RunPlan, StepDone
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.resume_check import check_resume
from elmokit.pretrain.state import PretrainState
from elmokit.runs.checkpoint import checkpoints, load_newest
from elmokit.runs.layout import CHECKPOINTS, LOG
from elmokit.runs.log import RunLog
from elmokit.runs.precision import precision_on
from elmokit.score.perplexity import measure

pytestmark = pytest.mark.long

TIMES = {"seconds", "tokens_per_second"}


def run(
    folder: Path,
    recipe: Recipe,
    *,
    stop_at: int | None = None,
    report: Callable[[Any], None] = lambda _: None,
    heldout: bool = True,
) -> PretrainState:
    """Train in a folder; with ``stop_at`` ask to stop in the step after that."""
    folder.mkdir(exist_ok=True)
    state = toy_state(folder, recipe)
    stop = threading.Event()
    before = state.train_step

    def train_step(*args: Any, **kwargs: Any) -> Any:
        if stop_at is not None and state.step + 1 >= stop_at:
            stop.set()
        return before(*args, **kwargs | {"stop": stop.is_set()})

    state.train_step = train_step  # type: ignore[method-assign]
    evaluate = heldout_evaluation(state.corpus, state.vocab, max_tokens=60) if heldout else None
    train(state, folder, evaluate=evaluate, save_best=lambda _: None, report=report, stop=stop)
    return state


def weights(state: PretrainState) -> dict[str, Tensor]:
    return dict(state.model.state_dict()) | state.optimizer.tensors() | state.lstm_state.parts()


def same_bits(left: PretrainState, right: PretrainState) -> bool:
    others = weights(right)
    return all(torch.equal(tensor, others[name]) for name, tensor in weights(left).items())


def log(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / LOG).read_text("utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.mark.parametrize("negatives", [pytest.param(None, marks=pytest.mark.slow), 40], ids=["full", "sampled"])
def test_a_toy_text_is_memorized_in_both_directions(tmp_path: Path, negatives: int | None) -> None:
    model = toy_model(cell_dim=48, proj_dim=16)
    recipe = toy_recipe(negatives=negatives, model=model, steps=200, dropout=0.0, num_rows=8, learning_rate=0.3)
    state = run(tmp_path, recipe, heldout=False)
    found = measure(state.model, state.corpus, state.vocab)
    assert found.forward < 20
    assert found.backward < 20


@pytest.mark.parametrize(
    "optimizer", ["adagrad", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adam", "sgd"))]
)
def test_a_run_that_was_stopped_twice_ends_with_the_bits_and_the_log_of_one_that_was_not(
    tmp_path: Path, optimizer: str
) -> None:
    recipe = toy_recipe(negatives=20, optimizer=optimizer, steps=25)
    unbroken = run(tmp_path / "unbroken", recipe)
    assert run(tmp_path / "broken", recipe, stop_at=9).step == 9
    assert run(tmp_path / "broken", recipe, stop_at=22).step == 22
    resumed = run(tmp_path / "broken", recipe)
    assert resumed.step == unbroken.step == 25
    assert resumed.best == unbroken.best
    assert same_bits(unbroken, resumed)
    assert log(tmp_path / "broken") == log(tmp_path / "unbroken")


def test_a_damaged_newest_checkpoint_costs_steps_but_no_bit(tmp_path: Path) -> None:
    recipe = toy_recipe(steps=25)
    unbroken = run(tmp_path / "unbroken", recipe)
    run(tmp_path / "broken", recipe, stop_at=20)  # has logged step 20, which will be done again
    newest = checkpoints(tmp_path / "broken" / CHECKPOINTS)[-1]
    (newest / "state.safetensors").write_bytes((newest / "state.safetensors").read_bytes()[:-9])
    plans: list[RunPlan] = []
    with pytest.warns(ElmokitWarning, match="resuming from the checkpoint before it"):
        resumed = run(
            tmp_path / "broken", recipe, report=lambda entry: isinstance(entry, RunPlan) and plans.append(entry)
        )
    assert plans[0].step == 14
    assert same_bits(unbroken, resumed)
    assert log(tmp_path / "broken") == log(tmp_path / "unbroken")


@pytest.mark.parametrize("damage", [lambda log: log + '{"kind": "LogLine", "step": 2', lambda log: log[:-1]])
def test_a_log_that_a_crash_cut_short_is_mended(tmp_path: Path, damage: Callable[[str], str]) -> None:
    recipe = toy_recipe(steps=25)
    run(tmp_path / "unbroken", recipe)
    run(tmp_path / "broken", recipe, stop_at=22)
    path = tmp_path / "broken" / LOG
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    run(tmp_path / "broken", recipe)
    assert log(tmp_path / "broken") == log(tmp_path / "unbroken")


def test_a_finished_run_does_nothing_more_until_more_is_asked_for(tmp_path: Path) -> None:
    first = run(tmp_path, toy_recipe(steps=20))
    entries: list[object] = []
    again = run(tmp_path, toy_recipe(steps=20), report=entries.append)
    assert [type(entry) for entry in entries] == [RunPlan]
    assert same_bits(first, again)
    assert run(tmp_path, toy_recipe(steps=24)).step == 24


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.1}, "training.learning_rate was 0.2, now 0.1"),
        ({"num_rows": 5}, "training.num_rows was 4, now 5"),
        ({"negatives": 9}, "softmax.kind was full, now sampled"),
        ({"model": toy_model(cell_dim=13)}, "model.lstm.cell_dim was 12, now 13"),
    ],
)
def test_a_changed_recipe_is_rejected_with_the_setting(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    run(tmp_path, toy_recipe(steps=3))
    with pytest.raises(ConfigError, match=named):
        run(tmp_path, toy_recipe(**{"steps": 5} | change))
    assert load_newest(tmp_path / CHECKPOINTS).step == 3


def test_another_text_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, toy_recipe(steps=3))
    monkeypatch.setattr("toy.TEXT", TEXT + "one sentence more\n")
    with pytest.raises(ConfigError, match="different text; different vocabulary"):
        run(tmp_path, toy_recipe(steps=5))


def test_how_long_and_how_often_may_change_but_not_the_end_of_a_falling_rate(tmp_path: Path) -> None:
    run(tmp_path / "constant", toy_recipe(steps=3))
    run(tmp_path / "constant", toy_recipe(steps=4, evaluate_every=3, checkpoint_every=2, keep_checkpoints=5))
    run(tmp_path / "linear", toy_recipe(steps=3, schedule="linear"))
    with pytest.raises(ConfigError, match=r"training\.steps was 3, now 4"):
        run(tmp_path / "linear", toy_recipe(steps=4, schedule="linear"))


def test_hours_end_a_run_and_count_over_its_pieces(tmp_path: Path) -> None:
    recipe = toy_recipe(steps=None, hours=1e-4)  # 0.36 seconds
    state = run(tmp_path, recipe, heldout=False)
    assert state.num_steps is None
    assert state.step > 1
    assert 0.36 <= state.seconds < 10
    assert run(tmp_path, recipe, heldout=False).step == state.step


def test_hours_include_evaluations(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=None, hours=1e-4, evaluate_every=1))

    def evaluate(state: PretrainState) -> HeldOut:
        time.sleep(0.4)
        return HeldOut(state.step, 1.0, 1.0, 1.0, 1.0, 0.0, "text")

    train(state, tmp_path, evaluate=evaluate, save_best=lambda _: None, report=lambda _: None, stop=threading.Event())
    assert state.step == 2


def test_what_is_reported_is_what_is_logged_with_honest_names(tmp_path: Path) -> None:
    entries: list[Any] = []
    run(tmp_path, toy_recipe(negatives=20, steps=45), report=entries.append)
    assert [type(entry) for entry in entries if not isinstance(entry, StepDone | EvaluationStarted)][:4] == [
        RunPlan,
        HeldOut,
        LogLine,
        HeldOut,
    ]
    assert entries[0].num_steps == 45
    assert entries[0].num_negatives == 20
    lines = [entry for entry in entries if isinstance(entry, LogLine)]
    assert [line.step for line in lines] == [20, 40, 45]
    assert all(line.sampled for line in lines)
    assert [line["step"] for line in log(tmp_path) if line["kind"] == "LogLine"] == [20, 40, 45]
    assert [entry.step for entry in entries if isinstance(entry, StepDone)] == list(range(1, 46))
    assert {line["kind"] for line in log(tmp_path)} == {"LogLine", "HeldOut"}  # steps are not logged


def test_the_best_model_so_far_is_saved_as_it_was_then(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=20, evaluate_every=1000))
    answers = iter([5.0])
    saved = []

    def evaluate(state: PretrainState) -> HeldOut:
        return HeldOut(state.step, 1.0, 1.0, next(answers), 1.0, 0.0, "text")

    train(state, tmp_path, evaluate=evaluate, save_best=saved.append, report=lambda _: None, stop=threading.Event())
    assert state.best == 5.0
    assert len(saved) == 1
    assert saved[0] is not state.model
    assert torch.equal(saved[0].softmax.weight, state.model.softmax.weight)


def test_a_worse_model_is_not_saved(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=30, evaluate_every=10))
    answers, saved = iter([5.0, 6.0, 4.0]), []

    def evaluate(state: PretrainState) -> HeldOut:
        return HeldOut(state.step, 1.0, 1.0, next(answers), 1.0, 0.0, "text")

    train(state, tmp_path, evaluate=evaluate, save_best=saved.append, report=lambda _: None, stop=threading.Event())
    assert len(saved) == 2
    assert state.best == 4.0


def test_the_evaluation_after_the_last_step_is_returned_once(tmp_path: Path) -> None:
    state = toy_state(tmp_path, recipe := toy_recipe(steps=20, evaluate_every=7))
    looks: list[HeldOut] = []

    def evaluate(state: PretrainState) -> HeldOut:
        looks.append(HeldOut(state.step, 1.0, 1.0, 5.0 - len(looks), 1.0, 0.0, "text"))
        return looks[-1]

    def go_on(state: PretrainState) -> HeldOut | None:
        return train(state, tmp_path, evaluate=evaluate, save_best=None, report=lambda _: None, stop=threading.Event())

    assert go_on(state) == looks[-1]
    assert [found.step for found in looks] == [7, 14, 20]
    assert go_on(toy_state(tmp_path, recipe)) is None  # all was done before
    assert len(looks) == 3


def test_a_log_that_cannot_be_written_is_named_in_the_error(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "gone" / "log.jsonl", from_step=0, writes=True)
    with pytest.raises(OutputError, match=r"log\.jsonl: cannot be written: No such file or directory; create"):
        log.write(HeldOut(1, 1.0, 1.0, 1.0, 1.0, 0.0, "text"))


def test_perplexities_of_another_held_out_text_are_not_compared(tmp_path: Path) -> None:
    recipe = toy_recipe(steps=30, evaluate_every=10)
    state = toy_state(tmp_path, recipe)
    looks, saved = iter([(5.0, "old"), (7.0, "new"), (8.0, "new")]), []

    def evaluate(state: PretrainState) -> HeldOut:
        perplexity, text = next(looks)
        return HeldOut(state.step, 1.0, 1.0, perplexity, 1.0, 0.0, text)

    train(state, tmp_path, evaluate=evaluate, save_best=saved.append, report=lambda _: None, stop=threading.Event())
    assert len(saved) == 2
    again = toy_state(tmp_path, recipe)
    again.restore(load_newest(tmp_path / CHECKPOINTS))
    assert (again.best, again.best_text) == (7.0, "new")
    assert not again.record_perplexity(7.5, "new")
    assert again.record_perplexity(9.0, "third")


def test_an_evaluation_names_its_text_and_its_size(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe())
    names = {heldout_evaluation(state.corpus, state.vocab, max_tokens=most)(state).text for most in (20, 59, 60)}
    assert len(names) == 2  # 59 and 60 end with the same sentence


def test_a_run_older_than_a_setting_is_resumed_with_its_default(tmp_path: Path) -> None:
    recipe = toy_recipe(steps=3)
    state = run(tmp_path, recipe)
    checkpoint = state.checkpoint()
    assert checkpoint is not None
    follows = checkpoint.facts["follows"]
    del follows["training"]["precision"], follows["training"]["seed"], follows["model"]["lstm"]["skip_connections"]
    del checkpoint.facts["best_text"]
    again = toy_state(tmp_path, recipe)
    check_resume(follows, again.resume_key(), folder=tmp_path)
    again.restore(checkpoint)
    with pytest.raises(ConfigError, match=r"\(training\.seed was 0, now 1\)"):
        check_resume(follows, toy_state(tmp_path, toy_recipe(steps=3, seed=1)).resume_key(), folder=tmp_path)
    follows["training"]["color"] = "red"
    with pytest.raises(ConfigError, match=r"another version of elmokit: training\.color"):
        check_resume(follows, again.resume_key(), folder=tmp_path)


def test_the_precision_that_a_device_chose_is_part_of_the_run(tmp_path: Path) -> None:
    run(tmp_path, toy_recipe(steps=3, precision="auto"))
    chosen = precision_on(torch.device("cpu"), "auto")
    other = {"fp32": "bf16", "bf16": "fp32"}[chosen]
    assert load_newest(tmp_path / CHECKPOINTS).facts["follows"]["training"]["precision"] == chosen
    run(tmp_path, toy_recipe(steps=4, precision=chosen))
    with pytest.raises(ConfigError, match=rf"training\.precision was {chosen}, now {other}"):
        run(tmp_path, toy_recipe(steps=5, precision=other))


def test_the_global_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    toy_state(tmp_path, toy_recipe())
    assert torch.equal(torch.rand(3), expected)
