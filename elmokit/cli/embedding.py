"""Verbs that use a model: embed, convert, export, info."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import say
from elmokit.cli.text_options import Language, Tokenized
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.embed.files import EmbedReport, Progress, Shard
    from elmokit.weights.source import Source

# "\b" keeps a paragraph's lines as they are.
EMBED_EPILOG = """\b
What OUT holds, by its suffix. Lines are counted from 0 over all inputs.
  .safetensors  vectors (tokens, [layers,] width), and offsets:
                line i is vectors[offsets[i]:offsets[i + 1]]
  .npy          the same vectors; the offsets are in NAME.offsets.npy
  .hdf5         a dataset a line, named by its number: ([layers,] tokens,
                width)
  .jsonl        an object a line: line, tokens, vectors

Pooled, a line is one vector, and there are no offsets. Shards are pieces in order; in each, offsets begin anew, and
i is counted from its first line."""
MODEL_HELP = "A folder, a bundled model's name (en-small), or a published model's two files: options.json and .hdf5."
DEFAULT_HELP = f"{MODEL_HELP}  [default: en-small]"


@verb(app, epilog=EMBED_EPILOG)
def embed(
    inputs: Annotated[
        list[str], typer.Argument(metavar="IN", help="Text files, also .gz and .xz, patterns, or - for stdin.")
    ],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="File for the vectors, or - for JSON lines on stdout.")
    ],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="MODEL", help=DEFAULT_HELP)] = None,
    state: Annotated[
        Literal["reset", "warm", "carry"],
        typer.Option(help="Every sentence begins from zero, from a settled state, or where the last one ended."),
    ] = "warm",
    language: Language = "en",
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, or cuda for a GPU.")] = "cpu",
    precision: Annotated[
        Literal["fp32", "int8"],
        typer.Option(help="int8 is faster with compiled kernels, and gives nearly the same vectors."),
    ] = "fp32",
    file_format: Annotated[
        Literal["safetensors", "hdf5", "npy", "jsonl"] | None,
        typer.Option("--format", help="By default what OUT's suffix says.", show_default=False),
    ] = None,
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        typer.Option(help="By default float16 in safetensors and npy, float32 elsewhere.", show_default=False),
    ] = None,
    layers: Annotated[
        str, typer.Option(metavar="WHICH", help="all, mean, a layer's number, or a weighted sum: mix:0.2,0.5,0.3")
    ] = "all",
    pool: Annotated[Literal["none", "mean", "max"], typer.Option(help="Make a line's tokens one vector.")] = "none",
    tokenized: Tokenized = False,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Sentences that run together.")] = 64,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Do part I of N (from 1), into NAME-0000I-of-0000N.SUFFIX.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Turn text into vectors, a line a sentence.

    Cut off, the same command goes on where it stopped. OUT appears when it is whole.
    """
    source = model_source(model or [])
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.files import embed_files, parse_shard
    from elmokit.embed.picking import parse_layers

    which, part = parse_layers(layers), None if shard is None else parse_shard(shard)
    embedder = Embedder.from_pretrained(source, state=state, precision=precision, language=language, device=device)
    with _progress_shown() as progress, _interruption_explained(output, part):
        report = embed_files(
            embedder,
            inputs,
            output,
            file_format=file_format,
            dtype=dtype,
            layers=which,
            pool=None if pool == "none" else pool,
            tokenized=tokenized,
            batch_size=batch_size,
            shard=part,
            replace=force,
            progress=progress,
        )
    _tell_of(report, max_chars=embedder.bilm.config.char_encoder.max_chars)


@verb(app)
def convert(
    model: Annotated[list[str], typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The new folder.")],
    to: Annotated[
        Literal["elmokit", "hdf5"], typer.Option(help="Our format, or the published options.json and weights.hdf5.")
    ] = "elmokit",
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="How the weights are stored.")] = "float32",
    force: Annotated[bool, typer.Option("--force", help="Replace the model in FOLDER.")] = False,
) -> None:
    """Convert a model between the published format and ours."""
    source = model_source(model)
    from elmokit.weights.conversion import convert_model
    from elmokit.weights.folder import has_softmax

    convert_model(source, output, to=to, half=dtype == "float16", overwrite=force)
    if to == "hdf5" and has_softmax(source):
        say("the published format has no place for the output layer: keep the model for scores and fine-tuning")


@verb(app)
def export(
    model: Annotated[list[str], typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The new ONNX file.")],
    state: Annotated[
        Literal["reset", "warm"], typer.Option(help="Every sentence begins from zero, or from a settled state.")
    ] = "warm",
    check: Annotated[bool, typer.Option("--check", help="Run FILE in ONNX Runtime and compare with PyTorch.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a model as an ONNX file, for programs without PyTorch."""
    source = model_source(model)
    from elmokit.integrations.onnx import check_onnx, export_onnx

    export_onnx(source, output, state=state, overwrite=force)
    if check:
        say(f"{output}: within {check_onnx(output, source, state=state):.0e} of PyTorch")


@verb(app)
def info(
    model: Annotated[list[str], typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what a model is: its layers, sizes, parameters and files."""
    source = model_source(model)
    from elmokit.weights.description import describe_model

    described = describe_model(source)
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        _print_table(described)


def model_source(paths: list[str]) -> "Source":
    """A folder, or a pair (options, weights) given in either order; the bundled English model if nothing is given."""
    from elmokit.weights.bundled import EN_SMALL

    match paths:
        case []:
            return EN_SMALL
        case [folder]:
            return folder
        case [first, second]:
            return (first, second) if first.endswith(".json") else (second, first)
    raise InputError(f"{len(paths)} paths for one model; expected a folder, or an options.json and a .hdf5")


def _print_table(described: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, values in described.items():
        table.add_row(f"[bold]{heading.replace('_', ' ')}", "")
        for name, value in values.items():
            if heading != "files":
                table.add_row(f"  {name.replace('_', ' ')}", _in_words(value))
    console = Console(highlight=False)
    console.print(table)
    # A hash is too wide for the table.
    for name, file in described["files"].items():
        known = f", published as {file['published_as']}" if file["published_as"] else ""
        console.print(
            f"  {name}, {file['bytes']:,} bytes{known}\n    sha256 {file['sha256']}", soft_wrap=True, markup=False
        )


def _in_words(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case None:
            return "none"
        case list():
            return "\n".join(map(_in_words, value))
        case dict():
            return ", ".join(f"{name.replace('_', ' ')} {_in_words(part)}" for name, part in value.items())
    return str(value)


@contextmanager
def _progress_shown() -> "Iterator[Callable[[Progress], None]]":
    """Say where a job goes on; on a terminal also show how far it is, how fast, and how long it will take."""
    if not sys.stderr.isatty():
        yield _Watcher(lambda *_: None)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.SpinnerColumn(),
        bars.BarColumn(bar_width=None),
        bars.TextColumn("{task.completed:,.0f} lines"),
        bars.TextColumn("{task.fields[rate]:,.0f} words/s"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task("embed", total=None, rate=0.0)

        def show(progress: "Progress", new_tokens: int) -> None:
            rate = new_tokens / (bar.tasks[0].elapsed or 1)
            bar.update(task, completed=progress.lines, total=progress.total_lines, rate=rate)

        yield _Watcher(show)


class _Watcher:
    """Hears how far a job is, and knows where this run began."""

    def __init__(self, show: "Callable[[Progress, int], None]") -> None:
        self._show = show
        self._first: Progress | None = None

    def __call__(self, progress: "Progress") -> None:
        if self._first is None:
            self._first = progress
            if progress.lines:
                say(f"going on after {progress.lines:,} of {progress.total_lines:,} lines")
        self._show(progress, progress.tokens - self._first.tokens)


@contextmanager
def _interruption_explained(output: str, shard: "Shard | None") -> Iterator[None]:
    """Say after Ctrl-C what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        from elmokit.embed.partial import partial_folder

        target = Path(output) if shard is None else shard.path(Path(output))
        kept = partial_folder(Path(os.path.realpath(target)))
        if not kept.exists():
            raise
        told = f"what is done is kept in {os.path.relpath(kept)}, the same command goes on from there"
        raise KeyboardInterrupt(told) from None


def _tell_of(report: "EmbedReport", *, max_chars: int) -> None:
    if report.cut_words:
        words = "1 word is longer" if report.cut_words == 1 else f"{report.cut_words:,} words are longer"
        was = "was" if report.cut_words == 1 else "were"
        say(f"warning: {words} than {max_chars - 2} bytes and {was} cut; split such words if the difference matters")
    if sys.stderr.isatty():
        say(f"{report.output}: {report.lines:,} lines, {report.tokens:,} tokens in {report.seconds:,.1f} s")
