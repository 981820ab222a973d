"""The pretraining loop when its disk fails."""

from pathlib import Path
from typing import Any

import pytest
import torch
from processes import run_alone, with_text
from toy import toy_recipe

from elmokit.errors import OutputError
from elmokit.runs import saving
from elmokit.runs.checkpoint import load_newest, save_checkpoint


@pytest.mark.long
def test_a_failed_save_ends_the_run_at_once_and_names_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_text(toy_recipe(steps=90, checkpoint_every=30, evaluate_every=1000), tmp_path)
    run_alone(recipe, tmp_path / "whole")
    saved: list[int] = []

    def fail_later(checkpoint: Any, folder: Path, *, keep: int) -> None:
        if checkpoint.step > 30:
            raise OutputError(f"{folder}: cannot be written: No space left on device; free some space")
        save_checkpoint(checkpoint, folder, keep=keep)
        saved.append(checkpoint.step)

    monkeypatch.setattr(saving, "save_checkpoint", fail_later)
    message = "No space left on device; free some space; the same command resumes from step-000000030"
    with pytest.raises(OutputError, match=message):
        run_alone(recipe, tmp_path / "run")
    assert saved == [30]
    lines = (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
    assert 3 <= len(lines) < 5  # of 20 steps each: it did not continue to the next save, at step 90

    monkeypatch.undo()
    run_alone(recipe, tmp_path / "run")
    ended, expected = (load_newest(tmp_path / name / "checkpoints") for name in ("run", "whole"))
    assert ended.step == expected.step == 90
    assert all(torch.equal(ended.tensors[name], tensor) for name, tensor in expected.tensors.items())


def test_a_failed_first_save_says_that_there_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise OutputError("checkpoints: cannot be written: Read-only file system; write elsewhere")

    monkeypatch.setattr(saving, "save_checkpoint", fail)
    recipe = with_text(toy_recipe(steps=30), tmp_path)
    with pytest.raises(OutputError, match="write elsewhere; no checkpoint was saved before"):
        run_alone(recipe, tmp_path / "run")
