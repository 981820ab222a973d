"""Verbs of the comparison encoders: encoder train, encoder info."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.messages import print_message
from elmokit.cli.options import RecipeChanges, RunDir
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory

if TYPE_CHECKING:
    from elmokit.cli.progress import Progress
    from elmokit.encoders.progress import EncoderEvaluation, EncoderPlan, EncoderStep, Entry

KINDS = ("cove", "context2vec")
TRAIN_EPILOG = """\b
Examples
  elmokit encoder train cove vectors=glove.txt source=train.en \\
      target=train.de dev_source=dev.en dev_target=dev.de \\
      test_source=test.en test_target=test.de
  elmokit encoder train context2vec train="wiki/*.txt" dev=dev.txt

Files of text have one sentence per line; files of pairs are paired line by line. They may be .gz or .xz.
Ctrl-C finishes the step, saves and ends; the same command resumes the run. A second Ctrl-C ends at once."""

encoder = sub_app("Train encoders that ELMo is compared with.")
app.add_typer(encoder, name="encoder")


def _known_kind(name: str) -> str:
    if name not in KINDS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, KINDS))}.")
    return name


@verb(encoder, epilog=TRAIN_EPILOG)
def train(
    kind: Annotated[str, typer.Argument(metavar="ENCODER", help=f"One of {', '.join(KINDS)}.", parser=_known_kind)],
    settings: RecipeChanges = None,
    *,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="A bundled recipe by its name, or a TOML file.  [default: the encoder's]"
        ),
    ] = None,
    run_dir: RunDir = None,
) -> None:
    """Train an encoder on text. An interrupted run is resumed."""
    keep_freed_memory()
    from elmokit.config import find_recipe
    from elmokit.encoders.recipe import read_encoder_recipe

    path = find_recipe(recipe or kind, folder="encoders")
    resolved = read_encoder_recipe(kind, path, settings or [])
    from elmokit.encoders.training import train_encoder
    from elmokit.runs.layout import MODEL
    from elmokit.runs.onednn import use_onednn_products

    use_onednn_products()
    run_dir = run_dir or Path("runs") / path.stem
    stop = threading.Event()
    with _display() as shown, stop_by_signal(stop) as begin_to_listen:

        def report(entry: "Entry") -> None:
            begin_to_listen()
            shown.report(entry)

        result = train_encoder(resolved, run_dir, report=report, stop=stop, progress=shown.read)
    if result is None:
        raise KeyboardInterrupt(f"the run is saved in {run_dir}; run the same command to resume")
    print_message(f"the run is finished, after step {result.step:,}; the encoder is in {run_dir / MODEL}")
    typer.echo(json.dumps(result.to_json(), indent=2))


@verb(encoder)
def info(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER",
            help="A folder, untrained:MODEL, glove:FILE, cove:WEIGHTS,VECTORS or taglm:FORWARD,BACKWARD.",
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Describe a biLM, or an encoder that it is compared with."""
    from elmokit.embed.sources import describe_layer_source, open_layer_source

    described = describe_layer_source(open_layer_source(spec))
    if as_json:
        typer.echo(json.dumps(described, indent=2))
        return
    for name, value in described.items():
        typer.echo(f"{name.replace('_', ' '):12} {value:,}" if isinstance(value, int) else f"{name:12} {value}")


class _RunDisplay:
    """Shows the entries of a run: a live line on a terminal, a line per evaluation elsewhere."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._plan: EncoderPlan | None = None
        self._last: EncoderStep | None = None
        self._dev = ""

    def read(self, num_done: int) -> None:
        """Show how much of the text has been read."""
        self._progress.update(num_done)

    def report(self, entry: "Entry") -> None:
        """Show an entry."""
        from elmokit.encoders.progress import EncoderEvaluation, EncoderPlan

        if isinstance(entry, EncoderPlan):
            self._plan = entry
            print_message(f"{entry.num_parameters:,} parameters, {entry.steps_per_epoch:,} steps per epoch")
            if entry.step:
                print_message(f"resuming after step {entry.step:,}")
            self._progress.begin("training", unit="steps", done=entry.step, total=entry.num_steps)
        elif isinstance(entry, EncoderEvaluation):
            self._show_evaluation(entry)
        else:
            self._last = entry
            self._show_step(entry)

    def _show_step(self, entry: "EncoderStep") -> None:
        plan = self._plan
        assert plan is not None
        hours = plan.hours
        shares = [] if plan.num_steps is None else [entry.step / plan.num_steps]
        shares += [] if hours is None else [entry.seconds / (3600 * hours)]
        self._progress.update(
            entry.step,
            share=max(shares) if shares else None,
            latest_end=None if hours is None else 3600 * hours - entry.seconds,
            detail=f"{entry.targets_per_second:,.0f} words/s, loss {entry.loss:.3f}{self._dev}",
        )

    def _show_evaluation(self, entry: "EncoderEvaluation") -> None:
        from elmokit.cli.progress import clock

        self._dev = f", dev loss {entry.dev_loss:.3f}"
        best = " (best so far)" if entry.is_best else ""
        speed = "" if self._last is None else f", {self._last.targets_per_second:,.0f} words/s"
        left = self._seconds_left(entry.step)
        ends = "" if left is None else f", {clock(left)} left at most"
        print_message(
            f"step {entry.step:,}, dev loss {entry.dev_loss:.3f}{best}, learning rate {entry.learning_rate:g}"
            f"{speed}{ends}"
        )

    def _seconds_left(self, step: int) -> float | None:
        """Return an estimate of the time left at most; None if only a falling learning rate ends the run."""
        plan, last = self._plan, self._last
        if plan is None or last is None:
            return None
        left = [] if plan.hours is None else [3600 * plan.hours - last.seconds]
        if plan.num_steps is not None:
            per_step = (last.seconds - plan.seconds) / max(step - plan.step, 1)
            left.append((plan.num_steps - step) * per_step)
        return max(0.0, min(left)) if left else None


@contextmanager
def _display() -> Iterator[_RunDisplay]:
    from elmokit.cli.progress import show_progress

    with show_progress("reading the text") as progress:
        progress.begin("reading", unit="sentences")
        yield _RunDisplay(progress)
