"""Verbs index and senses, and the answers of an index to the verb neighbors."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.analysis import NUM_CANDIDATES, NUM_QUERIES, Search, parse_layer
from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
from elmokit.cli.neighbor_display import Found
from elmokit.cli.options import (
    STREAM_HELP,
    TEXT_HELP,
    Language,
    Model,
    State,
    Tokenized,
    check_one_token,
    model_source,
)
from elmokit.cli.printing import printable
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.analysis.index import CorpusIndex
    from elmokit.analysis.occurrences import Occurrence
    from elmokit.analysis.senses import Senses
    from elmokit.cli.progress import Progress
    from elmokit.embed.embedder import Embedder

SHOWN_PER_SENSE = 5

INDEX_EPILOG = """\b
Examples
  elmokit index "texts/*.txt" -o texts.index
  elmokit neighbors bank --index texts.index
  elmokit senses bank --index texts.index

The index stores all layers as float16: with en-small, 1 kB per token. Equal
sentences are stored once. INDEX appears when it is complete; after an
interruption, the same command resumes."""

SENSES_EPILOG = """\b
Examples
  elmokit senses bank --index texts.index --layer 1
  elmokit senses bank --in corpus.txt --clusters 3 --json

\b
Output. Lines are counted from 0 over all inputs.
  in a pipe  tab-separated, with a heading; the most typical first
  --json     one object: word, layer, silhouette, num_occurrences, senses"""

IndexFolder = Annotated[
    Path | None, typer.Option("--index", metavar="INDEX", help="Answer from an index, as `elmokit index` writes it.")
]


@verb(app, epilog=INDEX_EPILOG)
def index(
    inputs: Annotated[list[str], typer.Argument(metavar="FILES", help=f"{TEXT_HELP} One sentence per line.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX", help="Folder to write.")],
    model: Model = None,
    state: State = "warm",
    tokenized: Tokenized = False,
    language: Language = "en",
    force: Annotated[bool, typer.Option("--force", help="Replace an index that is there.")] = False,
) -> None:
    """Embed text files once, to search them afterwards."""
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model") as shown:
        from elmokit.analysis.index_building import build_index
        from elmokit.embed.embedder import Embedder

        embedder = Embedder.from_pretrained(model_source(model or []), state=state, language=language)
        try:
            info = build_index(inputs, output, embedder, tokenized=tokenized, replace=force, progress=_report_to(shown))
        except KeyboardInterrupt:
            partial = output.with_name(f"{output.name}.partial")
            if not partial.exists():
                raise
            message = f"finished lines are saved in {os.path.relpath(partial)}; run the same command to resume"
            raise KeyboardInterrupt(message) from None
    if sys.stderr.isatty():
        print_message(
            f"{output}: {info.num_sentences:,} sentences, {info.num_tokens:,} tokens, {info.num_words:,} words"
        )


@verb(app, epilog=SENSES_EPILOG)
def senses(
    word: Annotated[str, typer.Argument(metavar="WORD", help="One token, as it stands in the text.")],
    *,
    folder: IndexFolder = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--in", metavar="FILES", help=f"{STREAM_HELP} One sentence per line.")
    ] = None,
    model: Model = None,
    layer: Annotated[
        str | None, typer.Option(metavar="WHICH", help="A layer's number, or mean.  [default: the top one]")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of senses.  [default: 1 to 6, by the silhouette]")
    ] = None,
    state: State = "warm",
    tokenized: Tokenized = False,
    language: Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every occurrence.")] = False,
) -> None:
    """Cluster the occurrences of a word by their contexts."""
    from elmokit.cli.progress import show_progress

    if (folder is None) == (inputs is None):
        raise typer.BadParameter("give either --in FILES or --index INDEX")
    with show_progress("loading") as shown:
        if folder is not None:
            from elmokit.analysis.index import CorpusIndex

            opened = CorpusIndex.open(folder)
            found = opened.senses(_token_of(opened, word), layer=parse_layer(layer), num_clusters=clusters)
        else:
            from elmokit.analysis.occurrences import find_occurrences
            from elmokit.analysis.senses import embed_senses
            from elmokit.embed.embedder import Embedder
            from elmokit.text.lines import find_inputs, read_lines

            lines = read_lines(find_inputs(inputs or []))
            embedder = Embedder.from_pretrained(model_source(model or []), state=state, language=language)
            token = word if tokenized else check_one_token(embedder.tokenize(word), word)
            shown.begin(f"finding {token!r}")
            sentences = (line.text.split() if tokenized else line.text for line in lines)
            places = find_occurrences(embedder, sentences, token, most=sys.maxsize)
            found = embed_senses(embedder, token, places, layer=parse_layer(layer), num_clusters=clusters)
    _show_senses(found, as_json=as_json)


def search_index(folder: Path, search: Search, model: list[str]) -> Found:
    """Return what an index answers to the verb neighbors. The model is only loaded for contexts."""
    from elmokit.analysis.index import CorpusIndex, find_in_index

    opened = CorpusIndex.open(folder)
    token = _token_of(opened, search.word)
    queries = _queries(opened, token, search)
    embedder = _load_model(opened, model) if search.contexts else None
    found = find_in_index(
        opened, queries, embedder=embedder, k=search.k, layer=search.layer, same_word=search.same_word
    )
    number = search.layer if search.layer == "mean" else search.layer % opened.info.num_layers
    return Found(token, number, found, None)


def _queries(opened: "CorpusIndex", token: str, search: Search) -> "list[Occurrence]":
    """Return the occurrences in the contexts, or some of the index that represent the word's uses."""
    from elmokit.analysis.occurrences import Occurrence, choose_representatives
    from elmokit.text.tokens import tokenize

    if not search.contexts:
        places = opened.occurrences(token, most=NUM_CANDIDATES)
        vectors_ND = opened.vectors(places, layer=search.layer)
        return [places[row] for row in sorted(choose_representatives(vectors_ND @ vectors_ND.T, NUM_QUERIES))]
    found = []
    for context in search.contexts:
        tokens = context.split() if opened.info.tokenized else tokenize(context, language=opened.info.language)
        if token not in tokens:
            raise InputError(
                f"{token!r} is not a token of the context {' '.join(tokens)!r}; give sentences that contain it"
            )
        found += [Occurrence(tuple(tokens), place) for place, one in enumerate(tokens) if one == token]
    return found


def _load_model(opened: "CorpusIndex", model: list[str]) -> "Embedder":
    """Load the model that an index was built with, or the one that is named, if its vectors are the same."""
    from elmokit.embed.embedder import Embedder

    name = opened.info.model
    if not model and name is None:
        raise InputError(f"{opened.folder}: was built by a model in memory; name its folder with --model")
    embedder = Embedder.from_pretrained(
        model_source(model) if model else name,
        state="reset" if opened.info.state == "reset" else "warm",
        language=opened.info.language,
    )
    opened.check_embedder(embedder)
    return embedder


def _token_of(opened: "CorpusIndex", word: str) -> str:
    """Return the word as the tokenizer of the index writes it."""
    if opened.info.tokenized:
        return word
    from elmokit.text.tokens import tokenize

    return check_one_token(tokenize(word, language=opened.info.language), word)


def _report_to(shown: "Progress") -> Callable[[int, int, int], None]:
    """Return a function that shows the progress of a build and reports where it resumes."""
    is_first = True

    def report(lines: int, total: int, tokens: int) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            if lines:
                print_message(f"resuming after {lines:,} of {total:,} lines")
            shown.begin("embedding", unit="lines", work_unit="words", done=lines, total=total, work=tokens)
        shown.update(lines, total=total, work=tokens)

    return report


def _show_senses(found: "Senses", *, as_json: bool) -> None:
    if as_json:
        senses = [
            [
                {"typicality": value, "line": one.sentence, "position": one.position, "tokens": one.tokens}
                for one, value in zip(sense.occurrences, sense.typicality, strict=True)
            ]
            for sense in found.senses
        ]
        about = {"word": found.word, "layer": found.layer, "silhouette": found.silhouette}
        typer.echo(
            json.dumps({**about, "num_occurrences": found.num_occurrences, "senses": senses}, ensure_ascii=False)
        )
        return
    typer.echo("sense\tsize\ttypicality\tline\tposition\tsentence")
    for number, sense in enumerate(found.senses, start=1):
        shown = list(zip(sense.occurrences, sense.typicality, strict=True))[:SHOWN_PER_SENSE]
        for one, value in shown:
            where = f"{one.sentence}\t{one.position}\t{printable(' '.join(one.tokens))}"
            typer.echo(f"{number}\t{len(sense.occurrences)}\t{value:.4f}\t{where}")
