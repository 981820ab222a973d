"""Ctrl-C twice while a progress bar is shown."""

import os
import pty
import subprocess
import sys

SCRIPT = """
import os, signal, threading, time
from rich.console import Console
from rich.progress import Progress
from elmokit.cli import stopping

stopping.SAME_WISH = 0.0
with Progress(console=Console(stderr=True)) as bar, stopping.stop_by_signal(threading.Event()) as listen:
    bar.add_task("a long one")
    listen()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""


def test_the_second_one_ends_at_once_and_leaves_the_terminal_with_its_cursor() -> None:
    terminal, other_end = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=other_end, env={**os.environ, "TERM": "xterm"})
    os.close(other_end)
    written = b""
    try:
        while part := os.read(terminal, 4096):
            written += part
    except OSError:  # how Linux says that nobody writes there any more
        pass
    os.close(terminal)
    assert process.wait(timeout=30) == 130
    assert b"Ctrl-C once more" in written
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")
