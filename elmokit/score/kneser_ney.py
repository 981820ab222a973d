"""An n-gram baseline: interpolated modified Kneser-Ney (Chen and Goodman 1998) without pruning.

The n-grams of a text are numbered order by order. An n-gram is one integer, packed from the number of its first n - 1
words and its last word; sorted, the n-grams of a context are adjacent. A text is one array of word ids in which every
sentence has a boundary at each end. The first boundary is context only and never predicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]  # of words, positions, n-grams; small, so that 100 million words fit in memory
Floats = NDArray[np.float64]

WORD_BITS = 20  # of a packed n-gram; the others are the number of its context
NUM_DISCOUNTS = 3  # for counts of 1, of 2, and of more
NOT_THERE = -1


@dataclass(frozen=True, eq=False)
class Stream:
    """A text as one array of word ids, and the position of each word in its sentence."""

    words: Ids
    places: Ids

    @property
    def targets(self) -> Ints:
        """Indices of the words that are predicted."""
        return np.flatnonzero(self.places > 0)


@dataclass(frozen=True, eq=False)
class _Order:
    """All n-grams of one length."""

    packed: Ints  # increasing
    counts: Ids
    discounts: Floats  # of counts of 0, 1, 2, and 3 or more
    totals: Floats  # of every context: the sum of its counts
    kept_back: Floats  # of every context: the sum of its discounts


@dataclass(frozen=True, eq=False)
class KneserNey:
    """Discounted counts of a text, from which word probabilities are computed."""

    orders: tuple[_Order, ...]
    num_words: int  # size of the vocabulary without the start of a sentence

    @classmethod
    def learn(cls, text: Stream, *, order: int, num_words: int) -> "KneserNey":
        """Count a text over ``num_words`` word ids, the boundaries' included."""
        if order < 1:
            raise InputError(f"order {order}; expected 1 or more")
        if not 1 < num_words <= 1 << WORD_BITS:
            raise InputError(f"{num_words:,} words; expected 2 to {1 << WORD_BITS:,}")
        if len(text.words) > np.iinfo(np.int32).max:
            raise InputError(f"a text of {len(text.words):,} words; expected at most {np.iinfo(np.int32).max:,}")
        orders = [_smooth(*counted) for counted in _count(text, order, num_words)]
        return cls(tuple(orders), num_words - 1)

    def log_probabilities(self, text: Stream) -> Floats:
        """Return the natural log-probability of each target, in the order of the text."""
        targets = text.targets
        probabilities = np.full(len(targets), 1.0 / self.num_words)
        numbers = np.zeros(len(text.words), dtype=np.int32)  # number of the context that ends before each position
        for length, order in enumerate(self.orders, start=1):
            if not len(order.packed):  # no training sentence is that long
                break
            contexts = numbers[targets - 1] if length > 1 else numbers[targets]
            found = _find(order.packed, _pack(contexts, text.words[targets]))
            known = (contexts != NOT_THERE) & (order.totals[contexts] > 0)
            counts = np.where(found != NOT_THERE, order.counts[found], 0)
            seen = counts - order.discounts[np.minimum(counts, NUM_DISCOUNTS)]
            there = contexts[known]
            shares = (seen[known] + order.kept_back[there] * probabilities[known]) / order.totals[there]
            probabilities[known] = shares
            numbers = _number(text, numbers, order.packed, length)
        logs: Floats = np.log(probabilities)
        return logs


def to_stream(corpus: Corpus, vocab: Vocab, *, reverse: bool = False) -> Stream:
    """Return a prepared text in vocabulary ids; ``reverse`` reverses it."""
    lengths = corpus.lengths.astype(np.int64)
    starts = corpus.offsets[:-1] + 2 * np.arange(corpus.num_sentences)
    words = np.empty(corpus.num_tokens + 2 * corpus.num_sentences, dtype=np.int32)
    words[starts], words[starts + lengths + 1] = vocab.bos_id, vocab.eos_id
    inside = np.ones(len(words), dtype=bool)
    inside[starts] = inside[starts + lengths + 1] = False
    words[inside] = corpus.target_ids(vocab)[corpus.tokens]
    places = (np.arange(len(words)) - np.repeat(starts, lengths + 2)).astype(np.int32)
    if not reverse:
        return Stream(words, places)
    last_places = np.repeat((lengths + 1).astype(np.int32), lengths + 2)
    return Stream(words[::-1].copy(), last_places[::-1] - places[::-1])


def _count(text: Stream, order: int, num_words: int) -> Iterator[tuple[Ints, Ids, int]]:
    """Yield for every order its n-grams, packed and sorted, their counts, and the number of contexts.

    Below the highest order, an n-gram is counted once per distinct word before it. At the start of a sentence there is
    no word before it, so each occurrence counts.
    """
    waiting: tuple[Ints, Ids, NDArray[np.bool_], Ids, int] | None = None
    numbers = np.zeros(len(text.words), dtype=np.int32)
    num_contexts = 1
    for length in range(1, order + 1):
        ends = np.flatnonzero(text.places >= length - 1)
        contexts = numbers[ends - 1] if length > 1 else numbers[ends]
        packed, first, counts, number = _distinct(_pack(contexts, text.words[ends]))
        if waiting is not None:
            below, raw, begins, before, num_below = waiting
            different = np.bincount(before[ends[first]], minlength=len(below)).astype(np.int32)
            yield below, np.where(begins, raw, different), num_below
        if length == 1:  # every word of the vocabulary has a number, seen or not
            packed, counts, number = _with_all_words(packed, counts, text.words, num_words)
            begins = np.zeros(num_words, dtype=bool)
            begins[text.words[:1]] = True
            counts[text.words[:1]] = 0  # never predicted
        else:
            begins = text.places[ends[first]] == length - 1
        numbers = np.full(len(text.words), NOT_THERE, dtype=np.int32)
        numbers[ends] = number
        waiting = packed, counts, begins, numbers, num_contexts
        num_contexts = len(packed)
    assert waiting is not None
    yield waiting[0], waiting[1], waiting[4]


def _pack(contexts: Ids, words: Ids) -> Ints:
    packed: Ints = contexts.astype(np.int64) << WORD_BITS
    packed |= words
    return packed


def _with_all_words(packed: Ints, counts: Ids, words: Ids, num_words: int) -> tuple[Ints, Ids, Ids]:
    all_counts = np.zeros(num_words, dtype=np.int32)
    all_counts[packed] = counts
    return np.arange(num_words), all_counts, words


def _distinct(values: Ints) -> tuple[Ints, Ints, Ids, Ids]:
    """Return the distinct values sorted, an index and the count of each, and the rank of every value."""
    by_size = np.argsort(values)
    rising = values[by_size]
    is_new = np.ones(len(values), dtype=bool)
    np.not_equal(rising[1:], rising[:-1], out=is_new[1:])
    firsts = np.flatnonzero(is_new)
    counts = np.diff(firsts, append=len(values)).astype(np.int32)
    number = np.empty(len(values), dtype=np.int32)
    number[by_size] = np.repeat(np.arange(len(firsts), dtype=np.int32), counts)
    return rising[firsts], by_size[firsts], counts, number


def _smooth(packed: Ints, counts: Ids, num_contexts: int) -> _Order:
    discounts = _discounts(counts)
    contexts = packed >> WORD_BITS
    return _Order(
        packed,
        counts,
        discounts,
        _sum_by(contexts, counts.astype(np.float64), num_contexts),
        _sum_by(contexts, discounts[np.minimum(counts, NUM_DISCOUNTS)], num_contexts),
    )


def _sum_by(contexts: Ints, values: Floats, num_contexts: int) -> Floats:
    return np.asarray(np.bincount(contexts, weights=values, minlength=num_contexts), dtype=np.float64)


def _discounts(counts: Ids) -> Floats:
    """Return the discounts of counts of 0, 1, 2, and 3 or more (Chen and Goodman's estimates)."""
    having = np.bincount(np.minimum(counts, NUM_DISCOUNTS + 2), minlength=NUM_DISCOUNTS + 3).astype(np.float64)
    if not having[1 : NUM_DISCOUNTS + 2].all():  # too little text for an estimate: the same for all
        return np.array([0.0, *[0.5] * NUM_DISCOUNTS])
    share = having[1] / (having[1] + 2 * having[2])
    estimates = [count - (count + 1) * share * having[count + 1] / having[count] for count in (1, 2, 3)]
    return np.array([0.0, *np.clip(estimates, 0.0, (1.0, 2.0, 3.0))])


def _find(rising: Ints, values: Ints) -> Ints:
    """Return the index of each value, or NOT_THERE."""
    places = np.minimum(np.searchsorted(rising, values), len(rising) - 1)
    return np.where(rising[places] == values, places, NOT_THERE)


def _number(text: Stream, numbers: Ids, packed: Ints, length: int) -> Ids:
    """Return the number of the n-gram that ends at each position, or NOT_THERE if it was never counted."""
    if length == 1:
        return text.words.copy()
    found = np.full(len(text.words), NOT_THERE, dtype=np.int32)
    ends = np.flatnonzero(text.places >= length - 1)
    ends = ends[numbers[ends - 1] != NOT_THERE]
    found[ends] = _find(packed, _pack(numbers[ends - 1], text.words[ends]))
    return found
