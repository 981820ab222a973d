"""How a run looks while it learns: a line that changes on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from elmokit.cli.messages import on_terminal, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from elmokit.pretrain.progress import HeldOut, LogLine, RunPlan
    from elmokit.pretrain.recipe import Recipe


class RunDisplay:
    """Hears of a run, and says it in words."""

    def __init__(self, recipe: "Recipe", bar: "Progress | None") -> None:
        """``bar`` is where a line can change in place; None where it cannot."""
        training = recipe.training
        self._targets_a_step = training.num_rows * training.unroll_steps
        self._falls = training.schedule != "constant"
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)
        self._plan: RunPlan | None = None
        self._step = 0
        self._perplexity = ""

    def prepare(self, num_chars: int) -> None:
        """Hear how much text is prepared."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"preparing the text, {num_chars:,} characters")

    def report(self, entry: "RunPlan | LogLine | HeldOut") -> None:
        """Hear what the run reports."""
        from elmokit.pretrain.progress import HeldOut, LogLine

        if isinstance(entry, LogLine):
            self._step = entry.step
            self._show(entry)
        elif isinstance(entry, HeldOut):
            self._perplexity = f", held-out perplexity {entry.perplexity:,.1f}"
            say(
                f"step {entry.step:,}: held-out perplexity {entry.perplexity:,.2f} "
                f"(forward {entry.forward_perplexity:,.2f}, backward {entry.backward_perplexity:,.2f}, "
                f"geometric mean {entry.geometric_mean:,.2f}; {entry.unknown_share:.1%} of the words are unknown)"
            )
        else:
            self._plan, self._step = entry, entry.step
            self._tell_plan(entry)

    def summary(self) -> str:
        """What was done, after the end."""
        assert self._plan is not None
        if self._step == self._plan.step:
            longer = "more of what ended it, epochs, steps or hours, would go on with it"
            if self._falls:
                longer = "its learning rate has fallen with its steps, so a longer run is a new one, in another folder"
            return f"the run was finished already, after step {self._step:,}; {longer}"
        return f"the run is finished, after step {self._step:,}"

    def _tell_plan(self, plan: "RunPlan") -> None:
        softmax = "full softmax"
        if plan.num_negatives is not None:
            softmax = f"softmax sampled with {plan.num_negatives:,} negatives"
        processes = f", {plan.num_processes} processes" if plan.num_processes > 1 else ""
        say(f"{plan.num_tokens:,} tokens of text, {plan.num_words:,} words to predict, {softmax}{processes}")
        if plan.step:
            say(f"going on after step {plan.step:,}")

    def _show(self, line: "LogLine") -> None:
        if self._bar is None or self._task is None:
            say(self._describe(line))
            return
        num_steps = self._plan.num_steps if self._plan else None
        self._bar.update(self._task, description=self._describe(line), completed=line.step, total=num_steps)

    def _describe(self, line: "LogLine") -> str:
        assert self._plan is not None
        steps = f"/{self._plan.num_steps:,}" if self._plan.num_steps else ""
        loss = "loss (sampled)" if line.sampled else "loss"
        return (
            f"step {line.step:,}{steps}, epoch {line.epoch:.2f}, {line.tokens_per_second:,.0f} tokens/s, "
            f"{self._time_left(line)} left, {loss} {(line.forward_loss + line.backward_loss) / 2:.3f}{self._perplexity}"
        )

    def _time_left(self, line: "LogLine") -> str:
        plan, left = self._plan, []
        assert plan is not None
        if plan.num_steps is not None:
            left.append((plan.num_steps - line.step) * self._targets_a_step / line.tokens_per_second)
        if plan.hours is not None:
            left.append(3600 * plan.hours - line.seconds)
        return str(timedelta(seconds=max(0, round(min(left)))))


@contextmanager
def run_shown(recipe: "Recipe") -> Iterator[RunDisplay]:
    """Yield what shows a run as fits where its messages go."""
    if not on_terminal():
        yield RunDisplay(recipe, None)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.SpinnerColumn(), bars.BarColumn(bar_width=20), bars.TextColumn("{task.description}"))
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield RunDisplay(recipe, bar)
