"""One thread per direction of a biLM, each on one core."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_setting_threads = threading.Lock()


def direction_executor() -> Executor | None:
    """Two threads of one core each, one a direction; none where torch is told to use one core."""
    with _setting_threads:
        num_threads = torch.get_num_threads()
    return single_core_threads(2) if num_threads > 1 else None


def single_core_threads(count: int) -> ThreadPoolExecutor:
    """Threads on each of which torch uses one core.

    Otherwise each would get helpers. Once there are more of them than cores, OpenMP lets all threads sleep between two
    operations, and the small ones of a whole program take several times as long.
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
    """A thread for each direction, each on one core; none where a GPU does the work, or torch may use one core only."""
    executor = direction_executor() if device.type == "cpu" else None
    try:
        yield executor
    finally:
        if executor is not None:
            executor.shutdown()


Found = TypeVar("Found")


def run_both(
    executor: Executor | None, function: Callable[..., Found], forward: tuple[Any, ...], backward: tuple[Any, ...]
) -> tuple[Found, Found]:
    """Call a function for both directions, at the same time if there are threads for it."""
    if executor is None:
        return function(*forward), function(*backward)
    futures = executor.submit(function, *forward), executor.submit(function, *backward)
    return futures[0].result(), futures[1].result()
