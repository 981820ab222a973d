"""How Table 1 looks as it grows: a table that changes on a terminal, a line a run elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from statistics import mean
from typing import TYPE_CHECKING

from elmokit.analysis.table1 import Failed, TableRun
from elmokit.analysis.table1_summary import ARM_TITLES, Results, row_cells
from elmokit.cli.messages import on_terminal, say
from elmokit.cli.task_display import RunInWords, percent
from elmokit.tasks.progress import Entry, Finished

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from elmokit.analysis.datasets import DataSet

PIPE_WIDTH = 160  # of a table where nothing says how wide it may be
SECONDS_A_REFRESH = 0.5


class TableDisplay:
    """Hears of the runs of a table, and knows how far it is."""

    def __init__(self, runs: Sequence[TableRun]) -> None:
        self._runs = runs
        self._datasets = list({run.dataset.name: run.dataset for run in runs}.values())
        self._num_seeds = len({run.seed for run in runs})
        self._now: tuple[TableRun, RunInWords, float] | None = None
        self.results: dict[tuple[str, str, int], Finished] = {}
        self.failed: set[tuple[str, str, int]] = set()
        self.live: Live | None = None
        """Where the table can change in place; None where a line says how each run ended."""
        self._next_refresh = 0.0

    def report(self, run: TableRun, entry: Entry | Failed) -> None:
        """Hear what the table reports."""
        match entry:
            case Failed():
                self.failed.add(_key(run))
                self._now = None
                say(f"failed: {entry.message}")
            case Finished():
                self._hear_end(run, entry)
            case _:
                if self._now is None or self._now[0] is not run:
                    self._now = run, RunInWords(run.recipe), time.monotonic()
                    if self.live is None:
                        say(f"{run}: begun")
                self._now[1].hear(entry)
        if self.live is not None and time.monotonic() >= self._next_refresh:
            self.live.update(self.render(), refresh=True)
            self._next_refresh = time.monotonic() + SECONDS_A_REFRESH

    def render(self) -> "RenderableType":
        """The table as it is, and what is being done."""
        from rich.console import Group
        from rich.text import Text

        now = Text("") if self._now is None else Text(f"{self._now[0]}: {self._now[1].text}", style="dim")
        left = {name: "?" if seconds is None else _clock(seconds) for name, seconds in self._left().items()}
        return Group(make_table(self._datasets, self.results, num_seeds=self._num_seeds, left=left), now)

    def _hear_end(self, run: TableRun, finished: Finished) -> None:
        was_running = self._now is not None and self._now[0] is run
        self.results[_key(run)] = finished
        self._now = None
        if was_running and self.live is None:  # not one that was finished before
            metric, test = run.dataset.metric, finished.test or {}
            say(
                f"{run}: test {metric} {percent(test[metric])}, dev {percent(finished.dev[metric])}, after "
                f"{_clock(finished.seconds)}; {len(self.results)} of {len(self._runs)} runs{self._all_left()}"
            )

    def _all_left(self) -> str:
        left = self._left()
        if not left:
            return ""
        known = [seconds for seconds in left.values() if seconds is not None]
        return f", {_clock(sum(known))} left{'' if len(known) == len(left) else ' for the rows that have begun'}"

    def _left(self) -> dict[str, float | None]:
        """For every row that is not finished how many seconds its runs will take; None if none has ended yet."""
        left: dict[str, float | None] = {}
        for run in self._runs:
            if _key(run) not in self.results and _key(run) not in self.failed:
                name = run.dataset.name
                seconds, before = self._estimate(run), left.get(name, 0.0)
                left[name] = None if seconds is None or before is None else before + seconds
        return left

    def _estimate(self, run: TableRun) -> float | None:
        """How long a run will take, by what others like it took, the same arm's if there are any."""
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
    """The table for people; ``left`` is how long each row will take, for one that grows."""
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
    """Print the table as it is on standard output."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(make_table(datasets, results, num_seeds=num_seeds))


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def table_shown(runs: Sequence[TableRun]) -> Iterator[TableDisplay]:
    """Yield what shows a table as fits where its messages go."""
    display = TableDisplay(runs)
    if not on_terminal():
        yield display
        return
    from rich.console import Console
    from rich.live import Live

    # Refreshed by whoever reports: another thread would see results half written down.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as display.live:
        yield display
