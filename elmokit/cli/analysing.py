"""Verbs that ask what vectors know: neighbors, probe."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.embedding import DEFAULT_HELP, model_source
from elmokit.cli.messages import on_terminal
from elmokit.cli.neighbor_display import Found, show_neighbors
from elmokit.cli.text_options import Language, Tokenized
from elmokit.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from elmokit.analysis.occurrences import Occurrence
    from elmokit.analysis.pos_probe import ProbeProgress, ProbeResult
    from elmokit.embed.embedder import Embedder, Sentence
    from elmokit.embed.picking import Layer

NUM_QUERIES = 3
NUM_CANDIDATES = 200  # occurrences among which the queries are chosen
CONTROL_SEED = 0
STATE_HELP = "Every sentence begins from zero, or from a settled state."

NEIGHBORS_EPILOG = """\b
Examples
  elmokit neighbors play --in corpus.txt --model my-model --same-word
  elmokit neighbors play --in "texts/*.txt.xz" --model my-model \\
      --context "They play chess ." --context "a play by Ibsen"

\b
What is printed. Lines are counted from 0 over all inputs.
  on a terminal  the words in their contexts, cut to its width
  in a pipe      tab-separated, with a heading; rank 0 is the query
  --json         an object a query: word, layer, line, position, tokens,
                 neighbors; with --vectors also static_neighbors"""

PROBE_ROW = "{:<10} {:<5} {:>7} {:>7} {:>8} {:>8}"

probe = sub_app("Measure what a linear classifier can read off each layer.")
app.add_typer(probe, name="probe")


@verb(app, epilog=NEIGHBORS_EPILOG)
def neighbors(
    word: Annotated[str, typer.Argument(metavar="WORD", help="One token, as the text has it.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="More text, as when a shell fills in --in *.txt")
    ] = None,
    *,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--in",
            metavar="FILES",
            help="Text files, also .gz and .xz, patterns, or - for stdin; a line is a sentence.",
        ),
    ],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="MODEL", help=DEFAULT_HELP)] = None,
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="SENTENCE",
            help="A sentence with the word, to start from; can be given several times.  [default: a few of the text]",
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(metavar="WHICH", help="A layer's number, or mean.  [default: the top one]")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="How many neighbours.")] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only the same word in other contexts.")] = False,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Static vectors (GloVe, word2vec), to compare with.")
    ] = None,
    state: Annotated[Literal["reset", "warm"], typer.Option(help=STATE_HELP)] = "warm",
    tokenized: Tokenized = False,
    language: Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a query.")] = False,
) -> None:
    """Find the tokens of a text that are nearest to a word in its context.

    Without --context, it starts from three places of the text that stand for the word's uses.
    """
    source = model_source(model or [])
    from elmokit.analysis.neighbors import find_neighbors, find_static_neighbors
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.files import has_stream
    from elmokit.encoders.static_vectors import read_static_vectors
    from elmokit.text.lines import find_inputs, read_lines

    paths = find_inputs([*inputs, *(more or [])])

    def sentences() -> "Iterator[Sentence]":
        return (line.text.split() if tokenized else line.text for line in read_lines(paths))

    sentences()  # looks for the files before the model is loaded
    if has_stream(paths) and not contexts:
        raise InputError("a stream can be read only once; name a --context to start from, or give a file")
    which = _layer(layer)
    static = None if vectors is None else find_static_neighbors(read_static_vectors(vectors), word, k=k)
    embedder = Embedder.from_pretrained(source, state=state, language=language)
    given: list[Sentence] = [context.split() if tokenized else context for context in contexts or ()]
    token = word if tokenized else _only_token(embedder, word)
    queries = _queries(embedder, token, sentences, given, which)
    total = None if has_stream(paths) or not on_terminal() else sum(1 for _ in read_lines(paths))
    with _bar_shown() as bar:
        start = time.monotonic()

        def progress(num_sentences: int, num_tokens: int) -> None:
            bar.show("lines", num_sentences, total, f"{num_tokens / (time.monotonic() - start + 1e-9):,.0f} words/s")

        found = find_neighbors(embedder, sentences(), queries, k=k, layer=which, same_word=same_word, progress=progress)
    number = which if which == "mean" else which % embedder.num_layers
    show_neighbors(Found(token, number, found, static), as_json=as_json)


@verb(probe)
def pos(
    *,
    train: Annotated[Path, typer.Option(metavar="FILE", help="CoNLL-U, also .gz and .xz, to learn from.")],
    dev: Annotated[Path, typer.Option(metavar="FILE", help="To choose the regularisation by.")],
    test: Annotated[Path, typer.Option(metavar="FILE", help="To measure on, once.")],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="MODEL", help=DEFAULT_HELP)] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Also probe a biLM of the same shape that has learned nothing.")
    ] = False,
    state: Annotated[Literal["reset", "warm"], typer.Option(help=STATE_HELP)] = "warm",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a layer.")] = False,
) -> None:
    """Predict parts of speech (XPOS) from each layer, and from the mean of all.

    A multinomial logistic regression on frozen vectors. Its regularisation is chosen on the dev set, and the accuracy
    on the test set tells how much a layer knows.
    """
    source = model_source(model or [])
    from elmokit.analysis.pos_probe import PosData, probe_pos, untrained_like
    from elmokit.embed.embedder import Embedder
    from elmokit.readers.conllu import read_conllu

    data = PosData(*(list(read_conllu(path)) for path in (train, dev, test)))
    embedder = Embedder.from_pretrained(source, state=state)
    bilms = {"given": embedder}
    if control:
        bilms["untrained"] = untrained_like(embedder, seed=CONTROL_SEED)
    if not as_json:
        typer.echo(PROBE_ROW.format("biLM", "layer", "dev", "test", "strength", "seconds"))
    with _bar_shown() as bar:
        for name, bilm in bilms.items():
            for result in probe_pos(bilm, data, progress=_probe_progress(bar)):
                bar.print_above(json.dumps({"bilm": name, **asdict(result)}) if as_json else _probe_row(name, result))


def _layer(text: str | None) -> "Layer":
    from elmokit.analysis.neighbors import TOP

    if text is None:
        return TOP
    if text == "mean":
        return "mean"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"layer {text!r}; expected mean or a layer's number, 0 for the token layer") from None


def _only_token(embedder: "Embedder", word: str) -> str:
    """The word as the tokeniser writes it."""
    tokens = embedder.tokenize(word)
    if len(tokens) != 1:
        raise InputError(f"{word!r} is {len(tokens)} tokens ({' '.join(tokens)}); expected one, choose it among them")
    return tokens[0]


def _queries(
    embedder: "Embedder",
    word: str,
    sentences: "Callable[[], Iterator[Sentence]]",
    contexts: "list[Sentence]",
    layer: "Layer",
) -> "list[Occurrence]":
    from elmokit.analysis.occurrences import choose_varied, find_in_contexts, find_occurrences

    if contexts:
        return find_in_contexts(embedder, contexts, word)
    first = find_occurrences(embedder, sentences(), word, most=NUM_CANDIDATES)
    return choose_varied(embedder, first, num=NUM_QUERIES, layer=layer)


def _probe_progress(bar: "_Bar") -> "Callable[[ProbeProgress], None]":
    start = time.monotonic()

    def progress(now: "ProbeProgress") -> None:
        if now.doing == "training":
            bar.show("classifiers", now.done, now.total, "")
        else:
            bar.show("words", now.done, now.total, f"{now.done / (time.monotonic() - start + 1e-9):,.0f} words/s")

    return progress


def _probe_row(name: str, result: "ProbeResult") -> str:
    accuracies = f"{result.dev_accuracy:.2%}", f"{result.test_accuracy:.2%}"
    return PROBE_ROW.format(name, result.layer, *accuracies, f"{result.strength:g}", f"{result.seconds:.1f}")


class _Bar:
    """Shows how far a job is: the unit, how many of how many are done, and how fast. Nothing, but on a terminal."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None, rate="")

    def show(self, unit: str, done: int, total: int | None, rate: str) -> None:
        """Say how far it is."""
        if self._bar is None or self._task is None:
            return
        if self._bar.tasks[0].description != unit:
            self._bar.reset(self._task)
        self._bar.update(self._task, description=unit, completed=done, total=total, rate=rate)

    def print_above(self, line: str) -> None:
        """Print a line of the result, while the bar is out of the way."""
        if self._bar is not None:
            self._bar.stop()
        typer.echo(line)
        sys.stdout.flush()  # in a pipe too a line is seen when it is found
        if self._bar is not None:
            self._bar.start()


@contextmanager
def _bar_shown() -> Iterator[_Bar]:
    if not on_terminal():
        yield _Bar(None)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.SpinnerColumn(),
        bars.BarColumn(bar_width=None),
        bars.TextColumn("{task.completed:,.0f} {task.description} {task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    # Standard output stays what it is: rich would send it to where the bar is.
    with bars.Progress(
        *columns, console=Console(stderr=True), transient=True, expand=True, redirect_stdout=False
    ) as bar:
        yield _Bar(bar)
