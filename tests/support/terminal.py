"""What a command shows to a person."""

import contextlib
import io

import pytest

from elmokit import cli


class Terminal(io.StringIO):
    """Standard output that a person looks at."""

    def isatty(self) -> bool:
        return True


def run_on_terminal(args: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of 80 columns without colours shows."""
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert cli.run(args) == 0
    return terminal.getvalue().splitlines()
