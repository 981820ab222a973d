"""Negative samples for the softmax: log-uniform, all distinct, as TensorFlow draws them.

A vocabulary is sorted by decreasing count. Word k is drawn with P(k) = ln((k + 2) / (k + 1)) / ln(V + 1), which is
about its frequency in text by Zipf's law. Draws repeat until exactly ``count`` distinct words are found; the expected
number of times that a word is among them is then 1 - (1 - P(k))^tries.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError


@dataclass(frozen=True)
class Negatives:
    """Distinct words, and the number of draws that found them."""

    ids: NDArray[np.int64]
    num_tries: int
    num_words: int  # in the vocabulary

    def log_expected(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln of the expected number of times that each word is drawn."""
        return log_expected_counts(ids, num_tries=self.num_tries, num_words=self.num_words)


def draw_negatives(count: int, *, num_words: int, key: tuple[int, ...]) -> Negatives:
    """Draw ``count`` distinct words; the same ``key`` gives the same words on every rank."""
    if not 0 < count <= num_words:
        raise InputError(f"{count} distinct negatives from {num_words} words; use the full softmax instead")
    # The bits depend on the key alone. A later numpy may derive other numbers from them, and `exp` may round
    # differently on another machine.
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    drawn = np.empty(0, dtype=np.int64)
    while True:
        uniform = rng.random(2 * count)
        drawn = np.append(drawn, np.minimum(np.exp(uniform * np.log1p(num_words)).astype(np.int64) - 1, num_words - 1))
        new = _first_times(drawn, num_words)
        if len(new) >= count:
            break
    new = new[:count]
    return Negatives(drawn[new], num_tries=int(new[-1]) + 1, num_words=num_words)


def _first_times(drawn: NDArray[np.int64], num_words: int) -> NDArray[np.int64]:
    """Return the indices of the draws that found a word for the first time."""
    time = np.arange(len(drawn))
    first = np.empty(num_words, dtype=np.int64)
    first[drawn[::-1]] = time[::-1]  # numpy keeps the last of several values for one index: here the earliest draw
    return np.flatnonzero(first[drawn] == time)


def log_expected_counts(ids: NDArray[np.int64], *, num_tries: int, num_words: int) -> NDArray[np.float64]:
    """Return ln(1 - (1 - P(k))^tries) for every id, accurate also for small probabilities."""
    probability = np.log1p(1.0 / (ids + 1.0)) / np.log1p(num_words)
    expected: NDArray[np.float64] = np.log(-np.expm1(num_tries * np.log1p(-probability)))
    return expected
