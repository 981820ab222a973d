"""Verbs score and perplexity."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
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
from elmokit.cli.score_display import ScoredLine, choose_view, display_for, print_perplexities, print_totals
from elmokit.errors import InputError
from elmokit.weights.bundled import EN_SMALL

if TYPE_CHECKING:
    from elmokit.embed.state import State
    from elmokit.score.perplexity import Perplexity
    from elmokit.score.scoring import Scorer
    from elmokit.text.lines import Line

STATES: "tuple[State, ...]" = ("reset", "warm", "carry")
WINDOW_WORDS = 4096  # enough for efficient batches, few enough to show results soon

SCORE_EPILOG = """\b
Output. Lines are counted from 0 over all inputs; blank lines are skipped.
Log-probabilities are natural logarithms, over the whole vocabulary.
  on a terminal  a table, cut to its width, then the totals
  in a pipe      tab-separated, with a heading
  --json         one object per sentence: line, tokens, unknown,
                 forward_logprobs, backward_logprobs, end_logprob,
                 start_logprob, forward_total, backward_total,
                 forward_perplexity, backward_perplexity, perplexity;
                 with --top-k also places
  --totals       sums over all sentences, with and without
                 out-of-vocabulary words, as KenLM's query prints them
  --nbest        every line of a Moses n-best list
                 (id ||| hypothesis ||| ...) with one more field: the mean of
                 both directions' log-probabilities, to base 10

The perplexity of a sentence is the geometric mean of both directions. Out-of-vocabulary words are scored as <UNK>.

From a pipe or a terminal (-), each line is answered before the next one is read."""


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

    measured: dict[State, Perplexity] = {}
    with show_progress("loading the model") as shown, tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        from elmokit.readers.plain_text import reject_data_files
        from elmokit.score.perplexity import measure
        from elmokit.score.saved_lm import load_language_model
        from elmokit.text.lines import find_inputs
        from elmokit.text.preparation import prepare_corpus
        from elmokit.text.rules import TextRules

        reject_data_files(find_inputs(files))
        loaded = load_language_model(model)
        loaded.model.bilm.pack_weights()
        corpus = prepare_corpus(
            find_inputs(files),
            Path(folder) / "text",
            rules=TextRules(tokenized=tokenized, split=split, wrapped=wrapped, language=language),
            max_chars=loaded.model.bilm.config.char_encoder.max_chars,
            num_workers=num_workers(workers),
            progress=preparation_progress(shown),
        )
        for one in STATES if all_states else (state or "warm",):
            shown.begin(f"measuring {min(corpus.num_tokens, max_tokens or corpus.num_tokens):,} tokens, state {one}")
            measured[one] = measure(
                loaded.model, corpus, loaded.vocab, state=one, warm=loaded.start_state, max_tokens=max_tokens
            )
    print_perplexities(measured, as_json=as_json)
    if "carry" in measured:
        _warn_of_short_rows(measured["carry"].num_targets)


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
    totals: Annotated[bool, typer.Option("--totals", help="Print the totals of all sentences instead.")] = False,
    nbest: Annotated[
        bool, typer.Option("--nbest", help="Rescore a Moses n-best list of tokenized hypotheses.")
    ] = False,
    best: Annotated[bool, typer.Option("--best", help="With --nbest: print only the best hypothesis per id.")] = False,
    lm_weight: Annotated[
        float | None,
        typer.Option(metavar="W", help="With --best: rank by the list's total plus W times the new score."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per sentence.")] = False,
) -> None:
    """Print the log-probability of each line of a text.

    A line is one sentence. It is scored from the left and from the right.
    """
    if tokens and top_k is not None and not as_json:
        raise InputError("--tokens and --top-k are two tables; choose one, or --json, which has both")
    _check_nbest(nbest=nbest, best=best, lm_weight=lm_weight, others=tokens or totals or as_json or top_k is not None)
    check_model_folder(model)
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model", has_output=not totals) as shown:
        from elmokit.score.scoring import Scorer
        from elmokit.text.lines import find_inputs, read_lines
        from elmokit.text.rules import TextRules

        paths = find_inputs(files)
        lines = read_lines(paths)
        rules = TextRules(tokenized=tokenized, language=language)  # an unknown language raises before loading
        scorer = Scorer.from_pretrained(model, state=state)
        shown.begin("scoring", unit="sentences", work_unit="words")
        window_words = 1 if _is_answered_line_by_line(paths) else WINDOW_WORDS
        if nbest:
            _print_nbest(scorer, lines, window_words=window_words, only_best=best, lm_weight=lm_weight)
            return
        from elmokit.score.totals import ScoreTotals
        from elmokit.text.vocab import SPECIAL_WORDS

        _check_top_k(top_k, num_words=len(scorer.vocab) - len(SPECIAL_WORDS))

        sums = ScoreTotals()
        display = None if totals else display_for(choose_view(tokens=tokens, places=bool(top_k), as_json=as_json))
        for scored in _scored(scorer, _sentences(lines, rules.tokens), window_words=window_words, top_k=top_k):
            sums.add(scored.score)
            if display is not None:
                display.show(scored)
            shown.update(sums.num_sentences, work=sums.num_tokens)
    if not sums.num_sentences:
        print_message("warning: no sentences in the input")
    elif totals or (sys.stdout.isatty() and not as_json):
        print_totals(sums, as_json=as_json)


def _check_nbest(*, nbest: bool, best: bool, lm_weight: float | None, others: bool) -> None:
    if best and not nbest:
        raise InputError("--best chooses among the hypotheses of an n-best list; add --nbest")
    if lm_weight is not None and not best:
        raise InputError("--lm-weight ranks the hypotheses of an n-best list; add --nbest --best")
    if nbest and others:
        raise InputError("--nbest prints the lines of the list; leave out --tokens, --top-k, --totals and --json")


def _check_top_k(top_k: int | None, *, num_words: int) -> None:
    if top_k is not None and top_k > num_words:
        raise InputError(f"--top-k {top_k}; expected at most {num_words:,}, the words of the model")


def _is_answered_line_by_line(paths: list[str]) -> bool:
    """Return True if standard input is read and is no file: whoever writes there may wait for each answer."""
    from elmokit.text.lines import STDIN

    if STDIN not in paths:
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except OSError:  # replaced by an object without a file
        return False


def _print_nbest(
    scorer: "Scorer", lines: "Iterator[Line]", *, window_words: int, only_best: bool, lm_weight: float | None
) -> None:
    from elmokit.score.nbest import best_per_id, read_nbest, rescore

    rescored = rescore(scorer, read_nbest(lines), window_words=window_words)
    num_printed = 0
    for one in best_per_id(rescored, lm_weight=lm_weight) if only_best else rescored:
        typer.echo(one.line)
        num_printed += 1
    if not num_printed:
        print_message("warning: no hypotheses in the input")


def _sentences(lines: "Iterable[Line]", split: Callable[[str], list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the tokens of every line that has any."""
    for number, line in enumerate(lines):
        if tokens := split(line.text):
            yield number, tokens


def _scored(
    scorer: "Scorer", sentences: Iterable[tuple[int, list[str]]], *, window_words: int, top_k: int | None
) -> Iterator[ScoredLine]:
    """Score sentences, some ``window_words`` words at a time."""
    from elmokit.text.grouping import group_by_size
    from elmokit.text.vocab import SPECIAL_WORDS

    for window in group_by_size(sentences, size_of=lambda line: len(line[1]), enough=window_words):
        texts = [tokens for _, tokens in window]
        # The special words are predicted too, and then left out.
        places = scorer.predict(texts, top_k=top_k + len(SPECIAL_WORDS)) if top_k else [None] * len(texts)
        for (number, _), score, found in zip(window, scorer.score(texts), places, strict=True):
            yield ScoredLine(number, score, found and [place.without_special_words(top_k) for place in found])


def _warn_of_short_rows(num_targets: int) -> None:
    from elmokit.score.perplexity import NUM_ROWS, WARM_UP_STEPS

    if num_targets < NUM_ROWS * WARM_UP_STEPS:
        print_message(
            f"warning: state carry has {num_targets:,} targets in {NUM_ROWS} rows, {num_targets / NUM_ROWS:.1f} per "
            f"row, too few to carry a state; use {NUM_ROWS * WARM_UP_STEPS:,} targets or more, or another state"
        )
