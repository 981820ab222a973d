"""Messages to the user, on stderr."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import typer

_print_above_live_line: Callable[[str], None] | None = None


def print_message(message: str) -> None:
    """Print a message as one line on stderr. Ranks other than the first name themselves."""
    rank = "" if is_first_process() else f"process {os.environ['RANK']}: "
    line = f"elmokit: {rank}{' '.join(message.split())}"
    with suppress(OSError):  # a closed stderr must not end a long run
        if _print_above_live_line is not None:
            _print_above_live_line(line)
        else:
            typer.echo(line, err=True)


@contextmanager
def printed_by(print_above: Callable[[str], None]) -> Iterator[None]:
    """Let a live line print the messages, so that none lands in it."""
    global _print_above_live_line  # there is one terminal
    before, _print_above_live_line = _print_above_live_line, print_above
    try:
        yield
    finally:
        _print_above_live_line = before


def is_first_process() -> bool:
    """Return True in the process that prints for all that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


def on_terminal() -> bool:
    """Return True if stderr is a terminal where a line can change in place."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") and is_first_process()
