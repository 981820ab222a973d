"""Training in bfloat16: by the kernels' portable twin where the CPU has no such instructions, or by torch."""

from pathlib import Path
from threading import Event

import pytest
import torch
from toy import toy_model, toy_recipe, toy_state

from elmokit.errors import ConfigError
from elmokit.pretrain.loop import train
from elmokit.pretrain.progress import Entry, MachineChanged
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.resume_check import check_resume
from elmokit.pretrain.state import PretrainState

MODEL = toy_model(cell_dim=37, proj_dim=15)  # odd: pairs do not come out even


def take_steps(state: PretrainState, count: int) -> list[float]:
    losses = [state.train_step(None, seconds=0.0, stop=False) for _ in range(count)]
    return [loss.forward + loss.backward for loss in losses]


def recipe(precision: str, **training: object) -> Recipe:
    return toy_recipe(negatives=20, model=MODEL, precision=precision, dropout=0.0, **training)


def test_a_short_run_in_bfloat16_has_nearly_the_losses_of_float32(tmp_path: Path) -> None:
    exact, rounded = (take_steps(toy_state(tmp_path, recipe(name)), 12) for name in ("fp32", "bf16"))
    assert exact[-1] < 0.95 * exact[0], "nothing was learned, so it proves nothing"
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.01)


def test_weights_and_optimizer_stay_in_float32(tmp_path: Path) -> None:
    state = toy_state(tmp_path, recipe("bf16", optimizer="adam", learning_rate=0.01))
    take_steps(state, 2)
    tensors = dict(state.model.named_parameters()) | state.optimizer.tensors() | state.lstm_state.parts()
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.float32, name
        if tensor.numel() > 1:
            assert not torch.equal(tensor, tensor.bfloat16().float()), name


def test_a_run_in_bfloat16_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    whole, first, second = (toy_state(tmp_path, recipe("bf16", optimizer="adam")) for _ in range(3))
    take_steps(whole, 6)
    take_steps(first, 3)
    checkpoint = first.checkpoint()
    assert checkpoint is not None
    second.restore(checkpoint)
    take_steps(second, 3)
    expected = dict(whole.model.state_dict()) | whole.optimizer.tensors()
    found = dict(second.model.state_dict()) | second.optimizer.tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_run_that_moves_to_another_machine_goes_on_and_is_logged(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=3))
    state.machine = "CPU of another kind, bf16"
    entries: list[Entry] = []
    train(state, tmp_path, evaluate=None, save_best=None, report=entries.append, stop=Event())
    again = toy_state(tmp_path, toy_recipe(steps=4))
    train(again, tmp_path, evaluate=None, save_best=None, report=entries.append, stop=Event())
    moves = [entry for entry in entries if isinstance(entry, MachineChanged)]
    assert moves == [MachineChanged(3, "CPU of another kind, bf16", again.machine)]
    assert "CPU of another kind" in (tmp_path / "log.jsonl").read_text("utf-8")


def test_only_a_precision_that_the_machine_chooses_may_change(tmp_path: Path) -> None:
    chosen, named = (toy_state(tmp_path, toy_recipe(precision=one)) for one in ("auto", "fp32"))
    before = chosen.resume_key()
    before["training"]["precision"] = "bf16"
    check_resume(before, chosen.resume_key(), folder=tmp_path)
    with pytest.raises(ConfigError, match=r"training\.precision was bf16, now fp32"):
        check_resume(before, named.resume_key(), folder=tmp_path)
