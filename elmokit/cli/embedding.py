"""The verb embed."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
from elmokit.cli.options import STREAM_HELP, Language, Model, StateOrCarry, Tokenized, model_source

if TYPE_CHECKING:
    from elmokit.cli.progress import Progress
    from elmokit.embed.files import EmbedReport, Shard
    from elmokit.embed.files import Progress as EmbedProgress

STDOUT = "-"
# "\b" keeps a paragraph's lines as they are.
EMBED_EPILOG = """\b
Contents of OUT, by its suffix. Lines are counted from 0 over all inputs.
  .safetensors  vectors (tokens, [layers,] width) and offsets:
                line i is vectors[offsets[i]:offsets[i + 1]];
                tokens (UTF-8 bytes) and token_offsets: the token of
                row r is tokens[token_offsets[r]:token_offsets[r + 1]]
  .npy          the same vectors; the offsets are in NAME.offsets.npy
  .hdf5         one dataset per line, named by its number:
                ([layers,] tokens, width); needs twice its size on disk
                while it is written
  .jsonl        one object per line: line, tokens, vectors

With --pool a line has one vector, and there are no offsets or tokens. Shards are consecutive parts of the text. In
each, offsets start at 0, and i counts from its first line."""


@verb(app, epilog=EMBED_EPILOG)
def embed(
    inputs: Annotated[list[str], typer.Argument(metavar="IN", help=STREAM_HELP)],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="File for the vectors, or - for JSON lines on stdout.")
    ],
    model: Model = None,
    state: StateOrCarry = "warm",
    language: Language = "en",
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, or cuda for a GPU.")] = "cpu",
    precision: Annotated[
        Literal["fp32", "int8", "bf16"],
        typer.Option(help="int8 is faster with compiled kernels and gives nearly the same vectors."),
    ] = "fp32",
    file_format: Annotated[
        Literal["safetensors", "hdf5", "npy", "jsonl"] | None,
        typer.Option("--format", help="Format of OUT.  [default: by its suffix]", show_default=False),
    ] = None,
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        typer.Option(
            help="Type of the numbers.  [default: float16 in safetensors and npy, float32 elsewhere]",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        str, typer.Option(metavar="WHICH", help="all, mean, a layer's number, or a weighted sum: mix:0.2,0.5,0.3")
    ] = "all",
    pool: Annotated[
        Literal["none", "mean", "max"], typer.Option(help="Pool the tokens of a line into one vector.")
    ] = "none",
    tokenized: Tokenized = False,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Sentences per batch.")] = 64,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Embed part I of N (from 1), into NAME-0000I-of-0000N.SUFFIX."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Turn text into vectors, one sentence per line.

    After an interruption, the same command resumes. OUT appears when it is complete.
    """
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model", has_output=output == STDOUT) as shown:
        from elmokit.embed.embedder import Embedder
        from elmokit.embed.files import embed_files, parse_shard
        from elmokit.embed.picking import parse_layers

        which, part = parse_layers(layers), None if shard is None else parse_shard(shard)
        embedder = Embedder.from_pretrained(
            model_source(model or []), state=state, precision=precision, language=language, device=device
        )
        shown.begin("embedding")
        with _explain_interruption(output, part):
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
                progress=_report_to(shown),
            )
    _print_report(report, max_chars=embedder.bilm.config.char_encoder.max_chars)


def _report_to(shown: "Progress") -> "Callable[[EmbedProgress], None]":
    """Return a function that shows the progress of a job and reports where it resumes."""
    is_first = True

    def report(now: "EmbedProgress") -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            if now.lines:
                print_message(f"resuming after {now.lines:,} of {now.total_lines:,} lines")
            shown.begin("embedding", unit="lines", work_unit="words", done=now.lines, work=now.tokens)
        shown.update(now.lines, total=now.total_lines, work=now.tokens)

    return report


@contextmanager
def _explain_interruption(output: str, shard: "Shard | None") -> Iterator[None]:
    """Add to Ctrl-C where the finished part is saved, if it is."""
    try:
        yield
    except KeyboardInterrupt:
        from elmokit.embed.partial import partial_folder

        target = Path(output) if shard is None else shard.path(Path(output))
        folder = partial_folder(Path(os.path.realpath(target)))
        if not folder.exists():
            raise
        message = f"finished lines are saved in {os.path.relpath(folder)}; run the same command to resume"
        raise KeyboardInterrupt(message) from None


def _print_report(report: "EmbedReport", *, max_chars: int) -> None:
    if report.cut_words:
        words = "1 word is longer" if report.cut_words == 1 else f"{report.cut_words:,} words are longer"
        was = "was" if report.cut_words == 1 else "were"
        print_message(
            f"warning: {words} than {max_chars - 2} bytes and {was} cut; split such words if the difference matters"
        )
    if not report.tokens:
        print_message(f"warning: no words in the input; {report.output} has no vectors")
    if sys.stderr.isatty():
        print_message(f"{report.output}: {report.lines:,} lines, {report.tokens:,} tokens in {report.seconds:,.1f} s")
