"""Display of a task run: a live line on a terminal, else one line per evaluation; and its scores at the end."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from elmokit.cli.messages import print_message

if TYPE_CHECKING:
    from elmokit.cli.progress import Progress
    from elmokit.tasks.progress import DevScores, Entry, Finished, LayersRead, TaskPlan, TaskStep
    from elmokit.tasks.recipe import TaskRecipe

READING_LINE_EVERY = 30.0  # seconds, without a live line
SECONDS_OF_A_RATE = 1.0  # before a rate is shown


class RunInWords:
    """Describes the state of a task run in one line."""

    def __init__(self, recipe: "TaskRecipe") -> None:
        self._num_epochs = recipe.training.epochs
        self.text = "reading the data"
        self.share: float | None = None
        """Share of the current work that is done; None if unknown."""
        self.plan: TaskPlan | None = None
        self.finished: Finished | None = None
        self._best: DevScores | None = None
        self._step: TaskStep | None = None
        self._reading: LayersRead | None = None
        self._reading_since = (0.0, 0)  # time, and number of tokens done by then

    def update(self, entry: "Entry") -> None:
        """Update the description with an entry of the run."""
        from elmokit.tasks.progress import DevScores, Finished, LayersRead, TaskPlan

        if isinstance(entry, LayersRead):
            self._update_reading(entry)
            return
        self._reading = None
        if isinstance(entry, TaskPlan):
            self.plan, self.share = entry, None
            self.text = f"epoch 0.00/{self._num_epochs}"
            return
        if isinstance(entry, Finished):
            self.finished = entry
            return
        if isinstance(entry, DevScores):
            self._best = entry if entry.is_best else self._best
        else:
            self._step = entry
        self.text = ", ".join(part for part in (self._progress(entry), self._speed(), self._best_score()) if part)
        self.share = None if self.plan is None else entry.step / self.plan.num_steps

    def describe_scores(self, entry: "DevScores") -> str:
        """Return dev scores as a line of their own."""
        assert self.plan is not None
        best = "the best so far" if entry.is_best else self._best_score()
        score = f"dev {self.plan.metric} {percent(entry.scores[self.plan.metric])} ({best})"
        return ", ".join(part for part in (self._progress(entry), score, self._speed()) if part)

    def _progress(self, entry: "TaskStep | DevScores") -> str:
        return f"epoch {entry.epoch:.2f}/{self._num_epochs}"

    def _speed(self) -> str:
        if self._step is None or self.plan is None:
            return ""
        step, plan = self._step, self.plan
        # By the clock of the run, with evaluations.
        seconds_per_step = (step.seconds - plan.seconds) / max(step.step - plan.step, 1)
        left = timedelta(seconds=round((plan.num_steps - step.step) * seconds_per_step))
        return f"loss {step.loss:.3f}, {step.examples_per_second:,.0f} examples/s, {left} left at most"

    def _best_score(self) -> str:
        if self.plan is None:
            return ""
        best = self.plan.best if self._best is None else self._best.scores[self.plan.metric]
        return "" if best is None else f"best dev {self.plan.metric} {percent(best)}"

    def _update_reading(self, entry: "LayersRead") -> None:
        now, last = time.monotonic(), self._reading
        if last is None or entry.num_done <= last.num_done or entry.num_tokens != last.num_tokens:
            self._reading_since = now, entry.num_done  # a new piece of text
        self._reading = entry
        since, before = self._reading_since
        self.share = entry.num_done / entry.num_tokens
        self.text = f"the biLM reads: {entry.num_done:,} of {entry.num_tokens:,} tokens"
        if now - since > SECONDS_OF_A_RATE:
            rate = (entry.num_done - before) / (now - since)
            left = timedelta(seconds=round((entry.num_tokens - entry.num_done) / rate))
            self.text += f", {rate:,.0f} tokens/s, {left} left"


class TaskRunDisplay:
    """Shows a task run on a terminal or in a log."""

    def __init__(self, recipe: "TaskRecipe", progress: "Progress") -> None:
        self.words = RunInWords(recipe)
        self._recipe, self._progress = recipe, progress
        self._next_reading_line = time.monotonic() + READING_LINE_EVERY

    def report(self, entry: "Entry") -> None:
        """Show an entry of the run."""
        from elmokit.tasks.progress import DevScores, LayersRead, TaskPlan

        self.words.update(entry)
        if isinstance(entry, TaskPlan):
            self._show_plan(entry)
        if self._progress.is_live:
            self._progress.describe(self.words.text, share=self.words.share)
        elif isinstance(entry, DevScores):
            print_message(self.words.describe_scores(entry))
        elif isinstance(entry, LayersRead):
            self._show_reading(entry)

    def summary(self) -> str:
        """Return a summary of the finished run."""
        finished = self.words.finished
        assert finished is not None
        if self.words.plan is None:
            return (
                f"the run was finished before, after step {finished.step:,}; "
                "give more training.epochs, or more patience if that ended it, to resume it"
            )
        best = f"the best weights are those of step {finished.best_step:,}"
        return f"the run is finished, after step {finished.step:,}; {best}"

    def _show_plan(self, plan: "TaskPlan") -> None:
        elmo, words = self._recipe.elmo, self._recipe.words
        reads = ["no static vectors" if words.file is None else "static vectors"]
        if elmo.model is None or elmo.place == "none":
            reads.append("no ELMo")
        else:
            kind = "an untrained biLM" if elmo.untrained else "ELMo"
            reads.append(f"{kind} at {'input and output' if elmo.place == 'both' else f'the {elmo.place}'}")
        print_message(
            f"{plan.num_examples:,} examples to train on, {plan.num_dev:,} in the dev set; "
            f"{plan.num_parameters:,} parameters, {', '.join(reads)}"
        )
        if plan.step:
            print_message(f"resuming after step {plan.step:,}")

    def _show_reading(self, entry: "LayersRead") -> None:
        now = time.monotonic()
        if now >= self._next_reading_line or entry.num_done == entry.num_tokens:
            print_message(self.words.text)
            self._next_reading_line = now + READING_LINE_EVERY


@contextmanager
def task_run_shown(recipe: "TaskRecipe") -> Iterator[TaskRunDisplay]:
    """Yield a display of a task run, live if messages go to a terminal."""
    from elmokit.cli.progress import show_progress

    with show_progress("reading the data") as progress:
        yield TaskRunDisplay(recipe, progress)


def print_scores(scores: Mapping[str, Mapping[str, float]]) -> None:
    """Print scores in percent, one row per score and one column per dataset."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    for name in scores:
        table.add_column(Text(name), justify="right", overflow="fold")
    for score in next(iter(scores.values())):
        table.add_row(score.replace("_", " "), *(percent(of_data[score]) for of_data in scores.values()))
    Console(highlight=False).print(table)


def percent(score: float) -> str:
    """Return a score in percent."""
    return f"{100 * score:.2f}"
