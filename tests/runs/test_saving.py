"""Background saves: in order, with errors raised early and explained."""

import threading
import time
from pathlib import Path

import pytest
import torch

from elmokit.errors import OutputError
from elmokit.runs.checkpoint import Checkpoint, load_newest
from elmokit.runs.log import RunLog
from elmokit.runs.saving import BackgroundWriter, background_writer


def make_log(folder: Path) -> RunLog:
    return RunLog(folder / "log.jsonl", from_step=0, writes=True)


def make_writer(folder: Path) -> BackgroundWriter:
    return BackgroundWriter(folder / "checkpoints", keep=2, log=make_log(folder))


def fail() -> None:
    raise OutputError("model: cannot be written: No space left on device")


def wait_until_done(writer: BackgroundWriter) -> None:
    for _ in range(1000):
        writer.raise_if_failed()
        time.sleep(0.01)


def test_saves_run_in_order_in_the_background(tmp_path: Path) -> None:
    writer, may_end, done = make_writer(tmp_path), threading.Event(), []
    writer.start(lambda: (may_end.wait(10), done.append(1)))
    assert done == []
    assert not writer.is_free(within=0.0)
    may_end.set()
    writer.start(lambda: done.append(2))
    writer.close()
    assert done == [1, 2]


def test_the_error_of_a_save_is_raised_by_the_next_save(tmp_path: Path) -> None:
    writer = make_writer(tmp_path)
    writer.start(fail)
    with pytest.raises(OutputError):
        writer.start(lambda: None)
    writer.close()


def test_the_error_of_a_save_is_raised_as_soon_as_it_is_known(tmp_path: Path) -> None:
    writer = make_writer(tmp_path)
    writer.start(fail)
    with pytest.raises(OutputError):
        wait_until_done(writer)
    writer.close()


def save_and_fail(folder: Path, *checkpoints: Checkpoint) -> None:
    with background_writer(folder / "checkpoints", keep=2, log=make_log(folder)) as writer:
        for checkpoint in checkpoints:
            writer.save(checkpoint)
        writer.start(fail)


def test_the_error_of_a_save_names_the_checkpoint_to_resume_from(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left on device; no checkpoint was saved before"):
        save_and_fail(tmp_path)
    checkpoint = Checkpoint(7, {"weight": torch.ones(2)}, {"seconds": 1.5})
    with pytest.raises(OutputError, match="No space left on device; the same command resumes from step-000000007"):
        save_and_fail(tmp_path, checkpoint)
    assert load_newest(tmp_path / "checkpoints").facts == checkpoint.facts
