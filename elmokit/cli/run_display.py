"""Display of a pretraining run: a live line on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elmokit.cli.messages import print_message

if TYPE_CHECKING:
    from elmokit.cli.progress import Progress
    from elmokit.pretrain.progress import Entry, HeldOut, LogLine, RunPlan, StepDone
    from elmokit.pretrain.recipe import Recipe


FEW_STEPS = 100  # Adagrad has hardly begun


class RunDisplay:
    """Shows the entries of a run as they are reported."""

    def __init__(self, recipe: "Recipe", progress: "Progress") -> None:
        from elmokit.cli.progress import preparation_progress

        training = recipe.training
        self._targets_per_step = training.num_rows * training.unroll_steps
        self._has_schedule = training.schedule != "constant"
        self._progress = progress
        self.prepare = preparation_progress(progress)
        """Shows how much text is prepared."""
        self.short_run_advice = "set more training.epochs or fewer training.num_rows, or give more text"
        """Change to a run with too few steps; without it, short runs are not warned of."""
        self._plan: RunPlan | None = None
        self._step = 0
        self._perplexity = ""

    def report(self, entry: "Entry") -> None:
        """Show an entry of the run."""
        from elmokit.pretrain.progress import BuildStarted, EvaluationStarted, HeldOut, LogLine, MachineChanged, RunPlan

        self._step = entry.step
        match entry:
            case RunPlan():
                self._plan = entry
                self._report_plan(entry)
            case LogLine():
                if not self._progress.is_live:
                    print_message(self._describe(entry))
            case MachineChanged():
                moved = f"the run has moved from another machine ({entry.before}) to this one ({entry.now})"
                print_message(f"{moved}; from here on it rounds differently")
            case BuildStarted():
                self._progress.begin("building the model")
            case EvaluationStarted():
                self._progress.begin("evaluating the held-out text")
            case HeldOut():
                self._report_held_out(entry)
                self._begin_training()
            case _:
                self._show(entry)

    def summary(self) -> str:
        """Return one line about the finished run."""
        assert self._plan is not None
        if self._step == self._plan.step:
            longer = "more epochs, steps or hours resume it"
            if self._has_schedule:
                longer = "its learning rate has followed its schedule to the end; train longer in another --run-dir"
            return f"the run was finished already, after step {self._step:,}; {longer}"
        return f"the run is finished, after step {self._step:,}"

    def _report_plan(self, plan: "RunPlan") -> None:
        softmax = "full softmax"
        if plan.num_negatives is not None:
            softmax = f"softmax sampled with {plan.num_negatives:,} negatives"
        ranks = f", {plan.num_processes} processes" if plan.num_processes > 1 else ""
        print_message(f"{plan.num_tokens:,} tokens of text, {plan.num_words:,} words to predict, {softmax}{ranks}")
        if plan.step:
            print_message(f"resuming after step {plan.step:,}")
        if plan.num_steps is not None and plan.num_steps < FEW_STEPS and self.short_run_advice:
            steps = "1 step" if plan.num_steps == 1 else f"{plan.num_steps:,} steps"
            print_message(f"warning: the run has only {steps}, too few to learn much; {self.short_run_advice}")
        self._begin_training()

    def _begin_training(self) -> None:
        plan = self._plan
        assert plan is not None
        work = (self._step - plan.step) * self._targets_per_step
        self._progress.begin(
            "training", unit="steps", work_unit="tokens", done=self._step, total=plan.num_steps, work=work
        )

    def _report_held_out(self, entry: "HeldOut") -> None:
        self._perplexity = f", held-out perplexity {entry.perplexity:,.1f}"
        print_message(
            f"step {entry.step:,}: held-out perplexity {entry.perplexity:,.2f} "
            f"(forward {entry.forward_perplexity:,.2f}, backward {entry.backward_perplexity:,.2f}, "
            f"geometric mean {entry.geometric_mean:,.2f}; {entry.unknown_share:.1%} of the words are unknown)"
        )

    def _show(self, done: "StepDone") -> None:
        """Move the live line by a step."""
        plan = self._plan
        assert plan is not None
        work = (done.step - plan.step) * self._targets_per_step
        shares = [] if plan.num_steps is None else [done.step / plan.num_steps]
        left = None
        if plan.hours is not None:
            shares.append(done.seconds / (3600 * plan.hours))
            left = 3600 * plan.hours - done.seconds
        loss = _loss(done.loss, is_sampled=plan.num_negatives is not None)
        self._progress.update(
            done.step, work=work, share=max(shares), latest_end=left, detail=f"{loss}{self._perplexity}"
        )

    def _describe(self, line: "LogLine") -> str:
        from elmokit.cli.progress import clock

        assert self._plan is not None
        steps = f"/{self._plan.num_steps:,}" if self._plan.num_steps else ""
        loss = _loss(line.loss, is_sampled=line.sampled)
        return (
            f"step {line.step:,}{steps}, epoch {line.epoch:.2f}, {line.tokens_per_second:,.0f} tokens/s, "
            f"{clock(self._seconds_left(line))} left, {loss}{self._perplexity}"
        )

    def _seconds_left(self, line: "LogLine") -> float:
        plan, left = self._plan, []
        assert plan is not None
        if plan.num_steps is not None:
            left.append((plan.num_steps - line.step) * self._targets_per_step / line.tokens_per_second)
        if plan.hours is not None:
            left.append(3600 * plan.hours - line.seconds)
        return min(left)


def _loss(loss: float, *, is_sampled: bool) -> str:
    return f"loss{' (sampled)' if is_sampled else ''} {loss:.3f}"


@contextmanager
def show_run(recipe: "Recipe") -> Iterator[RunDisplay]:
    """Yield the display of a run."""
    from elmokit.cli.progress import show_progress

    with show_progress("loading PyTorch") as progress:
        yield RunDisplay(recipe, progress)
