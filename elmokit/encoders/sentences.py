"""Sentences to train context2vec on, as word ids of a vocabulary in lower case.

Shapes: N tokens of all sentences.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders.recipe import Context2VecRecipe
from elmokit.errors import InputError
from elmokit.text.lines import find_inputs, read_lines
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

UNIGRAM_POWER = 0.75

Progress = Callable[[int], None]
"""Called with the number of tokens read so far."""


@dataclass(frozen=True, eq=False)
class NumberedSentences:
    """Word ids of all sentences, one after the other."""

    ids_N: NDArray[np.int32]
    offsets: NDArray[np.int64]
    """Start of each sentence, and the end of the last."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per sentence."""
        return np.diff(self.offsets)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sentences of one length side by side."""
        return np.stack([self.ids_N[self.offsets[index] : self.offsets[index + 1]] for index in indices]).astype(
            np.int64
        )

    def fingerprint(self) -> str:
        """Return a hash of the numbers."""
        return hashlib.sha256(self.offsets.tobytes() + self.ids_N.tobytes()).hexdigest()


def read_sentences(
    files: Sequence[str], recipe: Context2VecRecipe, *, max_tokens: int | None, progress: Progress = lambda _: None
) -> Iterator[tuple[str, ...]]:
    """Yield the tokens of sentences in lower case, up to ``max_tokens`` in all; empty and long ones are left out."""
    num_tokens = 0
    rules = TextRules(tokenized=recipe.tokenized, language=recipe.language)
    for line in read_lines(find_inputs(list(files))):
        tokens = rules.tokens(line.text.lower())
        if not 0 < len(tokens) <= recipe.max_length:
            continue
        num_tokens += len(tokens)
        if max_tokens is not None and num_tokens > max_tokens:
            return
        yield tuple(tokens)
        progress(num_tokens)


def number_sentences(sentences: Iterable[Sequence[str]], vocab: Vocab) -> NumberedSentences:
    """Return sentences as numbers."""
    numbers: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    for sentence in sentences:
        numbers.append(np.array([vocab.id(word) for word in sentence], dtype=np.int32))
        lengths.append(len(sentence))
    if not numbers:
        raise InputError("no sentences to train on; expected text with one sentence per line")
    return NumberedSentences(np.concatenate(numbers), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def length_batches(lengths: NDArray[np.int64], batch_size: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the batches of an epoch as indices: of one length each, in random order, each index once."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    batches = [
        group[first : first + batch_size]
        for group in np.split(order, cuts)
        for first in range(0, len(group), batch_size)
    ]
    return [batches[index] for index in rng.permutation(len(batches))]


def num_batches(lengths: NDArray[np.int64], batch_size: int) -> int:
    """Return the number of batches per epoch."""
    _, counts = np.unique(lengths, return_counts=True)
    return int((-(-counts // batch_size)).sum())


def negative_probabilities(sentences: NumberedSentences, num_words: int) -> NDArray[np.float64]:
    """Return the distribution that negatives are drawn from: counts to the power 0.75."""
    counts = np.bincount(sentences.ids_N, minlength=num_words).astype(np.float64)
    weights = counts**UNIGRAM_POWER
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities
