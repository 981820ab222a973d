"""Progress of every verb: one live line on a terminal, nothing elsewhere.

    ⠏ ━━━━━━━━━━━━━━━━━━━━ 0:01:05 embedding 611/11,000 lines, 2,150 words/s, 0:00:30 left

The time since the start moves ten times per second, however rarely the work reports. While the line is live, messages
are printed above it (`elmokit.cli.messages`).
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

from rich import progress as bars
from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.table import Column
from rich.text import Text

from elmokit.cli import messages

BAR_WIDTH = 20
SPARE_COLUMNS = 3  # after a full line the ^C that a terminal echoes would begin another one
RATE_WINDOW = 30.0  # seconds over which a rate is the mean
MIN_RATE_SECONDS = 1.0  # before a rate means something


@dataclass(frozen=True)
class _Sample:
    seconds: float
    done: float
    work: float


@dataclass
class _Phase:
    """One part of the work, such as "preparing the text", and how far it is."""

    text: str
    unit: str = ""
    work_unit: str = ""
    done: float = 0.0
    total: float | None = None
    share: float | None = None
    rate: float | None = None
    end: float | None = None  # estimated, by time.monotonic
    detail: str = ""
    samples: deque[_Sample] = field(default_factory=deque)

    def add_sample(self, done: float, work: float) -> None:
        """Note how far the work is, and estimate rate and end from the last half minute."""
        now = time.monotonic()
        while len(self.samples) > 1 and now - self.samples[0].seconds > RATE_WINDOW:
            self.samples.popleft()
        self.samples.append(_Sample(now, done, work))
        first = self.samples[0]
        seconds = now - first.seconds
        if seconds >= MIN_RATE_SECONDS:
            self.rate = (work - first.work) / seconds
            if self.total is not None and done > first.done:
                self.end = now + (self.total - done) * seconds / (done - first.done)

    def describe(self) -> str:
        """Return the phase in words: what, how far, how fast, how long, and details."""
        parts = [self.text]
        if self.unit:
            of_total = "" if self.total is None else f"/{self.total:,.0f}"
            parts[0] += f" {self.done:,.0f}{of_total} {self.unit}"
        if self.rate is not None and self.work_unit:
            parts.append(f"{self.rate:,.0f} {self.work_unit}/s")
        if self.end is not None:
            parts.append(f"{clock(self.end - time.monotonic())} left")
        return ", ".join([*parts, *([self.detail] if self.detail else [])])


class Progress:
    """The live line of a verb. Without a terminal, every method does nothing."""

    def __init__(self, line: "_LiveLine | None") -> None:
        self._line = line

    @property
    def is_live(self) -> bool:
        """True where a line is shown."""
        return self._line is not None

    def begin(
        self,
        text: str,
        *,
        unit: str = "",
        work_unit: str = "",
        done: float = 0,
        total: float | None = None,
        work: float = 0,
    ) -> None:
        """Begin a phase of the work.

        Args:
            text: What is being done, such as "embedding".
            unit: Plural of what is counted, such as "lines".
            work_unit: Plural of what the rate counts, such as "words".
            done: How many units earlier runs have done.
            total: How many units there are, if that is known.
            work: How many work units earlier runs have done.
        """
        if self._line is not None:
            phase = _Phase(text, unit, work_unit or unit, done=done, total=total)
            phase.add_sample(done, work)
            self._line.show(phase)

    def update(
        self,
        done: float,
        *,
        total: float | None = None,
        work: float | None = None,
        share: float | None = None,
        latest_end: float | None = None,
        detail: str = "",
    ) -> None:
        """Show how far the phase is.

        Args:
            done: How many units are done.
            total: How many there are, if that became known.
            work: How many work units are done; ``done`` by default.
            share: Share of the work that is done; ``done`` of ``total`` by default.
            latest_end: Seconds after which the work ends in any case.
            detail: More about the work, such as its loss.
        """
        if self._line is None:
            return
        phase = self._line.phase
        phase.done, phase.share, phase.detail = done, share, detail
        phase.total = total if total is not None else phase.total
        phase.add_sample(done, done if work is None else work)
        if latest_end is not None:
            end = time.monotonic() + latest_end
            phase.end = end if phase.end is None else min(phase.end, end)
        self._line.show(phase)

    def describe(self, text: str, *, share: float | None = None) -> None:
        """Show a line that the caller has put into words, and the share of the work that is done."""
        if self._line is not None:
            self._line.show(_Phase(text, share=share))

    def show_above(self, renderable: RenderableType) -> None:
        """Show a table or a text above the line."""
        if self._line is not None:
            self._line.above = renderable

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take the line off the terminal, so that results can be printed to stdout."""
        if self._line is None:
            yield
            return
        self._line.stop()
        try:
            yield
            sys.stdout.flush()
        finally:
            self._line.start()


class _LiveLine(bars.Progress):
    """A spinner, a bar and a phase in words, drawn by rich's refresh thread."""

    def __init__(self, console: Console, text: str) -> None:
        self._terminal = console
        self.above: RenderableType | None = None
        self.phase = _Phase(text)
        words = _Words(table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        columns = (_Spinner(), bars.BarColumn(bar_width=BAR_WIDTH), words)
        # Standard output stays what it is: rich would send it to the terminal of the line.
        super().__init__(*columns, console=console, transient=True, expand=True, redirect_stdout=False)
        self._task = self.add_task("", total=None, phase=self.phase)

    def show(self, phase: _Phase) -> None:
        """Show a phase from the next refresh on."""
        self.phase = phase
        done, total = (phase.done, phase.total) if phase.share is None else (phase.share, 1.0)
        self.update(self._task, completed=done, phase=phase)
        self.tasks[0].total = total  # `update` cannot take a total away

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield what is shown: the text above, if there is one, and the line."""
        if self.above is not None:
            yield self.above
        for line in super().get_renderables():
            yield Constrain(line, self._terminal.width - SPARE_COLUMNS)


class _Spinner(bars.SpinnerColumn):
    """A spinner that also turns after the last step, while results are saved."""

    def render(self, task: bars.Task) -> RenderableType:
        """Return the spinner as it is now."""
        return self.spinner.render(task.get_time())


class _Words(bars.ProgressColumn):
    """Time since the start, and the phase in words."""

    def render(self, task: bars.Task) -> Text:
        """Return the words as they are now."""
        phase: _Phase = task.fields["phase"]
        return Text(f"{clock(task.elapsed or 0.0)} {phase.describe()}")


@contextmanager
def show_progress(text: str, *, has_output: bool = False) -> Iterator[Progress]:
    """Yield the live line of a verb.

    Args:
        text: What is done first, such as "loading the model".
        has_output: True if results are printed while the line is live. On a terminal they would run into it, so
            then there is none.
    """
    if not messages.on_terminal() or (has_output and sys.stdout.isatty()):
        yield Progress(None)
        return
    console = Console(stderr=True)

    def print_above(message: str) -> None:
        console.print(Text(message), soft_wrap=True)

    line = _LiveLine(console, text)
    line.start()
    try:
        with messages.printed_by(print_above):
            yield Progress(line)
    finally:
        with suppress(OSError):  # the terminal was closed
            line.stop()


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    return str(timedelta(seconds=max(0, round(seconds))))


def preparation_progress(shown: Progress) -> Callable[[int], None]:
    """Return a function that shows how many characters of a text are prepared."""
    last = 0

    def show(num_chars: int) -> None:
        nonlocal last
        if num_chars <= last or not last:  # of another text
            shown.begin("preparing the text:", unit="characters")
        last = num_chars
        shown.update(num_chars)

    return show
