"""Output of a command on a terminal: as text without a real one, and as bytes with a pty."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import time

import pytest

from elmokit import cli


class Terminal(io.StringIO):
    """Standard output that a person looks at."""

    def isatty(self) -> bool:
        return True


def run_on_terminal(args: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that a terminal of 80 columns without colors shows."""
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert cli.run(args) == 0
    return terminal.getvalue().splitlines()


def run_in_pty(code: str) -> list[tuple[float, bytes]]:
    """Run Python code whose stdout and stderr are a terminal; return what it wrote, with the times."""
    terminal, other_end = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=other_end, stderr=other_end, env=env)
    os.close(other_end)
    written: list[tuple[float, bytes]] = []
    with contextlib.suppress(OSError):  # how Linux says that nobody writes there any more
        while part := os.read(terminal, 4096):
            written.append((time.monotonic(), part))
    os.close(terminal)
    assert process.wait(timeout=30) == 0, b"".join(part for _, part in written).decode()
    return written


def screen(written: bytes) -> list[str]:
    """Return the lines of a terminal after these bytes. Of the control sequences, it knows those of a live line."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written.decode()):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif not part.startswith("\x1b"):
            old = lines[row].ljust(column)
            lines[row] = old[:column] + part + old[column + len(part) :]
            column += len(part)
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").split("\n")
