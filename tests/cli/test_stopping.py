"""Signals that stop a run, also while a live line is shown."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import os, signal, threading, time
from rich.console import Console
from rich.progress import Progress
from elmokit.cli import stopping

stopping.SAME_REQUEST = 0.0
with Progress(console=Console(stderr=True)) as bar, stopping.stop_by_signal(threading.Event()) as listen:
    bar.add_task("a long one")
    listen()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""


def test_the_second_signal_exits_at_once_and_shows_the_cursor_again() -> None:
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
    assert b"a second Ctrl-C" in written
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")


WRITING = """
import sys, threading, time
from elmokit.cli import stopping

stop = threading.Event()
with stopping.stop_by_signal(stop) as install:
    install()
    print("ready", flush=True)
    sys.stderr.write("x" * 1_000_000 + "\\n")  # more than a pipe holds
    stop.wait(30)
    time.sleep(0.5)
    print("written")
"""


def test_a_signal_during_a_message_is_no_error() -> None:
    pipe = subprocess.PIPE
    env = os.environ | {"PYTHONUNBUFFERED": ""}  # else nothing is shared between the message and the handler
    with subprocess.Popen([sys.executable, "-c", WRITING], stdout=pipe, stderr=pipe, text=True, env=env) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)  # until it waits for a reader
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "written\n")
    assert "Traceback" not in err
    assert "finishing the step" in err


HANG_UP = """
import os, signal, threading
from elmokit.cli import stopping

signal.signal(signal.SIGHUP, signal.{before})
stop = threading.Event()
with stopping.stop_by_signal(stop) as install:
    install()
    os.kill(os.getpid(), signal.SIGHUP)
    print(stop.is_set())
"""


@pytest.mark.parametrize(("before", "stops"), [("SIG_DFL", True), ("SIG_IGN", False)])
def test_a_closed_terminal_stops_a_run_unless_nohup_ignores_it(before: str, stops: bool) -> None:
    code = HANG_UP.format(before=before)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"{stops}\n"


TWICE = """
import os, signal, threading, time
from elmokit.cli import stopping

stop = threading.Event()
before = [signal.getsignal(number) for number in stopping.SIGNALS]
with stopping.stop_by_signal(stop) as install:
    install()
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)  # at once: torchrun passes on what the terminal has sent already
    time.sleep(0.1)
    assert stop.is_set()
assert [signal.getsignal(number) for number in stopping.SIGNALS] == before
"""


def test_signals_that_come_together_are_one_request_and_handlers_are_restored() -> None:
    assert subprocess.run([sys.executable, "-c", TWICE], capture_output=True).returncode == 0
