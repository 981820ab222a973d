"""Rows of sentences: against a plain oracle, across epochs, cursors and processes."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text.corpus import Corpus, CorpusMeta, CorpusSettings
from elmokit.text.streams import Cursor, Direction, RowStreams, ShuffledOrder, read_rows_once

directions = st.sampled_from(["forward", "backward"])
sentence_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12)
row_counts = st.integers(1, 5)
unrolls = st.integers(1, 30)


def make_corpus(lengths: list[int]) -> Corpus:
    """A corpus in which every token is another word, so that a word tells its sentence and its place."""
    num_tokens = sum(lengths)
    meta = CorpusMeta(
        fingerprint="",
        settings=CorpusSettings(tokenized=True, split=False, language="en", max_chars=3),
        sources=(),
        num_tokens=num_tokens,
        num_sentences=len(lengths),
        num_words=num_tokens,
        num_cut_words=0,
        words_bytes=0,
    )
    return Corpus(
        meta=meta,
        tokens=np.arange(num_tokens, dtype=np.uint32)[::-1].copy(),
        lengths=np.array(lengths, dtype=np.uint32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        counts=np.ones(num_tokens, dtype=np.int64),
        words_text=np.zeros(0, dtype=np.uint8),
        word_offsets=np.zeros(num_tokens + 1, dtype=np.int64),
        char_table=np.zeros((num_tokens + 2, 3), dtype=np.uint16),
    )


def with_boundaries(corpus: Corpus, index: int, direction: Direction) -> list[int]:
    words = [corpus.bos_id, *corpus.sentence(index).tolist(), corpus.eos_id]
    return words if direction == "forward" else words[::-1]


def sentence_order(corpus: Corpus, direction: Direction, seed: int) -> Iterator[int]:
    """The common sequence of sentences, read off a single row."""
    starts = {with_boundaries(corpus, i, direction)[1]: i for i in range(corpus.num_sentences)}
    for batch in RowStreams(corpus, direction=direction, num_rows=1, unroll_steps=50, seed=seed):
        for word, following in zip(batch.input_ids_RU[0].tolist(), batch.target_ids_RU[0].tolist(), strict=True):
            if word in (corpus.bos_id, corpus.eos_id):
                yield starts[following]


def packed_by_hand(sentences: Iterator[list[int]], num_rows: int, unroll_steps: int) -> Iterator[tuple[list, list]]:
    """Batches in the words of the specification: fill row by row, go on with the remainder in the next batch."""
    remainders: list[list[int]] = [[] for _ in range(num_rows)]
    while True:
        inputs: list[list[int]] = [[] for _ in range(num_rows)]
        targets: list[list[int]] = [[] for _ in range(num_rows)]
        for row in range(num_rows):
            while len(inputs[row]) < unroll_steps:
                if len(remainders[row]) < 2:
                    remainders[row] = next(sentences)
                inputs[row].append(remainders[row][0])
                targets[row].append(remainders[row][1])
                del remainders[row][0]
        yield inputs, targets


@pytest.mark.long
@given(sentence_lengths, directions, row_counts, unrolls, st.integers(0, 5))
def test_batches_are_those_packed_by_hand(lengths, direction, num_rows, unroll_steps, seed) -> None:
    corpus = make_corpus(lengths)
    order = sentence_order(corpus, direction, seed)
    sentences = (with_boundaries(corpus, index, direction) for index in order)
    by_hand = packed_by_hand(sentences, num_rows, unroll_steps)
    streams = RowStreams(corpus, direction=direction, num_rows=num_rows, unroll_steps=unroll_steps, seed=seed)
    # Enough batches for three epochs, and three in any case.
    num_batches = 3 + 3 * corpus.num_targets // (num_rows * unroll_steps)
    for batch, (inputs, targets) in zip(islice(streams, num_batches), by_hand, strict=False):
        assert batch.input_ids_RU.tolist() == inputs
        assert batch.target_ids_RU.tolist() == targets
        assert batch.mask_RU.shape == (num_rows, unroll_steps)
        assert batch.mask_RU.all()
    assert streams.step == num_batches


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_sentence_comes_once_an_epoch_and_in_another_order(direction: Direction) -> None:
    corpus = make_corpus([1, 2, 3] * 10)
    order = sentence_order(corpus, direction, seed=0)
    epochs = [list(islice(order, 30)) for _ in range(4)]
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_directions_and_seeds_are_shuffled_apart() -> None:
    corpus = make_corpus([1] * 30)
    orders = {
        tuple(islice(sentence_order(corpus, direction, seed), 30))
        for direction in ("forward", "backward")
        for seed in (0, 1)
    }
    assert len(orders) == 4


@pytest.mark.long
@given(sentence_lengths, directions, row_counts, unrolls, st.integers(0, 20))
def test_a_cursor_and_a_skip_go_on_with_the_same_batches(lengths, direction, num_rows, unroll_steps, step) -> None:
    corpus = make_corpus(lengths)

    def streams() -> RowStreams:
        return RowStreams(corpus, direction=direction, num_rows=num_rows, unroll_steps=unroll_steps, seed=3)

    unbroken = streams()
    for _ in range(step):
        next(unbroken)
    saved = json.loads(json.dumps(asdict(unbroken.cursor())))
    resumed, skipped, went_back = streams(), streams(), streams()
    resumed.resume(Cursor(**saved))
    skipped.skip_to(step)
    went_back.skip_to(step + 5)
    went_back.skip_to(step)
    assert skipped.cursor() == went_back.cursor() == unbroken.cursor()
    for expected in islice(unbroken, 5):
        for other in (resumed, skipped, went_back):
            batch = next(other)
            assert batch.input_ids_RU.tolist() == expected.input_ids_RU.tolist()
            assert batch.target_ids_RU.tolist() == expected.target_ids_RU.tolist()


@pytest.mark.long
@given(sentence_lengths, directions, st.integers(2, 6), unrolls, st.data())
def test_rows_hold_the_same_whoever_asks_for_them(lengths, direction, num_rows, unroll_steps, data) -> None:
    corpus = make_corpus(lengths)
    cut = data.draw(st.integers(1, num_rows - 1))

    def streams(rows: range | None) -> RowStreams:
        return RowStreams(corpus, direction=direction, num_rows=num_rows, unroll_steps=unroll_steps, seed=0, rows=rows)

    parts = streams(range(cut)), streams(range(cut, num_rows))
    for whole, first, second in islice(zip(streams(None), *parts, strict=True), 6):
        joined = np.concatenate([first.input_ids_RU, second.input_ids_RU])
        assert joined.tolist() == whole.input_ids_RU.tolist()
        joined = np.concatenate([first.target_ids_RU, second.target_ids_RU])
        assert joined.tolist() == whole.target_ids_RU.tolist()


def test_a_batch_can_hold_many_epochs() -> None:
    corpus = make_corpus([2, 1])
    streams = RowStreams(corpus, direction="forward", num_rows=3, unroll_steps=100, seed=0)
    batch = next(streams)
    assert sorted(np.unique(batch.target_ids_RU, return_counts=True)[1].tolist())[0] >= 59  # 3 words, 5 steps an epoch
    assert streams.epoch == 60


def test_epochs_are_counted_by_the_sentences_taken() -> None:
    corpus = make_corpus([4] * 10)  # 5 steps a sentence, 50 an epoch
    streams = RowStreams(corpus, direction="forward", num_rows=1, unroll_steps=5, seed=0)
    epochs = [streams.epoch for _ in islice(streams, 20)]
    assert epochs == [0] * 9 + [1] * 10 + [2]


@pytest.mark.long
@given(sentence_lengths, directions, row_counts, unrolls)
def test_a_text_read_once_is_packed_by_hand_too_and_nothing_is_dropped(
    lengths, direction, num_rows, unroll_steps
) -> None:
    corpus = make_corpus(lengths)
    nothing = -1
    sentences = [with_boundaries(corpus, index, direction) for index in range(len(lengths))]
    endless = iter([*sentences, *([nothing] * 2 for _ in range(10_000))])
    by_hand = packed_by_hand(endless, num_rows, unroll_steps)
    num_real = 0
    batches = read_rows_once(corpus, direction=direction, num_rows=num_rows, unroll_steps=unroll_steps)
    for batch, (inputs, targets) in zip(batches, by_hand, strict=False):
        assert np.where(batch.mask_RU, batch.input_ids_RU.astype(int), nothing).tolist() == inputs
        assert np.where(batch.mask_RU, batch.target_ids_RU.astype(int), nothing).tolist() == targets
        assert batch.mask_RU.any()
        num_real += int(batch.mask_RU.sum())
    assert num_real == corpus.num_targets


@given(st.integers(1, 500), st.integers(), directions, st.integers(0, 3))
def test_an_epoch_has_every_number_once(size, seed, direction, epoch) -> None:
    order = ShuffledOrder(size, seed=seed, direction=direction)
    assert sorted(order(np.arange(epoch * size, (epoch + 1) * size)).tolist()) == list(range(size))


def test_an_order_is_computed_place_by_place() -> None:
    order = ShuffledOrder(10_007, seed=5, direction="forward")
    numbers = np.array([10_006, 5, 20_013, 10_007])
    assert order(numbers).tolist() == order(np.arange(20_014))[numbers].tolist()


def test_an_order_stays_the_same_for_ever() -> None:
    small = ShuffledOrder(10, seed=0, direction="forward")
    assert small(np.arange(20)).tolist() == [1, 3, 7, 0, 2, 9, 6, 5, 4, 8, 0, 6, 8, 5, 3, 1, 4, 9, 2, 7]
    large = ShuffledOrder(2_600_000, seed=-7, direction="backward")
    assert large(np.arange(9_000_000, 9_000_003)).tolist() == [1650895, 532775, 288467]


def test_all_orders_are_about_as_frequent() -> None:
    num_epochs = 4800
    order = ShuffledOrder(4, seed=0, direction="forward")
    seen = Counter(map(tuple, order(np.arange(4 * num_epochs)).reshape(num_epochs, 4).tolist()))
    expected = num_epochs / 24
    chi_square = sum((seen[each] - expected) ** 2 / expected for each in permutations(range(4)))
    assert chi_square < 50  # 23 degrees of freedom: more than that once in a thousand


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_rows": 0}, "num_rows is 0; it must be 1 or more"),
        ({"unroll_steps": 0}, "unroll_steps is 0; it must be 1 or more"),
        ({"direction": "fwd"}, "direction is 'fwd'; it must be one of forward, backward"),
        ({"rows": range(2, 5)}, r"rows is range\(2, 5\); it must be a part of range\(4\)"),
        ({"rows": range(0)}, r"rows is range\(0, 0\)"),
        ({"rows": range(0, 4, 2)}, r"rows is range\(0, 4, 2\)"),
    ],
)
def test_impossible_streams_are_refused(changed: dict, message: str) -> None:
    arguments = {"direction": "forward", "num_rows": 4, "unroll_steps": 20, "seed": 0}
    with pytest.raises(InputError, match=message):
        RowStreams(make_corpus([3]), **{**arguments, **changed})


def test_a_cursor_of_other_streams_is_refused() -> None:
    corpus = make_corpus([3, 4])
    streams = RowStreams(corpus, direction="forward", num_rows=4, unroll_steps=2, seed=0)
    other = RowStreams(corpus, direction="forward", num_rows=3, unroll_steps=2, seed=0)
    with pytest.raises(InputError, match="the cursor has 3 rows, the streams 4"):
        streams.resume(other.cursor())
