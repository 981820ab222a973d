"""The log of a run: one JSON object per line, on the disk before the checkpoint that follows it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmokit.atomic import atomic_file, explained
from elmokit.errors import OutputError
from elmokit.runs.checkpoint import Checkpoint, checkpoints, save_checkpoint


class RunLog:
    """One JSON object a line. Lines of steps that are about to be done again are dropped."""

    def __init__(self, path: Path, *, from_step: int, writes: bool) -> None:
        self.path, self.writes = path, writes
        if writes and path.exists():
            lines = path.read_text("utf-8").splitlines()
            with atomic_file(path) as new:
                new.write_text("".join(f"{line}\n" for line in lines if _step_of(line) <= from_step), "utf-8")

    def write(self, entry: Any) -> None:
        """Add an entry: a dataclass with a ``step``."""
        if self.writes:
            with explained(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": type(entry).__name__, **asdict(entry)}) + "\n")

    def flush(self) -> None:
        """Wait until all entries are on the disk."""
        if self.writes and self.path.exists():
            with explained(self.path), self.path.open("ab") as file:
                os.fsync(file.fileno())


def save_after_log(checkpoint: Checkpoint, folder: Path, *, keep: int, log: RunLog) -> None:
    """Save a checkpoint, which must not be ahead of its log if it survives a power cut."""
    log.flush()
    save_checkpoint(checkpoint, folder, keep=keep)


@contextmanager
def explain_failed_save(folder: Path) -> Iterator[None]:
    """Say of a save that failed what is left of the run."""
    try:
        yield
    except OutputError as error:
        found = checkpoints(folder)
        left = f"the same command goes on from {found[-1].name}" if found else "no checkpoint was saved before"
        raise OutputError(f"{error}; {left}") from error


def _step_of(line: str) -> int:
    """The step that a line tells of; beyond all steps for one that a crash cut short."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**63
