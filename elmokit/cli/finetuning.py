"""The verb finetune."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import is_first_process, print_message
from elmokit.cli.options import (
    MODEL_HELP,
    Language,
    Split,
    TextFiles,
    Tokenized,
    Workers,
    Wrapped,
    model_source,
    num_workers,
)
from elmokit.cli.run_display import RunDisplay
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory
from elmokit.errors import InputError, OutputError

if TYPE_CHECKING:
    from elmokit.cli.progress import Progress
    from elmokit.pretrain.finetune import Finetuned
    from elmokit.pretrain.progress import Entry, Report
    from elmokit.pretrain.recipe import DataSettings
    from elmokit.weights.source import Source

PUBLISHED_SUFFIXES = (".json", ".hdf5")

FINETUNE_EPILOG = """\b
Examples
  elmokit finetune my-model domain.txt -o tuned --heldout domain-dev.txt
  elmokit finetune options.json weights.hdf5 "domain/*.txt" -o tuned

A published model has no output layer. A new one is trained first, on the words of the text and with the biLM frozen;
then everything is trained together.

Ctrl-C finishes the step, saves and exits; run the same command to resume. A second Ctrl-C exits at once."""


@verb(app, epilog=FINETUNE_EPILOG)
def finetune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: TextFiles,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The new model's folder.")],
    heldout: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Held-out text to report perplexity on; can be repeated."),
    ] = None,
    epochs: Annotated[float, typer.Option(metavar="N", help="Passes over the text.")] = 1.0,
    rows: Annotated[
        int, typer.Option(metavar="N", help="Parallel streams of text; fewer rows make more and smaller steps.")
    ] = 128,
    learning_rate: Annotated[float, typer.Option(metavar="RATE", help="Learning rate of Adagrad.")] = 0.2,
    tokenized: Tokenized = False,
    split: Split = False,
    wrapped: Wrapped = False,
    language: Language = "en",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir", metavar="DIR", help="The model's pretraining run; Adagrad starts from its last checkpoint."
        ),
    ] = None,
    softmax_epochs: Annotated[
        float | None, typer.Option(metavar="N", help="Epochs that train a new output layer alone.  [default: 1]")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Words of a new output layer.  [default: all of the text]")
    ] = None,
    workers: Workers = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model in OUT.")] = False,
) -> None:
    """Continue training a model on text of a domain."""
    source, files = _split_model(model, files)
    _check_output(output, force=force)
    from elmokit.pretrain.recipe import DataSettings
    from elmokit.readers.plain_text import reject_data_files
    from elmokit.text.lines import find_inputs

    reject_data_files(find_inputs([*files, *(heldout or ())]))

    data = DataSettings(
        train=tuple(files),
        heldout=tuple(heldout or ()),
        tokenized=tokenized,
        split=split,
        wrapped=wrapped,
        language=language,
    )
    options = {
        "training": {"epochs": epochs, "num_rows": rows, "learning_rate": learning_rate},
        "softmax_epochs": softmax_epochs,
        "new_vocab": None if vocab_size is None else {"max_size": vocab_size},
        "run_dir": run_dir,
    }
    keep_freed_memory()
    from elmokit.cli.progress import show_progress

    with show_progress("loading PyTorch") as progress:
        result = _finetune(source, data, output, options, num_workers=num_workers(workers), progress=progress)
    if is_first_process():
        _print_change(result, learning_rate)
        steps = "1 step" if result.num_steps == 1 else f"{result.num_steps:,} steps"
        print_message(f"tuned in {steps}; the model is in {output}")


def _finetune(
    source: "Source",
    data: "DataSettings",
    output: Path,
    options: dict[str, Any],
    *,
    num_workers: int,
    progress: "Progress",
) -> "Finetuned":
    from elmokit.config import parse_config
    from elmokit.pretrain.finetune import FinetuneSettings, work_folder
    from elmokit.pretrain.finetune import finetune as train
    from elmokit.pretrain.progress import BuildStarted, EvaluationStarted
    from elmokit.pretrain.recipe import Recipe
    from elmokit.weights.source import has_softmax

    settings = parse_config(FinetuneSettings, options, source="finetune")
    shown = RunDisplay(Recipe(training=settings.training), progress)
    stop = threading.Event()
    with stop_by_signal(stop) as install_handlers:
        report_phase = _phase_reporter(shown, has_softmax=has_softmax(source))

        def report(entry: "Entry") -> None:
            if not isinstance(entry, BuildStarted | EvaluationStarted):  # before the first step Ctrl-C exits at once
                install_handlers()
            if is_first_process():
                report_phase(entry)

        result = train(
            source,
            data,
            output,
            settings=settings,
            report=report,
            stop=stop,
            num_workers=num_workers,
            prepare_progress=shown.prepare,
        )
    if not result.is_finished:
        raise KeyboardInterrupt(f"the work is saved in {work_folder(output)}; run the same command to resume")
    return result


def _split_model(model: str, files: list[str]) -> "tuple[Source, list[str]]":
    """Return the model and the text files. A published model can be two files, which come before the text."""
    if not model.endswith(PUBLISHED_SUFFIXES) or Path(model).is_dir():
        return model_source([model]), files
    pair, files = [model, *files[:1]], files[1:]
    if sorted(Path(path).suffix for path in pair) != sorted(PUBLISHED_SUFFIXES):
        raise InputError(
            f"{' '.join(pair)}: expected the two files of a published model, an options.json and a .hdf5; "
            "name both, then the text: elmokit finetune options.json weights.hdf5 TEXT"
        )
    if not files:
        raise InputError("no text; name one or more files after the model's two")
    return model_source(pair), files


def _check_output(output: Path, *, force: bool) -> None:
    if output.is_dir() and any(output.iterdir()) and not force:
        raise OutputError(f"{output}: is a folder with files in it; name another, or replace the model in it (--force)")


def _phase_reporter(shown: RunDisplay, *, has_softmax: bool) -> "Report":
    """Return a function that shows entries and reports which part is trained. A new output layer makes two runs."""
    from elmokit.pretrain.progress import RunPlan

    runs = iter(["everything"] if has_softmax else ["the new output layer alone", "everything together"])

    def report(entry: "Entry") -> None:
        if isinstance(entry, RunPlan):
            part = next(runs)
            if not has_softmax:
                print_message(f"training {part}")
            shown.short_run_advice = "use fewer --rows or more --epochs" if part.startswith("everything") else ""
        shown.report(entry)

    return report


def _print_change(result: "Finetuned", learning_rate: float) -> None:
    if result.before is None or result.after is None:
        return
    from rich.console import Console
    from rich.table import Table

    before, after = result.before, result.after
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
    if after.perplexity > before.perplexity:
        print_message(
            f"warning: the held-out perplexity rose from {before.perplexity:,.1f} to {after.perplexity:,.1f} with "
            f"--learning-rate {learning_rate:g}; a short text needs a lower rate, try {learning_rate / 4:g}"
        )
