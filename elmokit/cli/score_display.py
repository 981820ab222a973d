"""Display of scored sentences: a table on a terminal, tab-separated elsewhere, or JSON."""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import typer

from elmokit.cli.printing import printable

if TYPE_CHECKING:
    from rich.text import Text

    from elmokit.score.perplexity import Perplexity
    from elmokit.score.results import Candidate, Place, SentenceScore
    from elmokit.score.totals import DirectionTotals, ScoreTotals

View = Literal["sentences", "tokens", "places", "json"]
SIDES = ("forward", "backward", "both")
DIGITS = 6  # after the decimal point, about the precision of float32

SENTENCE_NUMBERS = (
    *("end_logprob", "start_logprob", "forward_total", "backward_total"),
    *("forward_perplexity", "backward_perplexity", "perplexity"),
)
HEADINGS = {
    "sentences": ("line", "perplexity", "forward_total", "backward_total", "unknown", "sentence"),
    "tokens": ("line", "place", "token", "forward_logprob", "backward_logprob", "unknown"),
    "places": ("line", "place", "token", "rank", *(f"{side}{part}" for side in SIDES for part in ("", "_logprob"))),
}


@dataclass(frozen=True, eq=False)
class ScoredLine:
    """A scored sentence: the number of its line, its score, and the likeliest words in its places, if requested."""

    line: int
    score: "SentenceScore"
    places: "list[Place] | None"


class Display(Protocol):
    """Prints sentences one by one."""

    def show(self, scored: ScoredLine) -> None:
        """Print a sentence."""


def choose_view(*, tokens: bool, places: bool, as_json: bool) -> View:
    """Return the view that the options of ``score`` ask for."""
    if as_json:
        return "json"
    return "places" if places else "tokens" if tokens else "sentences"


def display_for(view: View) -> Display:
    """Return the display of a view for stdout: a terminal, or a pipe."""
    if view == "json":
        return JsonLines()
    return Tables(view) if sys.stdout.isatty() else TabSeparated(view)


class JsonLines:
    """Prints one object per line, with all numbers."""

    def show(self, scored: ScoredLine) -> None:
        """Print a sentence."""
        score = scored.score
        record: dict[str, Any] = {
            "line": scored.line,
            "tokens": score.tokens,
            "unknown": score.unknown.tolist(),
            "forward_logprobs": _rounded(score.forward_logprobs.tolist()),
            "backward_logprobs": _rounded(score.backward_logprobs.tolist()),
            **{name: round(getattr(score, name), DIGITS) for name in SENTENCE_NUMBERS},
        }
        if scored.places is not None:
            record["places"] = [
                {
                    side: [{"word": one.word, "logprob": round(one.logprob, DIGITS)} for one in getattr(place, side)]
                    for side in SIDES
                }
                for place in scored.places
            ]
        typer.echo(json.dumps(record, ensure_ascii=False))


class TabSeparated:
    """Prints tab-separated rows with a heading."""

    def __init__(self, view: View) -> None:
        self._rows = {"sentences": _sentence_row, "tokens": _token_rows, "places": _place_rows}[view]
        typer.echo("\t".join(HEADINGS[view]))

    def show(self, scored: ScoredLine) -> None:
        """Print a sentence."""
        for row in self._rows(scored):
            typer.echo("\t".join(row))


def _sentence_row(scored: ScoredLine) -> Iterator[Sequence[str]]:
    score = scored.score
    totals = f"{score.forward_total:.4f}", f"{score.backward_total:.4f}"
    yield str(scored.line), f"{score.perplexity:.2f}", *totals, str(int(score.unknown.sum())), " ".join(score.tokens)


def _token_rows(scored: ScoredLine) -> Iterator[Sequence[str]]:
    for place, (token, forward, backward, is_unknown) in enumerate(_steps(scored.score)):
        yield str(scored.line), str(place), token, forward, backward, "1" if is_unknown else "0"


def _steps(score: "SentenceScore") -> Iterator[tuple[str, str, str, bool]]:
    """Yield every token and its two log-probabilities.

    The first is ``<S>``, which only backward predicts; the last is ``</S>``, which only forward predicts.
    """
    from elmokit.text.chars import BOS_WORD, EOS_WORD

    yield BOS_WORD, "", f"{score.start_logprob:.4f}", False
    numbers = (score.forward_logprobs.tolist(), score.backward_logprobs.tolist(), score.unknown.tolist())
    for token, forward, backward, is_unknown in zip(score.tokens, *numbers, strict=True):
        yield token, f"{forward:.4f}", f"{backward:.4f}", is_unknown
    yield EOS_WORD, f"{score.end_logprob:.4f}", "", False


def _place_rows(scored: ScoredLine) -> Iterator[Sequence[str]]:
    # Places count from 1, as in the view of tokens, where 0 is the boundary.
    for number, place in enumerate(scored.places or (), start=1):
        ranked = zip(*(getattr(place, side) for side in SIDES), strict=True)
        for rank, candidates in enumerate(ranked, start=1):
            found = [part for one in candidates for part in (one.word, f"{one.logprob:.4f}")]
            yield str(scored.line), str(number), place.token, str(rank), *found


class Tables:
    """Prints one line or one table per sentence, for people."""

    def __init__(self, view: View) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._show = {"sentences": self._sentence, "tokens": self._tokens, "places": self._places}[view]
        if view == "sentences":
            self._console.print(f"{'':20}log-probability", style="bold", no_wrap=True)
            self._console.print("  line perplexity   forward  backward unknown  sentence", style="bold", no_wrap=True)

    def show(self, scored: ScoredLine) -> None:
        """Print a sentence."""
        self._show(scored)

    def _sentence(self, scored: ScoredLine) -> None:
        score = scored.score
        row = _text(
            f"{scored.line:>6} {score.perplexity:>10,.1f} {score.forward_total:>9,.1f} {score.backward_total:>9,.1f} "
            f"{int(score.unknown.sum()):>7}  "
        )
        self._console.print(row.append_text(_sentence_text(score)), no_wrap=True, overflow="ellipsis")

    def _tokens(self, scored: ScoredLine) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("token", overflow="fold")
        for heading in ("forward", "backward"):
            table.add_column(heading, justify="right", no_wrap=True)
        for token, forward, backward, is_unknown in _steps(scored.score):
            table.add_row(_text(token, is_dim=is_unknown), forward, backward)
        score = scored.score
        table.add_row("total", f"{score.forward_total:.4f}", f"{score.backward_total:.4f}", style="bold")
        table.add_row("perplexity", f"{score.forward_perplexity:,.2f}", f"{score.backward_perplexity:,.2f}")
        self._print_with_title(scored, table)

    def _places(self, scored: ScoredLine) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("token", "from the left", "from the right", "from both"):
            table.add_column(heading, overflow="fold")
        for place, is_unknown in zip(scored.places or (), scored.score.unknown.tolist(), strict=True):
            lists = ([_likely(one) for one in getattr(place, side)] for side in SIDES)
            table.add_row(_text(place.token, is_dim=is_unknown), *(_text("\n".join(lines)) for lines in lists))
        self._print_with_title(scored, table)

    def _print_with_title(self, scored: ScoredLine, table: Any) -> None:
        title = f"line {scored.line}, perplexity {scored.score.perplexity:,.1f}"
        self._console.print(title, style="bold")
        self._console.print(table)
        self._console.print()


def _sentence_text(score: "SentenceScore") -> "Text":
    """Return the sentence, with out-of-vocabulary words dimmed."""
    text = _text("")
    for token, is_unknown in zip(score.tokens, score.unknown.tolist(), strict=True):
        text.append_text(_text(token, is_dim=is_unknown)).append(" ")
    return text


def _likely(candidate: "Candidate") -> str:
    return f"{math.exp(candidate.logprob):>6.1%} {candidate.word}"


def _text(content: str, *, is_dim: bool = False) -> "Text":
    from rich.text import Text

    return Text(printable(content), style="dim" if is_dim else "")


def _rounded(numbers: list[float]) -> list[float]:
    return [round(number, DIGITS) for number in numbers]


def print_totals(totals: "ScoreTotals", *, as_json: bool) -> None:
    """Print totals with and without out-of-vocabulary words."""
    directions = {"forward": totals.forward, "backward": totals.backward}
    if as_json:
        record: dict[str, Any] = {
            "sentences": totals.num_sentences,
            "tokens": totals.num_tokens,
            "oov": totals.num_oov,
            "perplexity": round(totals.perplexity, DIGITS),
            "perplexity_without_oov": round(totals.perplexity_without_oov, DIGITS),
        }
        for name, sums in directions.items():
            record |= {f"{name}_{key}": round(value, DIGITS) for key, value in _direction_numbers(sums).items()}
        typer.echo(json.dumps(record))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("total", no_wrap=True)
    for heading in ("log10", "perplexity", "log10 w/o OOV", "perplexity w/o OOV"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, sums in directions.items():
        table.add_row(name, *(f"{number:,.2f}" for number in _direction_numbers(sums).values()))
    table.add_row("geometric mean", "", f"{totals.perplexity:,.2f}", "", f"{totals.perplexity_without_oov:,.2f}")
    console = Console(highlight=False)
    if sys.stdout.isatty():
        console.print()
    console.print(table)
    console.print(
        f"{totals.num_sentences:,} sentences, {totals.num_tokens:,} tokens, {totals.num_oov:,} out-of-vocabulary"
    )


def _direction_numbers(sums: "DirectionTotals") -> dict[str, float]:
    return {
        "log10": sums.log10,
        "perplexity": sums.perplexity,
        "log10_without_oov": sums.log10_without_oov,
        "perplexity_without_oov": sums.perplexity_without_oov,
    }


def print_perplexities(measured: "Mapping[Any, Perplexity]", *, as_json: bool) -> None:
    """Print one row or one JSON object per state."""
    if as_json:
        for state, one in measured.items():
            means = {"arithmetic_mean": one.arithmetic_mean, "geometric_mean": one.geometric_mean}
            typer.echo(json.dumps({"state": state, **asdict(one), "unknown_share": one.unknown_share, **means}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("state", no_wrap=True)
    for heading in ("forward", "backward", "mean", "geometric mean", "targets", "unknown"):
        table.add_column(heading, justify="right", no_wrap=True)
    for state, one in measured.items():
        numbers = (one.forward, one.backward, one.arithmetic_mean, one.geometric_mean)
        table.add_row(
            state, *(f"{number:,.2f}" for number in numbers), f"{one.num_targets:,}", f"{one.unknown_share:.1%}"
        )
    Console(highlight=False).print(table)
