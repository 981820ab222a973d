"""The file of finished runs: one JSON object per line, committed beside the page that it is the source of."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.atomic import atomic_file
from elmokit.errors import InputError
from elmokit.locking import folder_held
from elmokit.paper.plan import PaperRun


@dataclass(frozen=True)
class RunRecord:
    """A finished run: what it was, what it depended on, its result, and where it was made."""

    identity: str
    run: PaperRun
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    elmo: str
    """Name of the biLM."""
    result: Mapping[str, Any]
    facts: Mapping[str, Any]
    """Machine, versions, kernels, commit, date."""


class RunFile:
    """Finished runs by identity. Every change replaces the file as a whole."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> dict[str, RunRecord]:
        """Return the records by identity, the oldest first; none if there is no file."""
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: cannot be read: {error}; restore it from version control") from error
        records = (self._parse(line, number) for number, line in enumerate(lines, start=1) if line.strip())
        return {record.identity: record for record in records}

    def add(self, record: RunRecord) -> None:
        """Add a record, unless the file has one of this identity already."""
        with folder_held(self.path.parent):  # another process may add to the same file
            records = self.read()
            if record.identity not in records:
                self._write([*records.values(), record])

    def _write(self, records: Iterable[RunRecord]) -> None:
        with atomic_file(self.path) as new:
            new.write_text("".join(f"{_to_json(record)}\n" for record in records), "utf-8")

    def _parse(self, line: str, number: int) -> RunRecord:
        try:
            values = json.loads(line)
            return RunRecord(**{**values, "run": PaperRun(**values["run"])})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path}, line {number}: is no finished run ({error}); restore the file from version control, "
                "or delete the line"
            ) from error


def _to_json(record: RunRecord) -> str:
    return json.dumps(asdict(record), ensure_ascii=False)
