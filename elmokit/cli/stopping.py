"""Ctrl-C in two steps: the first asks, the second ends."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from elmokit.cli.messages import is_first_process, say

INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"
SAME_WISH = 1.0  # seconds. torchrun passes on a Ctrl-C that the terminal has sent to its processes already


@contextmanager
def stop_by_signal(stop: threading.Event) -> Iterator[Callable[[], None]]:
    """Yield what, once called, makes Ctrl-C and a plain ``kill`` set ``stop``; before that they end as ever."""
    first = 0.0
    before: dict[signal.Signals, object] = {}

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
            if is_first_process():
                say("finishing the step, then saving; Ctrl-C once more ends at once, without a checkpoint")
        elif time.monotonic() - first > SAME_WISH:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), SHOW_CURSOR)  # past a progress bar, which would keep it back
            # Other threads may be in the middle of a step or a save, and nothing can interrupt them.
            os._exit(INTERRUPTED)

    def install() -> None:
        if not before:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, handle)

    try:
        yield install
    finally:
        for number, old in before.items():
            signal.signal(number, old)  # type: ignore[arg-type]
