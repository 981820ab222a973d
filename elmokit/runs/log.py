"""The log of a run: one JSON object per line."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmokit.atomic import atomic_file, explained
from elmokit.plain_file import open_end


class RunLog:
    """A file with one JSON object per line. Entries of steps that will be repeated are dropped."""

    def __init__(self, path: Path, *, from_step: int, writes: bool) -> None:
        self.path, self.writes = path, writes
        if writes and path.exists():
            with open_end(path):  # a link raises
                lines = path.read_text("utf-8").splitlines()
            with atomic_file(path, follow_link=False) as new:
                new.write_text("".join(f"{line}\n" for line in lines if _parse_step(line) <= from_step), "utf-8")

    def write(self, entry: Any) -> None:
        """Append an entry: a dataclass with a ``step``."""
        if self.writes:
            with explained(self.path), open_end(self.path) as file:
                file.write(json.dumps({"kind": type(entry).__name__, **asdict(entry)}).encode() + b"\n")

    def flush(self) -> None:
        """Wait until all entries are on disk."""
        if self.writes and self.path.exists():
            with explained(self.path), open_end(self.path) as file:
                os.fsync(file.fileno())


def _parse_step(line: str) -> int:
    """Return the step of a line, or a number beyond all steps if a crash cut the line short."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**63
