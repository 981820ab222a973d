"""What task models say, window by window: of typed text and of labelled examples."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from elmokit.cli.messages import on_terminal
from elmokit.errors import InputError
from elmokit.tasks.evaluation import predict, predict_together
from elmokit.tasks.names import get_task
from elmokit.tasks.saved import LoadedTask, SharedParts, load_task_model
from elmokit.tasks.task import AnyTask
from elmokit.text.grouping import windows
from elmokit.text.lines import STDIN, Line
from elmokit.text.tokens import TextRules

AT_ONCE = 256  # examples: enough to make good batches, few enough to be seen soon
BY_PARAGRAPH = {"coref"}  # the tasks of which a line alone is no example
TEXT = {
    "coref": "running text, an empty line between documents",
    "ner": "a sentence a line",
    "snli": "a premise, a tab and a hypothesis a line",
    "squad": "a paragraph, a tab and a question a line",
    "srl": "a sentence a line, with stars around each predicate, as in: She *sold* it .",
    "sst": "a sentence a line",
}
"""What each task reads, in words."""


@dataclass(frozen=True, eq=False)
class Asked:
    """An example, and the number of its line, from 0 over all inputs."""

    line: int
    example: Any


def load_models(task_name: str, folders: Sequence[Path]) -> list[LoadedTask]:
    """Load models of a task that are to decide together."""
    task, shared = get_task(task_name), SharedParts()
    return [load_task_model(folder, expected_task=task, shared=shared) for folder in folders]


def read_asked(
    task: AnyTask, lines: Iterable[Line], rules: TextRules, *, refuse: Callable[[InputError], None] | None = None
) -> Iterator[Asked]:
    """The examples of text, blank lines left out; a line that cannot be read is told with its file and number.

    Whoever types can mend it at once: with ``refuse``, which is told, the next line is read.
    """
    for unit in _units(lines, by_paragraph=task.name in BY_PARAGRAPH):
        try:
            examples = _read_unit(task, [line for _, line in unit], rules)
        except InputError as error:
            if refuse is None:
                raise
            refuse(error)
            continue
        for example in examples:
            yield Asked(unit[0][0], example)


def _read_unit(task: AnyTask, lines: Sequence[Line], rules: TextRules) -> list[Any]:
    first = lines[0]
    place = f"{shown_path(first.path)}, line {first.number}"
    try:
        examples = list(task.read_text([line.text for line in lines], rules))
    except InputError as error:
        told = str(error)  # it counts from the first of the lines that it was given
        told = told.removeprefix("line 1") if told.startswith("line 1") else f": {told}"
        raise InputError(f"{place}{told}") from error
    if any(not tokens for example in examples for column in task.sequences(example) for tokens in column):
        raise InputError(f"{place}: no words in {first.text[:80]!r}; leave the line out")
    return examples


def shown_path(path: str) -> str:
    """As a message names it."""
    return "standard input" if path == STDIN else path


def show(task: AnyTask, asked: Asked, prediction: Any, *, as_json: bool) -> None:
    """Print a prediction."""
    if as_json:
        said = {"line": asked.line, **task.to_json(asked.example, prediction)}
        for name in said.keys() & {"id", "document"}:  # of typed text the line is all the name there is
            del said[name]
        typer.echo(json.dumps(said, ensure_ascii=False))
        return
    shown = task.show(asked.example, prediction)
    if sys.stdout.isatty():  # without what would move the cursor or change the terminal
        shown = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in shown)
    typer.echo(f"{shown}\n" if task.name in BY_PARAGRAPH else shown)


def answer(
    models: Sequence[LoadedTask], asked: Iterable[Asked], *, at_once: int = AT_ONCE, count: Callable[[int], None]
) -> Iterator[tuple[Asked, Any]]:
    """Yield every example with the models' prediction; ``count`` hears how many are done."""
    done = 0
    for window in windows(asked, at_once):
        yield from zip(window, _decide(models, [one.example for one in window]), strict=True)
        done += len(window)
        count(done)


@contextmanager
def count_shown(*, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield what shows on a terminal how many examples are done."""
    if not on_terminal():
        yield lambda _: None
        return
    from rich.console import Console

    start, of_all = time.monotonic(), "" if total is None else f" of {total:,}"
    with Console(stderr=True).status("predicting") as status:
        yield lambda done: status.update(
            f"{done:,}{of_all} examples, {done / (time.monotonic() - start):,.0f} examples/s"
        )


def _decide(models: Sequence[LoadedTask], examples: Sequence[Any]) -> list[Any]:
    first = models[0]
    batch_size = first.recipe.training.batch_size
    if len(models) > 1:
        return predict_together(models, examples, batch_size=batch_size)
    return predict(first.task, first.model, first.columns, first.labels, examples, batch_size=batch_size)


def _units(lines: Iterable[Line], *, by_paragraph: bool) -> Iterator[list[tuple[int, Line]]]:
    """Lines that belong together, with their numbers: each by itself, or those of a file between two blank ones."""
    unit: list[tuple[int, Line]] = []
    for number, line in enumerate(lines):
        if unit and line.number == 1:
            yield unit
            unit = []
        if line.text.strip():
            unit.append((number, line))
            if by_paragraph:
                continue
        if unit:
            yield unit
            unit = []
    if unit:
        yield unit
