"""Display of the paper's runs while they are made: one line per finished run, and what is left."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elmokit.cli.messages import print_message
from elmokit.cli.progress import Progress, clock, show_progress
from elmokit.cli.task_display import percent
from elmokit.paper.engine import Event, Failed, Recorded, Skipped, Warned
from elmokit.tasks.progress import LayersRead, TaskPlan, TaskStep

if TYPE_CHECKING:
    from elmokit.paper.plan import PaperRun
    from elmokit.paper.run_file import RunRecord

MIN_SECONDS_SHOWN = 0.5  # between two refreshes of the live line


class PaperDisplay:
    """Shows the runs of a plan as they are reported."""

    def __init__(
        self, runs: "Sequence[PaperRun]", seconds: "Mapping[PaperRun, float]", progress: Progress, *, workers: int
    ) -> None:
        self._seconds, self._progress, self._workers = seconds, progress, workers
        self._left = dict.fromkeys(runs)
        self._num_runs = len(runs)
        self._now: dict[PaperRun, tuple[float, str]] = {}  # start, and what is being done
        self.failed: list[PaperRun] = []
        self.skipped: dict[str, list[PaperRun]] = {}
        self._next_refresh = 0.0
        self._expected = self._taken = 0.0  # seconds of the runs that have ended

    def report(self, run: "PaperRun", event: Event) -> None:
        """Show an event of a run."""
        match event:
            case Recorded(record, is_new):
                self._end(run)
                if is_new:
                    self._expected += self._seconds[run]
                    self._taken += record.result["seconds"]
                    print_message(f"{run}: {summarize(record)}; {self._state()}")
            case Failed(message):
                self._end(run)
                self.failed.append(run)
                print_message(f"failed: {message}")
            case Skipped(message):
                self._end(run)
                self.skipped.setdefault(message, []).append(run)
            case Warned(message):
                print_message(f"warning: {run}: {message}")
            case _:
                self._show_entry(run, event)

    def _show_entry(self, run: "PaperRun", event: Event) -> None:
        if run not in self._now:
            self._now[run] = time.monotonic(), ""
            if not self._progress.is_live:
                print_message(f"{run}: started")
        match event:
            case TaskPlan():
                self._note(run, f"{event.num_steps:,} steps at most")
            case TaskStep():
                self._note(run, f"epoch {event.epoch:.1f}")
            case LayersRead():
                of_total = f" of {event.num_tokens:,}" if event.num_tokens else ""
                self._note(run, f"{event.num_done:,}{of_total} tokens read")

    def _note(self, run: "PaperRun", text: str) -> None:
        self._now[run] = self._now[run][0], text
        if self._progress.is_live and time.monotonic() >= self._next_refresh:
            self._next_refresh = time.monotonic() + MIN_SECONDS_SHOWN
            doing = "; ".join(f"{one}: {words}" for one, (_, words) in self._now.items())
            share = 1 - len(self._left) / max(self._num_runs, 1)
            self._progress.describe(f"{doing}; {self._state()}", share=share)

    def _end(self, run: "PaperRun") -> None:
        self._left.pop(run, None)
        self._now.pop(run, None)

    def _state(self) -> str:
        spent = {run: time.monotonic() - start for run, (start, _) in self._now.items()}
        left = sum(max(self._seconds[run] - spent.get(run, 0.0), 0.0) for run in self._left)
        pace = self._taken / self._expected if self._expected else 1.0
        done = self._num_runs - len(self._left)
        return f"{done} of {self._num_runs} runs, about {clock(pace * left / self._workers)} left"


def summarize(record: "RunRecord") -> str:
    """Return the result of a run in a few words."""
    result = record.result
    seconds = clock(result["seconds"])
    if "metric" in result:
        scores = [f"{part} {percent(result[part][result['metric']])}" for part in ("dev", "test") if result[part]]
        return f"{result['metric']} {', '.join(scores)}, after {seconds}"
    if "before" in result:
        change = [f"{result[when]['perplexity']:.1f}" for when in ("before", "after")]
        return f"perplexity {' to '.join(change)}, after {seconds}"
    return f"evaluated, after {seconds}"


@contextmanager
def show_runs(
    runs: "Sequence[PaperRun]", seconds: "Mapping[PaperRun, float]", *, workers: int
) -> Iterator[PaperDisplay]:
    """Yield the display of a plan's runs."""
    with show_progress("hashing the inputs") as progress:
        yield PaperDisplay(runs, seconds, progress, workers=workers)
