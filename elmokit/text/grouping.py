"""Items in groups: batches of similar length, groups of a number, groups of a size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from elmokit.errors import InputError

Item = TypeVar("Item")


def batches_by_length(lengths: Sequence[int], *, batch_size: int, max_positions: int | None) -> list[list[int]]:
    """Group sentence indices into batches, the longest sentences first; equal lengths keep their order.

    A batch has at most ``batch_size`` sentences. Its padded area, sentences times the length of the longest, is at most
    ``max_positions``; None sets no bound. A longer sentence has a batch of its own. With the longest first, a lack of
    memory shows at the start, not after an hour.
    """
    _check_positive("batch_size", batch_size)
    if max_positions is not None:
        _check_positive("max_positions", max_positions)
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        too_large = max_positions is not None and batch and (len(batch) + 1) * lengths[batch[0]] > max_positions
        if len(batch) == batch_size or too_large:
            batches.append(batch)
            batch = []
        batch.append(index)
    if batch:
        batches.append(batch)
    return batches


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in order, ``size`` at a time; the last window can be shorter."""
    _check_positive("size", size)
    remaining = iter(items)
    return iter(lambda: list(islice(remaining, size)), [])


def group_by_size(
    items: Iterable[Item], *, size_of: Callable[[Item], int], enough: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield the items in order; a group ends when its sizes together reach ``enough``, or with ``max_items`` items."""
    group: list[Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= enough or len(group) == max_items:
            yield group
            group, size = [], 0
    if group:
        yield group


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} is {value}; it must be 1 or more")
