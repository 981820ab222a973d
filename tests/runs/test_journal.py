"""A run's journal: log, curves and report get every entry."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from elmokit.runs.journal import open_journal
from elmokit.runs.layout import CURVES, LOG


@dataclass(frozen=True)
class Loss:
    step: int
    loss: float


def curve_values(entry: Loss) -> dict[str, float]:
    return {"train/loss": entry.loss}


def logged_steps(run_dir: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run_dir / LOG).read_text("utf-8").splitlines()]


def write(run_dir: Path, *steps: int, from_step: int = 0, writes: bool = True) -> list[Loss]:
    reported: list[Loss] = []
    with open_journal(
        run_dir, from_step=from_step, curve_values=curve_values, report=reported.append, writes=writes
    ) as journal:
        for step in steps:
            journal.write(Loss(step, 1 / step))
    return reported


def test_an_entry_is_logged_drawn_and_reported(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert write(tmp_path, 2, 4) == [Loss(2, 0.5), Loss(4, 0.25)]
    lines = (tmp_path / LOG).read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "Loss", "step": 2, "loss": 0.5},
        {"kind": "Loss", "step": 4, "loss": 0.25},
    ]
    assert len(list((tmp_path / CURVES).iterdir())) == 1


def test_entries_of_steps_that_are_repeated_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    write(tmp_path, 3, 4, from_step=2)
    assert logged_steps(tmp_path) == [1, 2, 3, 4]


def test_other_ranks_report_and_leave_the_disk_alone(tmp_path: Path) -> None:
    assert write(tmp_path, 2, writes=False) == [Loss(2, 0.5)]
    assert list(tmp_path.iterdir()) == []
