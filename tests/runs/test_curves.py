"""A run's curves for TensorBoard, read back by TensorBoard itself."""

from pathlib import Path

import pytest

from elmokit.pretrain.progress import HeldOut, LogLine, curve_values
from elmokit.runs.curves import open_curves

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


def write(folder: Path, *entries: LogLine | HeldOut) -> None:
    with open_curves(folder) as draw:
        for entry in entries:
            draw(entry.step, curve_values(entry))


def test_losses_and_perplexities_are_curves_under_honest_names(tmp_path: Path) -> None:
    look = HeldOut(20, 8.0, 18.0, 13.0, 12.0, 0.25, "text")
    write(tmp_path, log_line(10, sampled=True), log_line(20, sampled=True), look)
    found = curves(tmp_path)
    assert found["train/forward_loss_sampled"] == [(10, 4.0), (20, 4.0)]
    assert found["heldout/perplexity"] == [(20, 13.0)]
    assert found["heldout/geometric_mean"] == [(20, 12.0)]
    assert found["heldout/unknown_share"] == [(20, 0.25)]
    assert "train/forward_loss" not in found


def test_the_loss_of_a_full_softmax_is_not_called_sampled(tmp_path: Path) -> None:
    write(tmp_path, log_line(10, sampled=False))
    assert "train/forward_loss" in curves(tmp_path)


def test_steps_that_are_done_again_are_drawn_once(tmp_path: Path) -> None:
    write(tmp_path, *(log_line(step, sampled=False) for step in (10, 20, 30)))
    write(tmp_path, *(log_line(step, sampled=False) for step in (20, 30, 40)))
    assert [step for step, _ in curves(tmp_path)["train/forward_loss"]] == [10, 20, 30, 40]


def test_nothing_is_written_before_there_is_a_curve(tmp_path: Path) -> None:
    with open_curves(tmp_path / "none") as add_values:
        add_values(10, {})
    assert not (tmp_path / "none").exists()


def test_a_disk_that_fails_costs_the_curves_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write(tmp_path / "file", log_line(10, sampled=False))
