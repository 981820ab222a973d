"""The journal of a run: every entry goes to the log, the curves and the caller's report."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from elmokit.runs.curves import AddValues, open_curves
from elmokit.runs.layout import CURVES, LOG
from elmokit.runs.log import RunLog


class LoggedEntry(Protocol):
    """A dataclass that belongs to a step."""

    @property
    def step(self) -> int:
        """The number of steps taken so far."""


Entry = TypeVar("Entry", bound=LoggedEntry)


@dataclass(frozen=True, eq=False)
class Journal(Generic[Entry]):
    """Log, curves and report of a run in one value."""

    log: RunLog
    add_values: AddValues
    curve_values: Callable[[Entry], Mapping[str, float]]
    report: Callable[[Entry], None]

    def write(self, entry: Entry) -> None:
        """Log an entry, add its values to the curves, and report it."""
        self.log.write(entry)
        if self.log.writes:
            self.add_values(entry.step, self.curve_values(entry))
        self.report(entry)


@contextmanager
def open_journal(
    run_dir: Path,
    *,
    from_step: int,
    curve_values: Callable[[Entry], Mapping[str, float]],
    report: Callable[[Entry], None],
    writes: bool = True,
) -> Iterator[Journal[Entry]]:
    """Yield the journal of the run in ``run_dir``, without the entries after ``from_step``.

    ``curve_values`` returns an entry's numbers by the names of their curves. Only ranks with ``writes`` touch the
    disk; every rank reports.
    """
    log = RunLog(run_dir / LOG, from_step=from_step, writes=writes)
    with open_curves(run_dir / CURVES) as add_values:
        yield Journal(log, add_values, curve_values, report)


def ignore_entry(_entry: object) -> None:
    """Report nothing."""
