"""Predictions of task models, window by window: for typed text and for labeled examples."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from elmokit.errors import InputError
from elmokit.tasks.names import get_task
from elmokit.tasks.saved import SharedParts, load_task
from elmokit.tasks.task import AnyTask
from elmokit.tasks.task_model import TaskModel, predict_examples, read_typed
from elmokit.text.grouping import windows
from elmokit.text.lines import STDIN, Line
from elmokit.text.rules import TextRules

AT_ONCE = 256  # examples: enough for full batches, few enough for a quick first result


@dataclass(frozen=True, eq=False)
class NumberedExample:
    """Example with the index of its line, counted from 0 over all inputs."""

    line: int
    example: Any


def load_models(task_name: str, folders: Sequence[Path]) -> list[TaskModel]:
    """Load the models of an ensemble."""
    task, shared = get_task(task_name), SharedParts()
    return [load_task(folder, expected_task=task, shared=shared) for folder in folders]


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
    try:
        return read_typed(task, "\n".join(line.text for line in lines), rules)
    except InputError as error:
        raise InputError(f"{shown_path(lines[0].path)}, line {lines[0].number}: {error}") from error


def shown_path(path: str) -> str:
    """Return a path as messages show it."""
    return "standard input" if path == STDIN else path


def show(task: AnyTask, numbered: NumberedExample, prediction: Any, *, as_json: bool, draw: bool = False) -> None:
    """Print a prediction."""
    if draw:
        values = task.to_json(numbered.example, prediction)
        if "drawing" not in values:
            raise InputError(f"--draw: predictions of {task.name} have no drawing; those of parse have")
        typer.echo(f"{values['drawing']}\n")
        return
    if as_json:
        values = {"line": numbered.line, **task.to_json(numbered.example, prediction)}
        for name in values.keys() & {"id", "document"}:  # typed text has no name but its line
            del values[name]
        typer.echo(json.dumps(values, ensure_ascii=False))
        return
    shown = task.show(numbered.example, prediction)
    if sys.stdout.isatty():  # control characters could move the cursor or change the terminal
        shown = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in shown)
    typer.echo(f"{shown}\n" if task.reads_paragraphs else shown)


def answer(
    models: Sequence[TaskModel],
    examples: Iterable[NumberedExample],
    *,
    at_once: int = AT_ONCE,
    count: Callable[[int], None],
) -> Iterator[tuple[NumberedExample, Any]]:
    """Yield every example with the models' prediction; call ``count`` with the number done."""
    done = 0
    for window in windows(examples, at_once):
        yield from zip(window, predict_examples(models, [one.example for one in window]), strict=True)
        done += len(window)
        count(done)


@contextmanager
def count_shown(*, total: int | None, has_output: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of examples done; see `show_progress`."""
    from elmokit.cli.progress import show_progress

    with show_progress("predicting", has_output=has_output) as progress:
        progress.begin("predicting", unit="examples", total=total)
        yield progress.update


def _units(lines: Iterable[Line], *, by_paragraph: bool) -> Iterator[list[tuple[int, Line]]]:
    """Yield lines that belong together, with their indices: single lines, or the paragraphs of a file."""
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
