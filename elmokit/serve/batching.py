"""One thread that owns the models, and a queue that joins the work of all clients into batches.

A request is a list of items that one function computes. The thread takes some items of every waiting request in turn,
so that a long request does not hold up a short one, and runs items of the same function together, longest first.

Clients that have just been answered often ask again at once. The thread waits for them a moment, because many sentences
in one batch take less time than the first of them alone and the others after it.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from elmokit.serve.metrics import Metrics
from elmokit.text.grouping import batches_by_length

BATCH_SIZE = 64
SHARE = 32  # items that a request may put into a batch before the next request has its turn

LINGER = 0.1  # time to wait for the clients that were answered together, as a share of the time their answers took
MOST_LINGER = 0.02  # seconds

RunItems = Callable[[list[Any]], list[Any]]
"""A function from items to their results, in the same order. Equal functions share batches."""

log = logging.getLogger("elmokit.serve")


@dataclass(eq=False)
class _Request:
    run: RunItems
    items: Sequence[Any]
    sizes: Sequence[int]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[list[Any]]"
    since: float = field(default_factory=time.perf_counter)
    num_taken: int = 0
    results: dict[int, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if every item has its result."""
        return len(self.results) == len(self.items)

    def deliver(self, error: BaseException | None = None) -> None:
        """Set the answer, in the event loop of the client."""
        if self.answer.done():  # the client has left, or has waited too long
            return
        if error is None:
            self.answer.set_result([self.results[index] for index in range(len(self.items))])
        else:
            self.answer.set_exception(error)


_Item = tuple[_Request, int]


class BatchingQueue:
    """Queue of work for the thread that owns the models.

    Args:
        batch_tokens: the summed size of the items that are run together at most.
        metrics: where waiting time, computing time and batch sizes are counted.
    """

    def __init__(self, *, batch_tokens: int, metrics: Metrics) -> None:
        self._batch_tokens, self._metrics = batch_tokens, metrics
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._num_answered = 0  # requests that the last round of batches has answered
        self._round_seconds = 0.0
        self._thread = threading.Thread(target=self._work, name="elmokit-model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is waiting, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    async def compute(self, run: RunItems, items: Sequence[Any], sizes: Sequence[int] | None = None) -> list[Any]:
        """Return the results of items, in their order.

        Args:
            run: the function that computes them. It must accept the items of several requests at once.
            items: the items of this request.
            sizes: their lengths in tokens; 1 each by default.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        request = _Request(run, items, sizes or [1] * len(items), loop, loop.create_future())
        with self._changed:
            self._waiting.append(request)
            self._metrics.queue_size.inc()
            self._changed.notify()
        return await request.answer

    def _work(self) -> None:
        while taken := self._take():
            start = time.perf_counter()
            by_function: dict[RunItems, list[_Item]] = {}
            for request, index in taken:
                by_function.setdefault(request.run, []).append((request, index))
            for run, items in by_function.items():
                sizes = [request.sizes[index] for request, index in items]
                batches = batches_by_length(sizes, batch_size=BATCH_SIZE, max_positions=max(self._batch_tokens, 1))
                for batch in batches:
                    chosen = [items[place] for place in batch]
                    self._run_batch(run, [item for item in chosen if not item[0].answer.done()])
            self._num_answered = sum(request.is_complete for request in {request for request, _ in taken})
            self._round_seconds = time.perf_counter() - start

    def _take(self) -> list[_Item]:
        """Wait for work; return the items of the next batches, or nothing when the queue is closed and empty."""
        with self._changed:
            self._linger()
            while True:
                taken: list[_Item] = []
                num_tokens = 0
                while self._waiting and num_tokens < self._batch_tokens:
                    request = self._waiting.popleft()
                    if request.answer.done():
                        self._metrics.queue_size.dec()
                        continue
                    if not request.num_taken:
                        self._metrics.queue_duration.observe(time.perf_counter() - request.since)
                    stop = min(request.num_taken + SHARE, len(request.items))
                    taken += [(request, index) for index in range(request.num_taken, stop)]
                    num_tokens += sum(request.sizes[request.num_taken : stop])
                    request.num_taken = stop
                    if stop < len(request.items):
                        self._waiting.append(request)
                    else:
                        self._metrics.queue_size.dec()
                if taken or self._is_closing:
                    return taken
                self._changed.wait()

    def _linger(self) -> None:
        """Wait a moment for the clients that were answered together to ask again."""
        if self._num_answered < 2:
            return
        until = time.perf_counter() + min(LINGER * self._round_seconds, MOST_LINGER)
        while len(self._waiting) < self._num_answered and not self._is_closing:
            left = until - time.perf_counter()
            if left <= 0:
                return
            self._changed.wait(left)

    def _run_batch(self, run: RunItems, batch: list[_Item]) -> None:
        if not batch:
            return
        start = time.perf_counter()
        try:
            results = run([request.items[index] for request, index in batch])
        except Exception as error:  # noqa: BLE001  the thread must outlive every error
            self._run_apart(run, batch, error)
            return
        self._metrics.inference_duration.observe(time.perf_counter() - start)
        self._metrics.batch_size.observe(len(batch))
        for (request, index), result in zip(batch, results, strict=True):
            request.results[index] = result
        _deliver(request for request in dict.fromkeys(request for request, _ in batch) if request.is_complete)

    def _run_apart(self, run: RunItems, batch: list[_Item], error: Exception) -> None:
        """Run each request of a failed batch by itself, so that only those at fault fail."""
        requests = list(dict.fromkeys(request for request, _ in batch))
        if len(requests) == 1:
            log.error("a batch of %d items failed: %s: %s", len(batch), type(error).__name__, error)
            requests[0].loop.call_soon_threadsafe(requests[0].deliver, error)
            return
        for one in requests:
            self._run_batch(run, [item for item in batch if item[0] is one])


def _deliver(requests: Iterable[_Request]) -> None:
    """Hand the results of requests to the event loops of their clients, each of which is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in requests:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, complete in by_loop.items():
        loop.call_soon_threadsafe(_set_answers, complete)


def _set_answers(requests: list[_Request]) -> None:
    for request in requests:
        request.deliver()
