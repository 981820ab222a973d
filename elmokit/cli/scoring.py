"""Verbs that say how likely a text is: perplexity, score."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import say
from elmokit.cli.options import (
    Language,
    LanguageModel,
    LanguageModelFolder,
    Split,
    StreamFiles,
    TextFiles,
    Tokenized,
    Workers,
    Wrapped,
    check_model_folder,
    num_workers,
)
from elmokit.cli.options import State as StateOption
from elmokit.cli.score_display import ScoredLine, display_for
from elmokit.errors import InputError
from elmokit.weights.bundled import EN_SMALL

if TYPE_CHECKING:
    from elmokit.embed.state import State
    from elmokit.score.perplexity import Perplexity
    from elmokit.score.scoring import Candidate, Place, Scorer
    from elmokit.text.lines import Line

STATES: "tuple[State, ...]" = ("reset", "warm", "carry")
NUM_SPECIALS = 3
WORDS_AT_ONCE = 4096  # of text: enough to make good batches, few enough to be seen soon

SCORE_EPILOG = """\b
What is printed. Lines are counted from 0 over all inputs; blank ones are
left out. Log-probabilities are natural ones, over the whole vocabulary.
  on a terminal  a table, cut to its width
  in a pipe      the same, whole, with tabs between, and a heading
  --json         an object a line with all there is: line, tokens, unknown,
                 forward_logprobs, backward_logprobs, end_logprob,
                 start_logprob, forward_total, backward_total,
                 forward_perplexity, backward_perplexity, perplexity;
                 with --top-k also places

The perplexity is that of both directions, their geometric mean. A token that the
vocabulary lacks is scored as <UNK>."""


@verb(app)
def perplexity(
    model: LanguageModelFolder,
    files: TextFiles,
    *,
    state: Annotated[
        Literal["reset", "warm", "carry"] | None,
        typer.Option(
            help="Start every sentence from zero (reset), from a settled state (warm), or where the sentence before "
            "ended (carry).  [default: warm]",
            show_default=False,
        ),
    ] = None,
    all_states: Annotated[bool, typer.Option("--all-states", help="Measure with each of the three states.")] = False,
    tokenized: Tokenized = False,
    split: Split = False,
    wrapped: Wrapped = False,
    language: Language = "en",
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Read only the first N tokens, in whole sentences.")
    ] = None,
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per state.")] = False,
) -> None:
    """Measure how well a model predicts a text.

    Perplexity is always over the whole vocabulary. "mean" is the paper's average of both directions, "geometric mean"
    is bilm-tf's. "targets" counts the tokens of one direction and one boundary per sentence. Out-of-vocabulary words
    are predicted as <UNK>, which is easier.
    """
    if all_states and state is not None:
        raise InputError(f"--state {state} and --all-states; choose one of the two")
    check_model_folder(model)
    from elmokit.cli.progress import preparation_progress, show_progress

    found: dict[State, Perplexity] = {}
    with show_progress("loading the model") as shown, tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        from elmokit.score.perplexity import measure
        from elmokit.score.saved_lm import load_language_model
        from elmokit.text.lines import find_inputs
        from elmokit.text.preparation import prepare_corpus

        loaded = load_language_model(model)
        loaded.model.bilm.pack_weights()
        corpus = prepare_corpus(
            find_inputs(files),
            Path(folder) / "text",
            tokenized=tokenized,
            split=split,
            wrapped=wrapped,
            language=language,
            max_chars=loaded.model.bilm.config.char_encoder.max_chars,
            num_workers=num_workers(workers),
            progress=preparation_progress(shown),
        )
        for one in STATES if all_states else (state or "warm",):
            shown.begin(f"measuring {min(corpus.num_tokens, max_tokens or corpus.num_tokens):,} tokens, state {one}")
            found[one] = measure(
                loaded.model, corpus, loaded.vocab, state=one, warm=loaded.start_state, max_tokens=max_tokens
            )
    _print_perplexities(found, as_json=as_json)
    if "carry" in found:
        _warn_of_short_rows(found["carry"].num_targets)


@verb(app, epilog=SCORE_EPILOG)
def score(
    files: StreamFiles,
    *,
    model: LanguageModel = EN_SMALL,
    state: StateOption = "warm",
    tokenized: Tokenized = False,
    language: Language = "en",
    tokens: Annotated[bool, typer.Option("--tokens", help="Print the log-probability of every token.")] = False,
    top_k: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Print the N likeliest words in every token's place.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a sentence.")] = False,
) -> None:
    """Say how likely each line of a text is.

    A line is a sentence. It is read from the left and from the right.
    """
    if tokens and top_k is not None and not as_json:
        raise InputError("--tokens and --top-k are two tables; choose one, or --json, which has both")
    check_model_folder(model)
    from elmokit.score.scoring import Scorer
    from elmokit.text.lines import STDIN, find_inputs, read_lines
    from elmokit.text.tokens import tokenize

    paths = find_inputs(files)
    lines = read_lines(paths)
    split = str.split if tokenized else lambda text: tokenize(text, language=language)
    split("")  # refuses an unknown language before the model is loaded
    scorer = Scorer.from_pretrained(model, state=state)
    num_words = len(scorer.vocab) - NUM_SPECIALS
    if top_k is not None and top_k > num_words:
        raise InputError(f"--top-k {top_k}; the model knows {num_words:,} words, take fewer")
    # Who types sentences wants each answered.
    at_once = 1 if STDIN in paths and sys.stdin.isatty() else WORDS_AT_ONCE
    display = display_for("json" if as_json else "places" if top_k else "tokens" if tokens else "sentences")
    for scored in _scored(scorer, _sentences(lines, split), at_once=at_once, top_k=top_k):
        display.show(scored)


def _sentences(lines: "Iterable[Line]", split: Callable[[str], list[str]]) -> Iterator[tuple[int, list[str]]]:
    """The tokens of every line that has any, and its number."""
    for number, line in enumerate(lines):
        if tokens := split(line.text):
            yield number, tokens


def _scored(
    scorer: "Scorer", sentences: Iterable[tuple[int, list[str]]], *, at_once: int, top_k: int | None
) -> Iterator[ScoredLine]:
    """Score sentences, some ``at_once`` words at a time."""
    for window in _windows(sentences, at_once):
        texts = [tokens for _, tokens in window]
        # The specials are asked for too, since they are hidden afterwards.
        places = scorer.predict(texts, top_k=top_k + NUM_SPECIALS) if top_k else [None] * len(texts)
        for (number, _), score, found in zip(window, scorer.score(texts), places, strict=True):
            yield ScoredLine(number, score, found and [_without_specials(place, top_k) for place in found])


def _without_specials(place: "Place", num_words: int | None) -> "Place":
    from elmokit.text.vocab import SPECIAL_WORDS

    def words(candidates: "tuple[Candidate, ...]") -> "tuple[Candidate, ...]":
        return tuple(candidate for candidate in candidates if candidate.word not in SPECIAL_WORDS)[:num_words]

    return replace(place, forward=words(place.forward), backward=words(place.backward), both=words(place.both))


def _windows(sentences: Iterable[tuple[int, list[str]]], num_words: int) -> Iterator[list[tuple[int, list[str]]]]:
    window: list[tuple[int, list[str]]] = []
    size = 0
    for number, tokens in sentences:
        window.append((number, tokens))
        size += len(tokens)
        if size >= num_words:
            yield window
            window, size = [], 0
    if window:
        yield window


def _print_perplexities(found: "dict[State, Perplexity]", *, as_json: bool) -> None:
    if as_json:
        for state, one in found.items():
            means = {"arithmetic_mean": one.arithmetic_mean, "geometric_mean": one.geometric_mean}
            typer.echo(json.dumps({"state": state, **asdict(one), "unknown_share": one.unknown_share, **means}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("state", no_wrap=True)
    for heading in ("forward", "backward", "mean", "geometric mean", "targets", "unknown"):
        table.add_column(heading, justify="right", no_wrap=True)
    for state, one in found.items():
        numbers = (one.forward, one.backward, one.arithmetic_mean, one.geometric_mean)
        table.add_row(
            state, *(f"{number:,.2f}" for number in numbers), f"{one.num_targets:,}", f"{one.unknown_share:.1%}"
        )
    Console(highlight=False).print(table)


def _warn_of_short_rows(num_targets: int) -> None:
    from elmokit.score.perplexity import NUM_ROWS, WARM_UP_STEPS

    if num_targets < NUM_ROWS * WARM_UP_STEPS:
        say(
            f"warning: under carry {num_targets:,} targets in {NUM_ROWS} rows are {num_targets / NUM_ROWS:.1f} a row, "
            f"few for a state to be carried; take a text of {NUM_ROWS * WARM_UP_STEPS:,} or more, or another state"
        )
