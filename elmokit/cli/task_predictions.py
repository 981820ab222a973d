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
from elmokit.text.rules import TextRules

AT_ONCE = 256  # examples: enough to make good batches, few enough to be seen soon


@dataclass(frozen=True, eq=False)
class NumberedExample:
    """Example with the index of its line, counted from 0 over all inputs."""

    line: int
    example: Any


def load_models(task_name: str, folders: Sequence[Path]) -> list[LoadedTask]:
    """Load models of a task that are to decide together."""
    task, shared = get_task(task_name), SharedParts()
    return [load_task_model(folder, expected_task=task, shared=shared) for folder in folders]


def read_examples(
    task: AnyTask, lines: Iterable[Line], rules: TextRules, *, on_error: Callable[[InputError], None] | None = None
) -> Iterator[NumberedExample]:
    """Yield the examples of text; blank lines are skipped.

    An error names the file and the line. With ``on_error``, which receives it, reading continues with the next line.
    """
    for unit in _units(lines, by_paragraph=task.reads_paragraphs):
        try:
            examples = _read_unit(task, [line for _, line in unit], rules)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        for example in examples:
            yield NumberedExample(unit[0][0], example)


def _read_unit(task: AnyTask, lines: Sequence[Line], rules: TextRules) -> list[Any]:
    first = lines[0]
    place = f"{shown_path(first.path)}, line {first.number}"
    try:
        examples = task.read_text("\n".join(line.text for line in lines), rules)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    if any(not tokens for example in examples for column in task.sequences(example) for tokens in column):
        raise InputError(f"{place}: no words in {first.text[:80]!r}; leave the line out")
    return examples


def shown_path(path: str) -> str:
    """As a message names it."""
    return "standard input" if path == STDIN else path


def show(task: AnyTask, numbered: NumberedExample, prediction: Any, *, as_json: bool) -> None:
    """Print a prediction."""
    if as_json:
        said = {"line": numbered.line, **task.to_json(numbered.example, prediction)}
        for name in said.keys() & {"id", "document"}:  # of typed text the line is all the name there is
            del said[name]
        typer.echo(json.dumps(said, ensure_ascii=False))
        return
    shown = task.show(numbered.example, prediction)
    if sys.stdout.isatty():  # without what would move the cursor or change the terminal
        shown = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in shown)
    typer.echo(f"{shown}\n" if task.reads_paragraphs else shown)


def answer(
    models: Sequence[LoadedTask],
    examples: Iterable[NumberedExample],
    *,
    at_once: int = AT_ONCE,
    count: Callable[[int], None],
) -> Iterator[tuple[NumberedExample, Any]]:
    """Yield every example with the models' prediction; call ``count`` with the number done."""
    done = 0
    for window in windows(examples, at_once):
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
