"""The queue joins the work of clients, answers each with its own results, and is fair."""

import asyncio
import threading
import time

import pytest

from elmokit.serve import batching
from elmokit.serve.batching import SHARE, BatchingQueue
from elmokit.serve.metrics import Metrics


class Doubler:
    """Doubles numbers, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_run = threading.Event()
        self.may_run.set()

    def run(self, items: list[int]) -> list[int]:
        self.may_run.wait()
        self.batches.append(items)
        if -1 in items:
            raise ValueError("minus one")
        return [2 * item for item in items]


@pytest.fixture
def queue():
    started = BatchingQueue(batch_tokens=256, metrics=Metrics())
    started.start()
    yield started
    started.close()


def test_each_request_gets_its_own_results_in_order(queue):
    doubler = Doubler()

    async def ask_all() -> list[list[int]]:
        return await asyncio.gather(
            *(queue.compute(doubler.run, range(k, k + 40), [1 + i % 7 for i in range(40)]) for k in range(0, 400, 10))
        )

    for k, found in zip(range(0, 400, 10), asyncio.run(ask_all()), strict=True):
        assert found == [2 * item for item in range(k, k + 40)]


def test_waiting_requests_are_joined_and_sorted_by_length(queue):
    doubler = Doubler()
    doubler.may_run.clear()

    async def ask() -> None:
        first = asyncio.ensure_future(queue.compute(doubler.run, [0]))
        await asyncio.sleep(0.05)  # the thread is busy with it now
        others = [asyncio.ensure_future(queue.compute(doubler.run, [size], [size])) for size in (3, 9, 5)]
        await asyncio.sleep(0.05)
        doubler.may_run.set()
        await asyncio.gather(first, *others)

    asyncio.run(ask())
    assert doubler.batches == [[0], [9, 5, 3]]


def test_a_long_request_does_not_hold_up_a_short_one(queue):
    doubler, order = Doubler(), []
    doubler.may_run.clear()

    async def ask(name: str, items: range) -> None:
        await queue.compute(doubler.run, items, [16] * len(items))
        order.append(name)

    async def both() -> None:
        long = asyncio.ensure_future(ask("long", range(40 * SHARE)))
        await asyncio.sleep(0.02)
        short = asyncio.ensure_future(ask("short", range(1)))
        await asyncio.sleep(0.02)
        doubler.may_run.set()
        await asyncio.gather(long, short)

    asyncio.run(both())
    assert order == ["short", "long"]


def test_an_error_fails_only_the_request_that_caused_it(queue):
    doubler = Doubler()
    doubler.may_run.clear()

    async def ask() -> list[object]:
        first = asyncio.ensure_future(queue.compute(doubler.run, [7]))
        await asyncio.sleep(0.02)
        others = [asyncio.ensure_future(queue.compute(doubler.run, items)) for items in ([1, 2], [3, -1], [4])]
        await asyncio.sleep(0.02)
        doubler.may_run.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, good, bad, also_good = asyncio.run(ask())
    assert (first, good, also_good) == ([14], [2, 4], [8])
    assert isinstance(bad, ValueError)


def test_an_abandoned_request_is_not_computed(queue):
    doubler = Doubler()
    doubler.may_run.clear()

    async def ask() -> None:
        first = asyncio.ensure_future(queue.compute(doubler.run, [0]))
        await asyncio.sleep(0.02)
        abandoned = asyncio.ensure_future(queue.compute(doubler.run, [1]))
        await asyncio.sleep(0.02)
        abandoned.cancel()
        await asyncio.sleep(0)
        doubler.may_run.set()
        await first
        assert await queue.compute(doubler.run, [2]) == [4]

    asyncio.run(ask())
    assert doubler.batches == [[0], [2]]


def test_closing_finishes_what_is_waiting():
    queue, doubler = BatchingQueue(batch_tokens=8, metrics=Metrics()), Doubler()
    queue.start()
    doubler.may_run.clear()

    async def ask() -> list[int]:
        waiting = asyncio.ensure_future(queue.compute(doubler.run, range(50)))
        await asyncio.sleep(0.02)
        closing = threading.Thread(target=queue.close)
        closing.start()
        time.sleep(0.02)
        doubler.may_run.set()
        return await waiting

    assert asyncio.run(ask()) == [2 * item for item in range(50)]


def test_clients_that_were_answered_together_are_waited_for(queue, monkeypatch):
    monkeypatch.setattr(batching, "LINGER", 10.0)  # long enough for a busy machine
    monkeypatch.setattr(batching, "MOST_LINGER", 5.0)
    doubler = Doubler()

    def run(items: list[int]) -> list[int]:
        time.sleep(0.1)
        return doubler.run(items)

    async def ask_twice(item: int) -> None:
        await queue.compute(run, [item])
        await asyncio.sleep(0.03 * item)  # each comes back later than the one before
        await queue.compute(run, [item])

    async def ask() -> None:
        first = asyncio.ensure_future(queue.compute(run, [9]))
        await asyncio.sleep(0.02)  # the thread is busy with it now
        await asyncio.gather(first, *map(ask_twice, (1, 2, 3)))

    asyncio.run(ask())
    assert [sorted(batch) for batch in doubler.batches] == [[9], [1, 2, 3], [1, 2, 3]]


def test_nothing_more_is_computed_for_a_request_that_was_abandoned_in_the_middle(queue):
    doubler = Doubler()
    doubler.may_run.clear()

    async def ask() -> None:
        abandoned = asyncio.ensure_future(queue.compute(doubler.run, range(SHARE), [200] * SHARE))
        await asyncio.sleep(0.02)  # the thread is busy with its first batch now
        abandoned.cancel()
        await asyncio.sleep(0)
        doubler.may_run.set()
        assert await queue.compute(doubler.run, [1]) == [2]

    asyncio.run(ask())
    assert doubler.batches == [[0], [1]]
