"""The verb that goes on learning a model: finetune."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.embedding import MODEL_HELP, model_source
from elmokit.cli.messages import is_first_process, say
from elmokit.cli.run_display import RunDisplay, run_shown
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_memory, rest_soon
from elmokit.cli.text_options import Language, Split, Tokenized, Wrapped
from elmokit.errors import InputError, OutputError

if TYPE_CHECKING:
    from elmokit.pretrain.finetune import Finetuned, FinetuneSettings
    from elmokit.pretrain.progress import HeldOut, LogLine, Report, RunPlan
    from elmokit.pretrain.recipe import DataSettings
    from elmokit.weights.source import Source

PUBLISHED_SUFFIXES = (".json", ".hdf5")
FEW_STEPS = 100  # Adagrad has hardly begun

FINETUNE_EPILOG = """\b
Examples
  elmokit finetune my-model domain.txt -o tuned --heldout domain-dev.txt
  elmokit finetune options.json weights.hdf5 "domain/*.txt" -o tuned

A published model has no output layer. One is learned first, for the words of the text, with the biLM frozen;
then all is learned together.

Ctrl-C finishes the step, saves and ends; the same command goes on from there. A second Ctrl-C ends at once."""


@verb(app, epilog=FINETUNE_EPILOG)
def finetune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILES", help="Text files, also .gz and .xz, or patterns.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The new model's folder.")],
    heldout: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Other text, whose perplexity is told; can be given several times."),
    ] = None,
    epochs: Annotated[float, typer.Option(metavar="N", help="How often the text is read.")] = 1.0,
    rows: Annotated[
        int, typer.Option(metavar="N", help="Streams of text side by side: fewer make more and smaller steps.")
    ] = 128,
    learning_rate: Annotated[float, typer.Option(metavar="RATE", help="Of Adagrad.")] = 0.2,
    tokenized: Tokenized = False,
    split: Split = False,
    wrapped: Wrapped = False,
    language: Language = "en",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir", metavar="DIR", help="The model's pretraining run: Adagrad goes on from its last checkpoint."
        ),
    ] = None,
    softmax_epochs: Annotated[
        float | None, typer.Option(metavar="N", help="How long a new output layer is learned alone.  [default: 1]")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Words of a new output layer.  [default: all of the text]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes that prepare text.  [default: one a core]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model in OUT.")] = False,
) -> None:
    """Go on learning a model on text of a domain."""
    keep_memory()
    rest_soon()
    source, files = _split_model(model, files)
    _check_output(output, force=force)
    from elmokit.config import parse_config
    from elmokit.pretrain.finetune import FinetuneSettings
    from elmokit.pretrain.recipe import DataSettings

    data = DataSettings(
        train=tuple(files),
        heldout=tuple(heldout or ()),
        tokenized=tokenized,
        split=split,
        wrapped=wrapped,
        language=language,
    )
    asked = {
        "training": {"epochs": epochs, "num_rows": rows, "learning_rate": learning_rate},
        "softmax_epochs": softmax_epochs,
        "new_vocab": None if vocab_size is None else {"max_size": vocab_size},
        "run_dir": run_dir,
    }
    settings = parse_config(FinetuneSettings, asked, source="finetune")
    _tune(source, data, output, settings, num_workers=workers or os.cpu_count() or 1)


def _tune(
    source: "Source", data: "DataSettings", output: Path, settings: "FinetuneSettings", *, num_workers: int
) -> None:
    from elmokit.pretrain.finetune import finetune as tune
    from elmokit.pretrain.finetune import work_folder
    from elmokit.pretrain.recipe import Recipe
    from elmokit.weights.folder import has_softmax

    stop = threading.Event()
    with run_shown(Recipe(training=settings.training)) as shown, stop_by_signal(stop) as begin_to_listen:
        report = _reporter(shown, has_softmax=has_softmax(source), rows=settings.training.num_rows)

        def hear(entry: "RunPlan | LogLine | HeldOut") -> None:
            begin_to_listen()
            if is_first_process():
                report(entry)

        found = tune(
            source,
            data,
            output,
            settings=settings,
            report=hear,
            stop=stop,
            num_workers=num_workers,
            prepare_progress=shown.prepare,
        )
    if not found.is_finished:
        raise KeyboardInterrupt(f"the work is saved in {work_folder(output)}, the same command goes on from there")
    if is_first_process():
        _print_change(found)
        say(f"tuned in {_steps(found.num_steps)}; the model is in {output}")


def _split_model(model: str, files: list[str]) -> "tuple[Source, list[str]]":
    """The model and the text: a published model can be two files, and then the text comes after both."""
    if not model.endswith(PUBLISHED_SUFFIXES) or Path(model).is_dir():
        return model_source([model]), files
    pair, files = [model, *files[:1]], files[1:]
    if sorted(Path(path).suffix for path in pair) != sorted(PUBLISHED_SUFFIXES):
        raise InputError(
            f"{' '.join(pair)}: not the two files of a published model, an options.json and a .hdf5; "
            "name both, then the text: elmokit finetune options.json weights.hdf5 TEXT"
        )
    if not files:
        raise InputError("no text; name one or more files after the model's two")
    return model_source(pair), files


def _check_output(output: Path, *, force: bool) -> None:
    if output.is_dir() and any(output.iterdir()) and not force:
        raise OutputError(f"{output}: is a folder with files in it; name another, or replace the model in it (--force)")


def _reporter(shown: RunDisplay, *, has_softmax: bool, rows: int) -> "Report":
    """Say also what each run learns: where the output layer is new there are two."""
    from elmokit.pretrain.progress import RunPlan

    runs = iter(["everything"] if has_softmax else ["the new output layer alone", "everything together"])

    def report(entry: "RunPlan | LogLine | HeldOut") -> None:
        if not isinstance(entry, RunPlan):
            shown.report(entry)
            return
        learned = next(runs)
        if not has_softmax:
            say(f"learning {learned}")
        shown.report(entry)
        if learned.startswith("everything") and entry.num_steps is not None and entry.num_steps < FEW_STEPS:
            say(f"only {_steps(entry.num_steps)} of {rows} rows; fewer --rows or more --epochs make more")

    return report


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _print_change(found: "Finetuned") -> None:
    if found.before is None or found.after is None:
        return
    from rich.console import Console
    from rich.table import Table

    before, after = found.before, found.after
    table = Table(box=None, pad_edge=False)
    table.add_column("held-out perplexity", no_wrap=True)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, old, new in (
        ("forward", before.forward_perplexity, after.forward_perplexity),
        ("backward", before.backward_perplexity, after.backward_perplexity),
        ("mean", before.perplexity, after.perplexity),
    ):
        table.add_row(name, f"{old:,.2f}", f"{new:,.2f}")
    table.add_row("unknown words", f"{before.unknown_share:.1%}", f"{after.unknown_share:.1%}")
    Console(highlight=False).print(table)
