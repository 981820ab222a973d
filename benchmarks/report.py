"""Results of a benchmark as one table: on the terminal, or as a Markdown page."""

import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from elmokit.runs import provenance


@dataclass(frozen=True)
class Row:
    """One row of the table, formatted; empty cells do not apply."""

    size: str
    what: str
    reference: str = ""
    elmokit: str = ""
    ratio: str = ""
    goal: str = ""
    met: str = ""


@dataclass(frozen=True)
class Report:
    """A table with its title and provenance."""

    title: str
    facts: dict[str, str]
    rows: list[Row]

    def print(self) -> None:
        """Print the table."""
        console = Console()
        if not console.is_terminal:  # a file or a pipe has no width
            console = Console(width=160)
        table = Table(*COLUMNS, title=self.title)
        for row in self.rows:
            table.add_row(*astuple(row))
        console.print(table)
        for name, value in self.facts.items():
            console.print(f"{name}: {value}", highlight=False, markup=False)

    def to_markdown(self) -> str:
        """Return the report as a Markdown page."""
        lines = [f"# {self.title}", "", *(f"- {name}: {value}" for name, value in self.facts.items()), ""]
        lines += [_markdown_row(COLUMNS), _markdown_row(["---"] * len(COLUMNS))]
        lines += [_markdown_row(astuple(row)) for row in self.rows]
        return "\n".join(lines) + "\n"


COLUMNS = [field.name for field in fields(Row)]


def spread(values: Sequence[float], form: str) -> str:
    """Format the median over rounds with minimum and maximum: ``2.1x (2.0x-2.2x)``."""
    middle, lowest, highest = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} ({lowest}-{highest})"


def judge(row: Row, goal: str, *, met: bool) -> Row:
    """Return the row with its goal, and whether it is met."""
    return replace(row, goal=goal, met="yes" if met else "NO")


def gather_facts(*, hidden: Path) -> dict[str, str]:
    """Return machine, versions, commit, date and command; the command shows only the name of the path ``hidden``."""
    words = (hidden.name if Path(word) == hidden else provenance.shown_word(word) for word in sys.argv)
    return provenance.gather_facts(["python", *words])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
