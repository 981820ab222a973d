"""Pack sentences into rows of a fixed number of steps, without padding.

Each row of a batch is one endless stream: a sentence that does not fit goes on in the same row of the next batch,
where the LSTM's state of that row is carried over. Row after row takes the next sentence of one common sequence
whenever it has too little left. A sentence ``<S> w1 … wn </S>`` gives n + 1 steps: all but its last word are inputs,
all but its first are targets. Backward, the sentence is reversed first.

Nothing is drawn along the way: a batch follows from the corpus, the seed and its number alone. A sentence's
*number* is its place in the common sequence, and counts on from epoch to epoch.

Shapes: R rows, U steps of a row in a batch (unroll_steps), P pieces of sentences in a batch, N steps of them all.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.text.corpus import Corpus, WordIds

Direction = Literal["forward", "backward"]
Ints = NDArray[np.int64]
Order = Callable[[Ints], Ints]
"""Gives the sentences of the corpus that have some numbers."""

LENGTHS_AT_ONCE = 1 << 11
NUM_ROUNDS = 8


@dataclass(frozen=True)
class RowBatch:
    """One batch, in word ids of the corpus."""

    input_ids_RU: WordIds
    target_ids_RU: WordIds
    mask_RU: NDArray[np.bool_]
    """True for a real step. ``RowStreams`` has no other."""


@dataclass(frozen=True)
class Cursor:
    """Positions of the rows between two batches: plain numbers, saved with a checkpoint."""

    step: int
    """Batches made so far."""
    next_number: int
    """The next sentence that a row will take."""
    row_numbers: tuple[int, ...]
    """The last sentence that each row took."""
    steps_left: tuple[int, ...]
    """The part of that sentence that each row has not used yet."""


class RowStreams:
    """The batches of one direction, without end; in every epoch each sentence comes once, in a new order.

    ``rows`` are the rows wanted, all if None. They hold the same whether the others are wanted or not, so that
    several processes can share out one batch. Forward and backward are shuffled apart.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        direction: Direction,
        num_rows: int,
        unroll_steps: int,
        seed: int,
        rows: range | None = None,
    ) -> None:
        _check(direction, num_rows, unroll_steps)
        self.rows = range(num_rows) if rows is None else rows
        if self.rows.step != 1 or not 0 <= self.rows.start < self.rows.stop <= num_rows:
            raise InputError(f"rows is {rows}; it must be a part of range({num_rows}), without gaps")
        self._start = Cursor(0, 0, (0,) * num_rows, (0,) * num_rows)
        order = ShuffledOrder(corpus.num_sentences, seed=seed, direction=direction)
        self._packing = _Packing(corpus, order, unroll_steps, self._start)
        self._direction = direction

    @property
    def step(self) -> int:
        """The number of the next batch, counted from 0."""
        return self._packing.step

    @property
    def epoch(self) -> int:
        """The epoch of the next sentence, counted from 0."""
        return self._packing.next_number // self._packing.corpus.num_sentences

    def cursor(self) -> Cursor:
        """Return where the rows stand, for ``resume``."""
        return self._packing.cursor()

    def resume(self, cursor: Cursor) -> None:
        """Go on from a cursor of streams with the same corpus, direction, sizes and seed; ``rows`` may differ."""
        found, wanted = len(cursor.row_numbers), len(self._start.row_numbers)
        if found != wanted or len(cursor.steps_left) != wanted:
            raise InputError(f"the cursor has {found} rows, the streams {wanted}; resume with as many rows as before")
        self._packing.go_to(cursor)

    def skip_to(self, step: int) -> None:
        """Go to a batch by its number alone, which takes about a second for a million sentences."""
        if step < self.step:
            self._packing.go_to(self._start)
        while self.step < step:
            self._packing.advance()

    def __iter__(self) -> Iterator[RowBatch]:
        return self

    def __next__(self) -> RowBatch:
        pieces = self._packing.next_pieces(self.rows)
        all_real_P = np.ones(len(pieces.numbers_P), dtype=np.bool_)
        return _spell_out(self._packing.corpus, pieces, all_real_P, self._direction, len(self.rows))


def read_rows_once(corpus: Corpus, *, direction: Direction, num_rows: int, unroll_steps: int) -> Iterator[RowBatch]:
    """Yield every sentence once, in the order of the text, packed into rows in the same way.

    The rows end at different steps. What stands after a row's end is masked and has no meaning. No target is left
    out, so that perplexity does not depend on a last batch that happens to be full.
    """
    _check(direction, num_rows, unroll_steps)
    start = Cursor(0, 0, (0,) * num_rows, (0,) * num_rows)
    packing = _Packing(corpus, lambda numbers: numbers % corpus.num_sentences, unroll_steps, start)
    while True:
        pieces = packing.next_pieces(range(num_rows))
        real_P = pieces.numbers_P < corpus.num_sentences  # after them the text begins again
        batch = _spell_out(corpus, pieces, real_P, direction, num_rows)
        if not batch.mask_RU.any():
            return
        yield batch


class ShuffledOrder:
    """All of ``range(size)`` in every epoch, in an order of its own, computed place by place without memory.

    The same seed, epoch and direction give the same order for ever. numpy promises that for none of its shuffles,
    and a run must go on exactly after an upgrade. A place is split into two digits (high, low); each round adds to
    one digit a hash of the other, which can be undone, so no two places meet. The digits can hold a few numbers more
    than there are; what lands on one of those is shuffled again until it lands inside.
    """

    def __init__(self, size: int, *, seed: int, direction: Direction) -> None:
        self.size = size
        self._seed = seed
        self._direction = direction
        self._low_size = np.uint64(math.isqrt(size - 1) + 1)
        self._high_size = np.uint64(-(-size // int(self._low_size)))

    def __call__(self, numbers: Ints) -> Ints:
        """Return what has these numbers; number ``size`` is the first of the second epoch."""
        epochs, which_epoch = np.unique(numbers // self.size, return_inverse=True)
        keys = np.stack([self._round_keys(epoch) for epoch in epochs.tolist()])[which_epoch]
        found = self._shuffle((numbers % self.size).astype(np.uint64), keys)
        while (outside := found >= self.size).any():
            found[outside] = self._shuffle(found[outside], keys[outside])
        return found.astype(np.int64)

    def _round_keys(self, epoch: int) -> NDArray[np.uint64]:
        name = f"{self._seed}/{epoch}/{self._direction}"
        digest = hashlib.blake2b(name.encode(), digest_size=8 * NUM_ROUNDS).digest()
        return np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    def _shuffle(self, places: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        high, low = places // self._low_size, places % self._low_size
        for even in range(0, NUM_ROUNDS, 2):
            high = (high + _hash(low + keys[:, even]) % self._high_size) % self._high_size
            low = (low + _hash(high + keys[:, even + 1]) % self._low_size) % self._low_size
        return high * self._low_size + low


def _hash(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit values: the finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True)
class _Pieces:
    """Pieces of sentences that fill a batch, row by row."""

    numbers_P: Ints
    sentences_P: Ints
    first_steps_P: Ints
    num_steps_P: Ints


class _Packing:
    """Assignment of sentences to rows, from batch to batch."""

    def __init__(self, corpus: Corpus, order: Order, unroll_steps: int, start: Cursor) -> None:
        self.corpus = corpus
        self._order = order
        self._unroll_steps = unroll_steps
        self.go_to(start)

    def go_to(self, cursor: Cursor) -> None:
        self.step = cursor.step
        self.next_number = cursor.next_number
        self._row_numbers = list(cursor.row_numbers)
        self._steps_left = list(cursor.steps_left)
        self._steps_ahead = self._read_steps(cursor.next_number)

    def cursor(self) -> Cursor:
        return Cursor(self.step, self.next_number, tuple(self._row_numbers), tuple(self._steps_left))

    def advance(self) -> list[int]:
        """Fill all rows for one batch; return how many sentences each of them took."""
        unroll_steps, steps_ahead, all_left = self._unroll_steps, self._steps_ahead, self._steps_left
        all_taken = []
        # Plain Python: which sentence a row takes depends on the row before. A step costs some 30 microseconds.
        for row, left in enumerate(all_left):
            left -= unroll_steps
            taken = 0
            while left < 0:
                left += next(steps_ahead)
                taken += 1
            all_left[row] = left
            all_taken.append(taken)
            if taken:
                self.next_number += taken
                self._row_numbers[row] = self.next_number - 1
        self.step += 1
        return all_taken

    def next_pieces(self, rows: range) -> _Pieces:
        """Fill all rows for one batch; return what is in some of them."""
        wanted = slice(rows.start, rows.stop)
        left_before, numbers_before = self._steps_left[wanted], self._row_numbers[wanted]
        first_number = self.next_number
        all_taken = self.advance()
        first_number += sum(all_taken[: rows.start])

        # A row is what it had left (perhaps nothing), then the sentences it took, the last of them cut.
        pieces_R = np.array(all_taken[wanted]) + 1
        ends_R = np.cumsum(pieces_R)
        rows_P = np.repeat(np.arange(len(rows)), pieces_R)
        numbers_P = first_number + np.arange(len(rows_P)) - rows_P - 1
        numbers_P[ends_R - pieces_R] = numbers_before
        sentences_P = self._order(numbers_P)
        num_steps_P = self.corpus.lengths[sentences_P].astype(np.int64) + 1
        first_steps_P = np.zeros_like(num_steps_P)
        first_steps_P[ends_R - pieces_R] = num_steps_P[ends_R - pieces_R] - left_before
        num_steps_P -= first_steps_P
        num_steps_P[ends_R - 1] -= self._steps_left[wanted]
        return _Pieces(numbers_P, sentences_P, first_steps_P, num_steps_P)

    def _read_steps(self, number: int) -> Iterator[int]:
        """Yield how many steps each sentence gives, from a number on."""
        while True:
            sentences = self._order(np.arange(number, number + LENGTHS_AT_ONCE))
            yield from (self.corpus.lengths[sentences].astype(np.int64) + 1).tolist()
            number += LENGTHS_AT_ONCE


def _spell_out(
    corpus: Corpus, pieces: _Pieces, real_P: NDArray[np.bool_], direction: Direction, num_rows: int
) -> RowBatch:
    num_steps_P = pieces.num_steps_P
    starts_N = np.repeat(np.cumsum(num_steps_P) - num_steps_P - pieces.first_steps_P, num_steps_P)
    places_N = np.arange(len(starts_N)) - starts_N  # in <S> w1 … wn </S>, or in its reverse
    begins_N = np.repeat(corpus.offsets[pieces.sentences_P], num_steps_P)
    lasts_N = np.repeat(corpus.lengths[pieces.sentences_P].astype(np.int64) + 1, num_steps_P)
    if direction == "forward":
        inputs_N = _words_at(corpus, begins_N, lasts_N, places_N)
        targets_N = _words_at(corpus, begins_N, lasts_N, places_N + 1)
    else:
        inputs_N = _words_at(corpus, begins_N, lasts_N, lasts_N - places_N)
        targets_N = _words_at(corpus, begins_N, lasts_N, lasts_N - places_N - 1)
    shape = num_rows, len(places_N) // num_rows
    return RowBatch(inputs_N.reshape(shape), targets_N.reshape(shape), np.repeat(real_P, num_steps_P).reshape(shape))


def _words_at(corpus: Corpus, begins_N: Ints, lasts_N: Ints, places_N: Ints) -> WordIds:
    """Return the words at places of sentences that have ``<S>`` at place 0 and ``</S>`` at their last."""
    at_start_N, at_end_N = places_N == 0, places_N == lasts_N
    words_N = corpus.tokens[np.where(at_start_N | at_end_N, begins_N, begins_N + places_N - 1)]
    words_N[at_start_N] = corpus.bos_id
    words_N[at_end_N] = corpus.eos_id
    return words_N


def _check(direction: Direction, num_rows: int, unroll_steps: int) -> None:
    if direction not in get_args(Direction):
        raise InputError(f"direction is {direction!r}; it must be one of {', '.join(get_args(Direction))}")
    for name, value in (("num_rows", num_rows), ("unroll_steps", unroll_steps)):
        if value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more")
