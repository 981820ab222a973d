"""Which examples meet in which batch."""

import threading
from itertools import chain, count

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from task_models import make_batch
from torch import nn
from toy_task import RHYMES, Verse, VerseLabels, changed, recipe, verse, verses

from elmokit.errors import InputError
from elmokit.tasks.batches import TrainingBatches, choose_examples, count_tokens, epoch_batches, prefetched
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.recipe import TrainingSettings
from elmokit.tasks.task_model import TaskModel

LABELS = VerseLabels(tags=("plain", "rhyme"))


def maker(examples: list[Verse]) -> ColumnMaker:
    return ColumnMaker(recipe(), learn_inputs([one.tokens for one in examples], recipe()), vectors=None, layers=None)


def training_batches(examples: list[Verse], task=RHYMES, **training) -> TrainingBatches:
    model = TaskModel(task, recipe(**training), LABELS, maker(examples), nn.Module())
    return TrainingBatches(model, examples)


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=300),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 9),
)
def test_every_example_comes_once_in_an_epoch_in_even_batches(lengths, batch_size, seed, epoch):
    batches = epoch_batches(lengths, batch_size=batch_size, seed=seed, epoch=epoch)
    assert sorted(chain(*batches)) == list(range(len(lengths)))
    sizes = {len(batch) for batch in batches}
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    assert len(batches) == -(-len(lengths) // batch_size)


def test_an_epochs_order_follows_from_seed_and_number_alone():
    lengths = np.random.default_rng(0).integers(1, 30, size=200).tolist()

    def order(seed: int, epoch: int) -> list[list[int]]:
        return epoch_batches(lengths, batch_size=8, seed=seed, epoch=epoch)

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_an_example_meets_others_in_every_epoch_even_if_no_two_are_of_one_length():
    first, second = (epoch_batches(range(20, 90), batch_size=8, seed=0, epoch=epoch) for epoch in (0, 1))
    assert {frozenset(batch) for batch in first}.isdisjoint(frozenset(batch) for batch in second)


def test_batches_are_of_like_length_and_come_in_no_order_of_length():
    lengths = np.random.default_rng(0).integers(1, 100, size=4000)
    batches = epoch_batches(lengths.tolist(), batch_size=20, seed=0, epoch=0)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.1 * lengths.sum()
    means = [lengths[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


@given(small=st.integers(1, 40), large=st.integers(1, 60), seed=st.integers(0, 5))
def test_a_smaller_part_of_the_data_is_within_a_larger_one(small, large, seed):
    small, large = sorted((small, large))
    parts = [choose_examples([3] * 50, TrainingSettings(max_examples=size, seed=seed)) for size in (small, large)]
    assert set(parts[0]) <= set(parts[1])
    assert [len(part) for part in parts] == [min(50, small), min(50, large)]
    assert parts == [sorted(part) for part in parts]


def test_a_part_of_the_data_is_random_and_follows_from_the_seed():
    first, again, other = (choose_examples([3] * 500, TrainingSettings(max_examples=50, seed=s)) for s in (1, 1, 2))
    assert first == again
    assert first != other
    assert max(first) > 400


def test_long_examples_are_left_out_before_a_part_is_taken():
    lengths = [5, 50, 6, 60, 7]
    assert choose_examples(lengths, TrainingSettings(max_tokens=6)) == [0, 2]
    assert len(choose_examples(lengths, TrainingSettings(max_tokens=7, max_examples=3))) == 3


@pytest.mark.parametrize(
    ("lengths", "message"), [([9, 8], r"at most 7 tokens.*shortest of 2 has 8"), ([], "there are none at all")]
)
def test_nothing_left_to_learn_from_is_an_error(lengths, message):
    with pytest.raises(InputError, match=message):
        choose_examples(lengths, TrainingSettings(max_tokens=7))


def test_tokens_are_counted_over_all_columns_and_an_empty_sentence_is_named():
    pairs = changed(RHYMES, sequences=lambda pair: ([pair[0]], [pair[1]]))
    examples = [(["a", "b"], ["c"]), (["d"], ["e"])]
    assert count_tokens(pairs, examples, source="pairs") == [3, 2]
    with pytest.raises(InputError, match=r"pairs: example 2 of 2 has a sentence without tokens"):
        count_tokens(pairs, [examples[0], (["d"], [])], source="pairs")


def test_a_batch_has_the_sentences_of_each_column_of_all_its_examples():
    documents = changed(RHYMES, sequences=lambda one: ([one.tokens, one.tokens[:1]], [one.tokens[:2]]))
    examples = [verse("ba", "bo", "ka"), verse("le", "me")]
    batch = make_batch(documents, examples, LABELS, maker(examples), with_labels=False)
    assert [column.mask_BT.sum(dim=1).tolist() for column in batch.columns] == [[3, 1, 2, 1], [2, 2]]
    assert batch.target is None


def test_a_batch_of_training_is_the_same_whatever_was_made_before_it():
    examples = verses(30, seed=0)
    straight, other = training_batches(examples), training_batches(examples)
    assert straight.per_epoch == 4
    in_order = [straight.make(step) for step in range(9)]
    for step in (8, 0, 5):
        made, expected = other.make(step), in_order[step]
        assert torch.equal(made.target, expected.target)
        assert torch.equal(made.columns[0].spelling.chars_WK, expected.columns[0].spelling.chars_WK)


def test_a_visit_varies_with_seed_epoch_and_example_alone():
    seen: list[tuple[str, int]] = []

    def vary(example: Verse, chance: np.random.Generator) -> Verse:
        seen.append((example.tokens[0], int(chance.integers(2**40))))
        return example

    examples = [verse(word, word) for word in ("ba", "bo", "be", "da", "do")]
    task = changed(RHYMES, vary=vary)

    def draws(seed: int, batch_size: int, steps: range) -> dict[str, int]:
        seen.clear()
        batches = training_batches(examples, task, seed=seed, batch_size=batch_size)
        for step in steps:
            batches.make(step)
        return dict(seen)

    first_epoch = draws(1, 5, range(1))
    assert len(set(first_epoch.values())) == 5
    assert draws(1, 1, range(5)) == first_epoch
    assert set(draws(1, 5, range(1, 2)).values()).isdisjoint(first_epoch.values())
    assert set(draws(2, 5, range(1)).values()).isdisjoint(first_epoch.values())


def test_what_is_made_ahead_comes_in_order_and_on_one_other_thread():
    threads = set()

    def make(key: int) -> int:
        threads.add(threading.get_ident())
        return key * key

    assert list(prefetched(make, range(20))) == [key * key for key in range(20)]
    assert list(prefetched(make, [])) == []
    assert len(threads) == 1
    assert threads.isdisjoint({threading.get_ident()})


def test_a_failure_to_make_one_is_raised_in_its_place():
    def make(key: int) -> int:
        if key == 3:
            raise InputError("no such example")
        return key

    found = prefetched(make, range(9))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="no such example"):
        next(found)


def test_little_is_made_ahead_and_nothing_after_the_end():
    made: list[int] = []
    may_go_on = threading.Event()

    def make(key: int) -> None:
        made.append(key)
        if key:
            may_go_on.wait(10)

    num_threads = threading.active_count()
    found = prefetched(make, count())
    next(found)
    timer = threading.Timer(0.3, may_go_on.set)
    timer.start()
    found.close()
    timer.join()
    assert set(made) <= {0, 1}  # the one that was under way
    assert threading.active_count() == num_threads
