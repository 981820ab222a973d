"""Batches by length hold every sentence once and keep their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text.grouping import batches_by_length, group_by_size, windows

lengths_lists = st.lists(st.integers(0, 40), max_size=40)
bounds = st.none() | st.integers(1, 100)


@given(lengths_lists, st.integers(1, 8), bounds)
def test_every_sentence_is_in_one_batch_longest_first(lengths: list[int], batch_size: int, bound: int | None) -> None:
    batches = batches_by_length(lengths, batch_size=batch_size, max_positions=bound)
    order = [index for batch in batches for index in batch]
    assert order == sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    assert all(batches)


@given(lengths_lists, st.integers(1, 8), bounds)
def test_no_batch_is_over_its_bounds(lengths: list[int], batch_size: int, bound: int | None) -> None:
    for batch in batches_by_length(lengths, batch_size=batch_size, max_positions=bound):
        assert len(batch) <= batch_size
        area = len(batch) * max(lengths[index] for index in batch)
        assert bound is None or area <= bound or len(batch) == 1


@given(lengths_lists, st.integers(1, 8), bounds)
def test_no_batch_could_take_the_next_sentence(lengths: list[int], batch_size: int, bound: int | None) -> None:
    batches = batches_by_length(lengths, batch_size=batch_size, max_positions=bound)
    for batch in batches[:-1]:
        full = len(batch) == batch_size
        assert full or (bound is not None and (len(batch) + 1) * lengths[batch[0]] > bound)


def test_a_sentence_over_the_bound_has_a_batch_of_its_own() -> None:
    assert batches_by_length([2, 100, 3], batch_size=8, max_positions=6) == [[1], [2, 0]]


@pytest.mark.parametrize(("batch_size", "max_positions"), [(0, None), (-1, 5), (2, 0)])
def test_bounds_below_one_are_refused(batch_size: int, max_positions: int | None) -> None:
    with pytest.raises(InputError, match="must be 1 or more"):
        batches_by_length([1], batch_size=batch_size, max_positions=max_positions)


@given(st.lists(st.integers()), st.integers(1, 6))
def test_windows_keep_order_and_are_full_but_the_last(items: list[int], size: int) -> None:
    found = list(windows(iter(items), size))
    assert [item for window in found for item in window] == items
    assert all(len(window) == size for window in found[:-1])
    assert all(0 < len(window) <= size for window in found)


def test_windows_take_no_more_than_they_give() -> None:
    taken = []
    source = (taken.append(number) or number for number in range(100))
    assert next(windows(source, 3)) == [0, 1, 2]
    assert taken == [0, 1, 2]


def test_a_window_size_below_one_is_refused_at_the_call() -> None:
    with pytest.raises(InputError, match="size is 0"):
        windows([1], 0)


@pytest.mark.parametrize(
    ("items", "max_items", "groups"),
    [
        (["aa", "b", "cc", "dddd", "e"], None, [["aa", "b"], ["cc", "dddd"], ["e"]]),
        (["a", "b", "", "c", "d"], 2, [["a", "b"], ["", "c"], ["d"]]),
        (["", ""], None, [["", ""]]),
        ([], None, []),
    ],
)
def test_a_group_ends_when_it_is_large_enough(items: list[str], max_items: int | None, groups: list[list[str]]) -> None:
    assert list(group_by_size(iter(items), size_of=len, enough=3, max_items=max_items)) == groups
