"""Signals in two steps: the first one asks a run to save and stop, the second one exits at once."""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from elmokit.cli.messages import is_first_process, print_message

INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"
FIRST_MESSAGE = "finishing the step, then saving; a second Ctrl-C exits at once, without a checkpoint"
SAME_REQUEST = 1.0  # seconds: torchrun passes on a Ctrl-C that its processes got from the terminal already
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stop_by_signal(stop: threading.Event) -> Iterator[Callable[[], None]]:
    """Yield a function that installs the handlers; from then on SIGINT, SIGTERM and SIGHUP set ``stop``.

    A signal that is ignored, as SIGHUP under ``nohup``, stays ignored.
    """
    first = 0.0
    before: dict[signal.Signals, object] = {}

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
            if is_first_process():
                # In a thread: the signal may come while the main thread writes to stderr, and a file that is being
                # written to raises if a handler writes to it as well. `threading` would take locks of the main thread.
                _thread.start_new_thread(print_message, (FIRST_MESSAGE,))
        elif time.monotonic() - first > SAME_REQUEST:
            terminal = sys.__stderr__  # older versions of rich replace sys.stderr by a file that is no terminal
            if terminal is not None and terminal.isatty():
                os.write(terminal.fileno(), SHOW_CURSOR)  # the live line has hidden it
            # Other threads may be in the middle of a step or a save, and nothing can interrupt them.
            os._exit(INTERRUPTED)

    def install() -> None:
        if before:
            return
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handle)

    try:
        yield install
    finally:
        for number, old in before.items():
            signal.signal(number, old)  # type: ignore[arg-type]
