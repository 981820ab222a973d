"""Pairs of sentences to train a translation model on, as numbers.

Source words are rows of static vectors; target words are those of a vocabulary, between boundary words.

Shapes: B pairs, T source tokens, S target words with both boundaries.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.encoders.recipe import CoVeRecipe
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError
from elmokit.text.lines import Line, find_inputs, read_lines
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

BATCHES_SORTED = 50  # batches whose pairs are sorted by length together

Part = Literal["train", "dev", "test"]
Progress = Callable[[int], None]
"""Called with the number of pairs read so far."""


@dataclass(frozen=True)
class TokenPair:
    """A source sentence and its translation, tokenized and in lower case where the recipe says so."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class NumberedPair:
    """A pair as rows of the source vectors, and as target ids with both boundaries."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]


@dataclass(frozen=True)
class PairBatch:
    """Pairs side by side, padded at the end."""

    rows_BT: Tensor
    mask_BT: Tensor
    words_BS: Tensor
    lengths: list[int]  # of the targets, boundaries included

    @property
    def num_targets(self) -> int:
        """Words to predict: all but the first boundary."""
        return sum(self.lengths) - len(self.lengths)


def read_pairs(recipe: CoVeRecipe, part: Part, *, progress: Progress = lambda _: None) -> list[TokenPair]:
    """Read and tokenize the training, dev or test pairs. Pairs with an empty side are left out.

    Target words are in lower case.
    """
    names = {
        "train": (recipe.source, recipe.target),
        "dev": (recipe.dev_source, recipe.dev_target),
        "test": (recipe.test_source, recipe.test_target),
    }[part]
    sources, targets = (read_lines(find_inputs(list(files))) for files in names)
    source_rules, target_rules = (TextRules(language=name) for name in (recipe.source_language, recipe.target_language))
    pairs: list[TokenPair] = []
    for number, (source, target) in enumerate(zip_lines(sources, targets, names), start=1):
        one = TokenPair(tuple(source_rules.tokens(source)), tuple(target_rules.tokens(target.lower())))
        if one.source and one.target:
            pairs.append(one)
        progress(number)
    if not pairs:
        raise InputError(f"no pairs of sentences in {', '.join([*names[0], *names[1]])}; expected one per line")
    return pairs


def zip_lines(
    sources: Iterator[Line], targets: Iterator[Line], names: Sequence[Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the texts of both sides; raise where one side has more lines than the other."""
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            longer, shorter = (names[1], names[0]) if source is None else (names[0], names[1])
            raise InputError(
                f"{', '.join(longer)}: more lines than {', '.join(shorter)}; expected one translation per line"
            )
        yield source.text, target.text


def number_pairs(
    pairs: Sequence[TokenPair], vectors: StaticVectors, vocab: Vocab, recipe: CoVeRecipe
) -> list[NumberedPair]:
    """Return pairs as numbers."""
    return [
        NumberedPair(
            vectors.rows(pair.source, lower=recipe.lower),
            np.array([vocab.bos_id, *map(vocab.id, pair.target), vocab.eos_id], dtype=np.int64),
        )
        for pair in pairs
    ]


def pad_pairs(pairs: Sequence[NumberedPair]) -> PairBatch:
    """Set pairs side by side."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    lengths_B = torch.tensor([len(source) for source in sources])
    return PairBatch(
        rows_BT=_pad(sources),
        mask_BT=torch.arange(int(lengths_B.max())) < lengths_B[:, None],
        words_BS=_pad(targets),
        lengths=[len(target) for target in targets],
    )


def epoch_batches(lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the batches of an epoch as indices: of like length, in random order, each index once."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    batches: list[NDArray[np.int64]] = []
    for first in range(0, len(order), batch_size * BATCHES_SORTED):
        window = order[first : first + batch_size * BATCHES_SORTED]
        window = window[np.argsort(sizes[window], kind="stable")]
        batches += [window[start : start + batch_size] for start in range(0, len(window), batch_size)]
    return [batches[index] for index in rng.permutation(len(batches))]


def pairs_fingerprint(pairs: Sequence[NumberedPair]) -> str:
    """Return a hash of the numbers that a model is trained on."""
    digest = hashlib.sha256()
    for pair in pairs:
        for numbers in (pair.source, pair.target):
            digest.update(len(numbers).to_bytes(4, "little"))
            digest.update(numbers.tobytes())
    return digest.hexdigest()


def _pad(rows: Sequence[NDArray[np.int64]]) -> Tensor:
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = torch.from_numpy(row)
    return padded
