"""One thread per direction of a biLM, each on one core.

A forked child runs both directions in one thread, and torch on one core: the threads of the parent, OpenMP's among
them, do not exist in the child, and the first operation that needed them would wait forever.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from elmokit.forking import call_in_children, renew_in_children

SPLIT_VALUES = 2**15  # in an operation that torch splits among threads

Found = TypeVar("Found")

_setting_threads = threading.Lock()
_left_behind: list[Executor] = []  # of a parent process; the end of such an executor would wait for its threads


class DirectionThreads:
    """The executor for both directions of one model; None on a GPU, with one core, and in a forked child."""

    def __init__(self, device: torch.device) -> None:
        self.executor = direction_executor() if device.type == "cpu" else None
        # Others than those of the directions: they wait for these.
        self._callers = None if self.executor is None else direction_executor()
        renew_in_children(self)

    def call_on_one_core(self, function: Callable[..., Found], *arguments: Any, num_values: int) -> Found:
        """Call a function that works on tensors of so many values without OpenMP threads.

        torch splits larger operations among these. They then wait busily for some milliseconds, on a core that a
        direction needs, and on a busy machine every such operation waits for the slowest of them.
        """
        if self._callers is None or num_values < SPLIT_VALUES:
            return function(*arguments)
        return self._callers.submit(function, *arguments).result()

    def renew_after_fork(self) -> None:
        """Drop the threads, which stayed in the parent."""
        _left_behind.extend(executor for executor in (self.executor, self._callers) if executor is not None)
        self.executor = self._callers = None


def direction_executor() -> Executor | None:
    """Start two threads of one core each, one per direction; None where torch is limited to one core."""
    with _setting_threads:
        num_threads = torch.get_num_threads()
    return single_core_threads(2) if num_threads > 1 else None


def single_core_threads(count: int) -> ThreadPoolExecutor:
    """Start threads on each of which torch uses one core.

    Otherwise each would start OpenMP threads of its own. With more of them than cores, OpenMP puts all threads to sleep
    between two operations, and small operations take several times as long.
    """
    with _setting_threads:
        num_threads = torch.get_num_threads()
        all_of_them = threading.Barrier(count + 1)

        def start() -> None:
            torch.get_num_threads()  # first: when it is asked, a thread takes the default, whatever it was told
            torch.set_num_threads(1)
            all_of_them.wait()

        executor = ThreadPoolExecutor(count, thread_name_prefix="elmokit", initializer=start)
        for _ in range(count):
            executor.submit(int)
        all_of_them.wait()
        torch.set_num_threads(num_threads)  # what a thread sets for itself is also the default of new threads
        return executor


@contextmanager
def direction_threads(device: torch.device) -> Iterator[Executor | None]:
    """Yield an executor with one thread per direction; None on a GPU, or where torch is limited to one core."""
    executor = direction_executor() if device.type == "cpu" else None
    try:
        yield executor
    finally:
        if executor is not None:
            executor.shutdown()


def _use_one_core() -> None:
    global _setting_threads
    _setting_threads = threading.Lock()
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


call_in_children(_use_one_core)


class _Partner:
    """One thread per core besides the caller's, started at first use, for callers without an executor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        renew_in_children(self)

    def get(self) -> Executor | None:
        """Return the threads; None where torch is limited to one core."""
        if torch.get_num_threads() < 2:
            return None
        with self._lock:
            if self._executor is None:
                self._executor = single_core_threads(torch.get_num_threads())
            return self._executor

    def renew_after_fork(self) -> None:
        """Drop the threads, which stayed in the parent."""
        self._lock = threading.Lock()
        if self._executor is not None:
            _left_behind.append(self._executor)
            self._executor = None


_partner = _Partner()


def core_threads(device: torch.device) -> Executor | None:
    """Return threads of one core each that the process shares; None on a GPU, or where torch is limited to one core."""
    return _partner.get() if device.type == "cpu" else None


def call_both(
    executor: Executor | None, function: Callable[..., None], forward: tuple[Any, ...], backward: tuple[Any, ...]
) -> None:
    """Make a C call for both directions in parallel: one on this thread, one on another, which sleeps in between.

    C calls let other Python threads run, so the two never wait for each other. ``executor`` is used if it is given.
    """
    executor = executor or _partner.get()
    if executor is None:
        function(*forward)
        function(*backward)
        return
    other = executor.submit(function, *backward)
    function(*forward)
    other.result()


def run_both(
    executor: Executor | None, function: Callable[..., Found], forward: tuple[Any, ...], backward: tuple[Any, ...]
) -> tuple[Found, Found]:
    """Call a function for both directions, in parallel if there is an executor."""
    if executor is None:
        return function(*forward), function(*backward)
    futures = executor.submit(function, *forward), executor.submit(function, *backward)
    return futures[0].result(), futures[1].result()
