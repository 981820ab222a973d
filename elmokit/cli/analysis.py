"""The verb neighbors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.neighbor_display import Found, show_neighbors
from elmokit.cli.options import STREAM_HELP, Language, Model, State, Tokenized, check_one_token, model_source
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.analysis.occurrences import Occurrence
    from elmokit.cli.progress import Progress
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.picking import Layer
    from elmokit.embed.sentences import Sentence
    from elmokit.embed.state import State as StateName
    from elmokit.weights.source import Source

NUM_QUERIES = 3
NUM_CANDIDATES = 200  # occurrences among which the queries are chosen

NEIGHBORS_EPILOG = """\b
Examples
  elmokit neighbors play --in corpus.txt --model my-model --same-word
  elmokit neighbors play --in "texts/*.txt.xz" --model my-model \\
      --context "They play chess ." --context "a play by Ibsen"

\b
Output. Lines are counted from 0 over all inputs.
  on a terminal  the words in their contexts, cut to its width
  in a pipe      tab-separated, with a heading; rank 0 is the query
  --json         one object per query: word, layer, line, position,
                 tokens, neighbors; with --vectors also static_neighbors

Other tokens of the query's own sentence are left out."""


@verb(app, epilog=NEIGHBORS_EPILOG)
def neighbors(
    word: Annotated[str, typer.Argument(metavar="WORD", help="One token, as it stands in the text.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="More text, as when a shell expands --in *.txt")
    ] = None,
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="FILES",
            help=f"{STREAM_HELP} One sentence per line.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--index", metavar="INDEX", help="An index to search instead of files.")
    ] = None,
    model: Model = None,
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="SENTENCE",
            help="A sentence with the word, used as a query; can be repeated.  [default: some of the text]",
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(metavar="WHICH", help="A layer's number, or mean.  [default: the top one]")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="Number of neighbors.")] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only find the same word in other contexts.")] = False,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Static vectors (GloVe, word2vec) to compare with.")
    ] = None,
    state: State = "warm",
    tokenized: Tokenized = False,
    language: Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per query.")] = False,
) -> None:
    """Find the tokens nearest to a word in its context.

    Without --context, the queries are three occurrences in the text that represent the word's uses.
    """
    from elmokit.cli.progress import show_progress

    if (folder is None) == (not inputs):
        raise typer.BadParameter("give either --in FILES or --index INDEX")
    with show_progress("loading the model") as shown:
        from elmokit.analysis.neighbors import find_static_neighbors
        from elmokit.encoders.static_vectors import read_static_vectors

        which = parse_layer(layer)
        text = _Text(paths=[*inputs, *(more or [])], tokenized=tokenized) if inputs else None
        if text is not None and text.is_stream and not contexts:
            raise InputError("a stream can be read only once; name a --context as the query, or give a file")
        static = None if vectors is None else find_static_neighbors(read_static_vectors(vectors), word, k=k)
        search = Search(word, contexts or [], which, k, same_word)
        if text is None:
            from elmokit.cli.indexing import search_index

            found = search_index(folder or Path(), search, model or [])
        else:
            found = _search_text(text, search, model_source(model or []), state, language, shown)
    show_neighbors(replace(found, static=static), as_json=as_json)


@dataclass(frozen=True)
class Search:
    """Query of the verb neighbors."""

    word: str
    contexts: list[str]
    layer: "Layer"
    k: int
    same_word: bool


def _search_text(
    text: "_Text", search: Search, source: "Source", state: "StateName", language: str, shown: "Progress"
) -> Found:
    from elmokit.analysis.neighbors import find_neighbors
    from elmokit.embed.embedder import Embedder

    embedder = Embedder.from_pretrained(source, state=state, language=language)
    token = search.word if text.tokenized else check_one_token(embedder.tokenize(search.word), search.word)
    shown.begin(f"finding {token!r}")
    queries = _queries(embedder, token, text, search.contexts, search.layer)
    shown.begin("searching", unit="lines", work_unit="words", total=text.num_lines() if shown.is_live else None)
    found = find_neighbors(
        embedder,
        text.sentences(),
        queries,
        k=search.k,
        layer=search.layer,
        same_word=search.same_word,
        progress=lambda num_sentences, num_tokens: shown.update(num_sentences, work=num_tokens),
    )
    return Found(token, search.layer if search.layer == "mean" else search.layer % embedder.num_layers, found, None)


def parse_layer(text: str | None) -> "Layer":
    """Return the layer that a text names; the top one for None."""
    from elmokit.analysis.neighbors import TOP

    if text is None:
        return TOP
    if text == "mean":
        return "mean"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"layer {text!r}; expected mean or a layer's number, 0 for the token layer") from None


class _Text:
    """The text to search, read again for every pass."""

    def __init__(self, paths: list[str], *, tokenized: bool) -> None:
        from elmokit.embed.files import has_stream
        from elmokit.text.lines import find_inputs

        self._paths = find_inputs(paths)
        self.tokenized = tokenized
        self.is_stream = has_stream(self._paths)
        self.sentences()  # looks for the files before the model is loaded

    def sentences(self) -> "Iterator[Sentence]":
        """Return the sentences, one per line."""
        from elmokit.text.lines import read_lines

        return (self.parse(line.text) for line in read_lines(self._paths))

    def parse(self, sentence: str) -> "Sentence":
        """Return a sentence as the embedder takes it."""
        return sentence.split() if self.tokenized else sentence

    def num_lines(self) -> int | None:
        """Return the number of lines, or None for a stream."""
        return None if self.is_stream else sum(1 for _ in self.sentences())


def _queries(embedder: "Embedder", word: str, text: _Text, contexts: list[str], layer: "Layer") -> "list[Occurrence]":
    from elmokit.analysis.occurrences import choose_varied, find_in_contexts, find_occurrences

    if contexts:
        return find_in_contexts(embedder, [text.parse(context) for context in contexts], word)
    first = find_occurrences(embedder, text.sentences(), word, most=NUM_CANDIDATES)
    return choose_varied(embedder, first, num=NUM_QUERIES, layer=layer)
