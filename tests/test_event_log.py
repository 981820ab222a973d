"""A run's curves for TensorBoard, read back by TensorBoard itself."""

from pathlib import Path

import pytest

from elmokit.pretrain.event_log import event_log
from elmokit.pretrain.run import HeldOut, LogLine

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def log_line(step: int, *, sampled: bool) -> LogLine:
    return LogLine(
        step=step,
        epoch=0.5,
        tokens_per_second=100.0,
        sampled=sampled,
        forward_loss=4.0,
        backward_loss=3.0,
        gradient_norm=2.0,
        learning_rate=0.25,
        seconds=9.0,
    )


def test_losses_and_perplexities_are_curves_under_honest_names(tmp_path: Path) -> None:
    with event_log(tmp_path, writes=True) as add:
        add(log_line(10, sampled=True))
        add(log_line(20, sampled=True))
        add(HeldOut(20, 8.0, 16.0, 12.0, "text"))
    found = curves(tmp_path)
    assert found["train/forward_loss_sampled"] == [(10, 4.0), (20, 4.0)]
    assert found["heldout/perplexity"] == [(20, 12.0)]
    assert "train/forward_loss" not in found


def test_the_loss_of_a_full_softmax_is_not_called_sampled(tmp_path: Path) -> None:
    with event_log(tmp_path, writes=True) as add:
        add(log_line(10, sampled=False))
    assert "train/forward_loss" in curves(tmp_path)


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    with event_log(tmp_path, writes=False) as add:
        add(log_line(10, sampled=False))
    assert not list(tmp_path.iterdir())
