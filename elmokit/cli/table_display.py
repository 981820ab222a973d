"""Display of Table 1 while it grows: a live table on a terminal, one line per run elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import mean
from typing import TYPE_CHECKING

from elmokit.analysis.table1 import Failed, TableRun
from elmokit.analysis.table1_summary import ARM_TITLES, Results, row_cells
from elmokit.cli.messages import print_message
from elmokit.cli.progress import Progress, clock, show_progress
from elmokit.cli.task_display import RunInWords, percent
from elmokit.tasks.progress import Entry, Finished

if TYPE_CHECKING:
    from rich.table import Table

    from elmokit.analysis.datasets import DataSet

PIPE_WIDTH = 160  # columns of a table in a pipe
SECONDS_PER_REFRESH = 0.5


class TableDisplay:
    """Shows the runs of a table as they are reported."""

    def __init__(self, runs: Sequence[TableRun], progress: Progress) -> None:
        self._progress = progress
        self._runs = runs
        self._datasets = list({run.dataset.name: run.dataset for run in runs}.values())
        self._num_seeds = len({run.seed for run in runs})
        self._now: tuple[TableRun, RunInWords, float] | None = None
        self.results: dict[tuple[str, str, int], Finished] = {}
        self.failed: set[tuple[str, str, int]] = set()
        self._next_refresh = 0.0

    def report(self, run: TableRun, entry: Entry | Failed) -> None:
        """Show an entry of a run."""
        match entry:
            case Failed():
                self.failed.add(_key(run))
                self._now = None
                print_message(f"failed: {entry.message}")
            case Finished():
                self._report_end(run, entry)
            case _:
                if self._now is None or self._now[0] is not run:
                    self._now = run, RunInWords(run.recipe), time.monotonic()
                    if not self._progress.is_live:
                        print_message(f"{run}: started")
                self._now[1].update(entry)
        if self._progress.is_live and time.monotonic() >= self._next_refresh:
            self._refresh()
            self._next_refresh = time.monotonic() + SECONDS_PER_REFRESH

    def _refresh(self) -> None:
        """Show the table as it is, and what is being done."""
        left = {name: "?" if seconds is None else clock(seconds) for name, seconds in self._left().items()}
        self._progress.show_above(make_table(self._datasets, self.results, num_seeds=self._num_seeds, left=left))
        if self._now is not None:
            run, words, _ = self._now
            self._progress.describe(f"{run}: {words.text}", share=words.share)

    def _report_end(self, run: TableRun, finished: Finished) -> None:
        was_running = self._now is not None and self._now[0] is run
        self.results[_key(run)] = finished
        self._now = None
        if was_running and not self._progress.is_live:  # not one that was finished before
            metric, test = run.dataset.metric, finished.test or {}
            print_message(
                f"{run}: test {metric} {percent(test[metric])}, dev {percent(finished.dev[metric])}, after "
                f"{clock(finished.seconds)}; {len(self.results)} of {len(self._runs)} runs{self._all_left()}"
            )

    def _all_left(self) -> str:
        left = self._left()
        if not left:
            return ""
        known = [seconds for seconds in left.values() if seconds is not None]
        return f", {clock(sum(known))} left{'' if len(known) == len(left) else ' for the rows with a finished run'}"

    def _left(self) -> dict[str, float | None]:
        """Return the seconds left per unfinished row; None for a row without a finished run."""
        left: dict[str, float | None] = {}
        for run in self._runs:
            if _key(run) not in self.results and _key(run) not in self.failed:
                name = run.dataset.name
                seconds, before = self._estimate(run), left.get(name, 0.0)
                left[name] = None if seconds is None or before is None else before + seconds
        return left

    def _estimate(self, run: TableRun) -> float | None:
        """Return the seconds that a run will take: the mean of runs of its arm, or else of its row."""
        same_row = {key: one.seconds for key, one in self.results.items() if key[0] == run.dataset.name}
        like_it = [seconds for key, seconds in same_row.items() if key[1] == run.arm] or list(same_row.values())
        if not like_it:
            return None
        is_running = self._now is not None and self._now[0] is run
        already = time.monotonic() - self._now[2] if is_running and self._now is not None else 0.0
        return max(mean(like_it) - already, 0.0)


def _key(run: TableRun) -> tuple[str, str, int]:
    return run.dataset.name, run.arm, run.seed


def make_table(
    datasets: "Sequence[DataSet]", results: Results, *, num_seeds: int, left: dict[str, str] | None = None
) -> "Table":
    """Return the table for people. ``left`` is the time left per row, for a table that grows."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("task", "data", "metric"):
        table.add_column(heading, no_wrap=True)
    for heading in (*ARM_TITLES.values(), "error reduction", "runs", *(["left"] if left is not None else [])):
        table.add_column(heading, justify="right")
    for dataset in datasets:
        num_done = sum(name == dataset.name for name, _, _ in results)
        cells = row_cells(dataset, results, num_seeds=num_seeds)
        runs = f"{num_done}/{num_seeds * len(ARM_TITLES)}"
        time_left = [] if left is None else [left.get(dataset.name, "")]
        table.add_row(dataset.task, dataset.title, dataset.metric, *cells, runs, *time_left)
    return table


def print_table(datasets: "Sequence[DataSet]", results: Results, *, num_seeds: int) -> None:
    """Print the table to stdout."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(make_table(datasets, results, num_seeds=num_seeds))


@contextmanager
def show_table(runs: Sequence[TableRun]) -> Iterator[TableDisplay]:
    """Yield the display of a table's runs."""
    with show_progress("reading the data") as progress:
        yield TableDisplay(runs, progress)
