"""What the command says to the user."""

import os
import sys
from contextlib import suppress

import typer


def say(message: str) -> None:
    """A message to the user, one line on stderr; one of several processes says which it is."""
    who = "" if is_first_process() else f"process {os.environ['RANK']}: "
    with suppress(OSError):  # nobody listens any more: no reason to end a night's work
        typer.echo(f"elmokit: {who}{' '.join(message.split())}", err=True)


def is_first_process() -> bool:
    """Whether this process speaks for all that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


def on_terminal() -> bool:
    """Whether someone may be looking, for whom a line can change in place."""
    return sys.stderr.isatty() and is_first_process()
