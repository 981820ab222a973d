"""The log of a run: one line per entry, in step with the checkpoint, never written through a link."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from elmokit.errors import OutputError
from elmokit.runs.log import RunLog


@dataclass(frozen=True)
class Entry:
    step: int
    loss: float


def test_entries_after_the_checkpoint_and_torn_lines_are_dropped(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl", from_step=0, writes=True)
    for step in (1, 2, 3):
        log.write(Entry(step, step / 2))
    log.flush()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"kind": "Entry", "st')
    resumed = RunLog(tmp_path / "log.jsonl", from_step=2, writes=True)
    resumed.write(Entry(3, 9.5))
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert entries == [{"kind": "Entry", "step": step, "loss": loss} for step, loss in ((1, 0.5), (2, 1.0), (3, 9.5))]


def test_a_rank_that_does_not_write_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 9}\n')
    log = RunLog(tmp_path / "log.jsonl", from_step=0, writes=False)
    log.write(Entry(1, 0.5))
    log.flush()
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 9}\n'


@pytest.mark.parametrize("target", ["precious", "absent"])
def test_a_link_is_rejected_and_its_target_unchanged(tmp_path: Path, target: str) -> None:
    (tmp_path / "precious").write_text("dear\n")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / target)
    with pytest.raises(OutputError, match="is a symbolic link"):
        RunLog(tmp_path / "log.jsonl", from_step=0, writes=True).write(Entry(1, 0.5))
    assert (tmp_path / "precious").read_text() == "dear\n"
    assert not (tmp_path / "absent").exists()
