"""Display of neighbors: the word in its context on a terminal, tab-separated elsewhere, or JSON."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from elmokit.cli.printing import printable

if TYPE_CHECKING:
    from rich.text import Text

    from elmokit.analysis.neighbors import Neighborhood, StaticNeighbor
    from elmokit.analysis.occurrences import Occurrence

HEADINGS = ("query", "rank", "similarity", "line", "position", "token", "sentence")
STATIC = "static"
CUT = "…"
MIN_SIDE = 10  # columns on either side of the word, however narrow the terminal


@dataclass(frozen=True)
class Found:
    """Neighbors of a word; ``static`` is None if static neighbors were not requested."""

    word: str
    layer: int | str
    neighborhoods: "Sequence[Neighborhood]"
    static: "Sequence[StaticNeighbor] | None"


def show_neighbors(found: Found, *, as_json: bool) -> None:
    """Print neighbors in the format for stdout: a terminal, a pipe, or JSON."""
    if as_json:
        _print_json(found)
    elif sys.stdout.isatty():
        _print_tables(found)
    else:
        _print_tabs(found)


def _print_json(found: Found) -> None:
    for neighborhood in found.neighborhoods:
        record = {
            "word": found.word,
            "layer": found.layer,
            **_as_dict(neighborhood.query),
            "neighbors": [
                {"similarity": one.similarity, "token": one.occurrence.token, **_as_dict(one.occurrence)}
                for one in neighborhood.neighbors
            ],
        }
        if found.static is not None:
            record["static_neighbors"] = [{"similarity": one.similarity, "token": one.word} for one in found.static]
        typer.echo(json.dumps(record, ensure_ascii=False))


def _as_dict(occurrence: "Occurrence") -> dict[str, object]:
    return {"line": occurrence.sentence, "position": occurrence.position, "tokens": occurrence.tokens}


def _print_tabs(found: Found) -> None:
    """Print one row per neighbor; rank 0 is the query itself."""
    typer.echo("\t".join(HEADINGS))
    for rank, one in enumerate(found.static or (), start=1):
        typer.echo("\t".join((STATIC, str(rank), f"{one.similarity:.4f}", "", "", one.word, "")))
    for number, neighborhood in enumerate(found.neighborhoods, start=1):
        near = [(one.similarity, one.occurrence) for one in neighborhood.neighbors]
        for rank, (similarity, occurrence) in enumerate([(1.0, neighborhood.query), *near]):
            line = "" if occurrence.sentence is None else str(occurrence.sentence)
            where = line, str(occurrence.position), occurrence.token, " ".join(occurrence.tokens)
            typer.echo("\t".join((str(number), str(rank), f"{similarity:.4f}", *where)))


def _print_tables(found: Found) -> None:
    """Print one block per query with the words aligned; lines are cut to the terminal's width."""
    from rich.cells import cell_len
    from rich.console import Console

    console = Console(highlight=False)
    if found.static is not None:
        listed = ", ".join(f"{one.word} {one.similarity:.3f}" for one in found.static)
        console.print(_text("").append(printable(found.word), "bold").append(printable(f", in any context: {listed}")))
    for number, neighborhood in enumerate(found.neighborhoods):
        query, near = neighborhood.query, neighborhood.neighbors
        tokens = [query.token, *(one.occurrence.token for one in near)]
        widest = max(cell_len(printable(token)) for token in tokens)
        side = max((console.width - widest - len("similar    line  ")) // 2, MIN_SIDE)
        rows = [_row("", query, side, style="bold reverse")]
        rows += [_row(f"{one.similarity:.3f}", one.occurrence, side, style="bold") for one in near]
        if number or found.static is not None:
            console.print()
        console.print("similar    line", style="bold")
        for row in rows:
            console.print(row, no_wrap=True, overflow="ellipsis", crop=True)
        if not near:
            console.print("No neighbors outside the query's own sentence.")


def _row(similarity: str, occurrence: "Occurrence", side: int, *, style: str) -> "Text":
    """Return the word with as many whole tokens on either side as fit, and an ellipsis for the rest."""
    from rich.cells import cell_len

    before, after = occurrence.tokens[: occurrence.position], occurrence.tokens[occurrence.position + 1 :]
    left = " ".join(reversed(_fitting(before[::-1], side - 1)))
    right = " ".join(_fitting(after, side - 1))
    number = "" if occurrence.sentence is None else str(occurrence.sentence)
    row = _text(f"{similarity:>7}  {number:>6}  {'':{side - 1 - cell_len(left)}}{left} ")
    return row.append(printable(occurrence.token), style).append(f" {right}")


def _fitting(tokens: Sequence[str], width: int) -> list[str]:
    """Return the first tokens that fit into ``width`` columns, and an ellipsis if some do not."""
    from rich.cells import cell_len

    fitting: list[str] = []
    used = -1
    for left, token in zip(range(len(tokens) - 1, -1, -1), map(printable, tokens), strict=True):
        used += 1 + cell_len(token)
        if used + (len(f" {CUT}") if left else 0) > width:
            return [*fitting, CUT]
        fitting.append(token)
    return fitting


def _text(content: str) -> "Text":
    from rich.text import Text

    return Text(printable(content))
