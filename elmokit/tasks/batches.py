"""Which examples meet in which batch, and how they become one.

The batches of an epoch follow from the seed and the epoch's number alone, so that a run can go on in the middle of one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.model.directions import single_core_threads
from elmokit.tasks.columns import ColumnMaker
from elmokit.tasks.recipe import TrainingSettings
from elmokit.tasks.task import AnyTask, Batch

BLUR = 0.1  # of a length, so that an example does not meet the same ones in every epoch
AHEAD = 2  # batches that are made while another one is learned from

# Draws for different ends come from different streams.
SUBSET, ORDER, VARIATION = range(3)

Key = TypeVar("Key")
Made = TypeVar("Made")


class TrainingBatches:
    """The batches of a run, each made when it is asked for by its number."""

    def __init__(
        self,
        task: AnyTask,
        examples: Sequence[Any],
        labels: FrozenConfig,
        columns: ColumnMaker,
        settings: TrainingSettings,
    ) -> None:
        self._task, self._examples, self._labels, self._columns = task, examples, labels, columns
        self._lengths = count_tokens(task, examples, source="training data")
        self._batch_size, self._seed = settings.batch_size, settings.seed
        self._epoch: int | None = None
        self._order: list[list[int]] = []
        self.per_epoch = num_batches(len(examples), self._batch_size)

    def make(self, step: int) -> Batch[Any]:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._order = epoch_batches(self._lengths, batch_size=self._batch_size, seed=self._seed, epoch=epoch)
            self._epoch = epoch
        examples = [self._visit(index, epoch) for index in self._order[place]]
        return make_batch(self._task, examples, self._labels, self._columns, with_labels=True)

    def _visit(self, index: int, epoch: int) -> Any:
        example = self._examples[index]
        return self._task.vary(example, np.random.default_rng((self._seed, VARIATION, epoch, index)))


def make_batch(
    task: AnyTask,
    examples: Sequence[Any],
    labels: FrozenConfig,
    columns: ColumnMaker,
    *,
    with_labels: bool,
) -> Batch[Any]:
    """Put examples side by side."""
    by_column = zip(*(task.sequences(example) for example in examples), strict=True)
    made = tuple(columns.make([tokens for part in parts for tokens in part]) for parts in by_column)
    return Batch(made, task.collate(examples, labels, labeled=with_labels))


def count_tokens(task: AnyTask, examples: Sequence[Any], *, source: str) -> list[int]:
    """How many tokens each example has, all its sequences together. One without any is refused; ``source`` names it."""
    lengths = []
    for number, example in enumerate(examples, start=1):
        of_sequences = [len(tokens) for column in task.sequences(example) for tokens in column]
        if not all(of_sequences):
            raise InputError(
                f"{source}: example {number} of {len(examples):,} has a sentence of no tokens; leave it out"
            )
        lengths.append(sum(of_sequences))
    return lengths


def choose_examples(lengths: Sequence[int], settings: TrainingSettings) -> list[int]:
    """The examples to learn from, in their order: none too long, and a random part of them if that is asked for.

    Of two parts by the same seed the smaller is within the larger.
    """
    short = [
        index for index, length in enumerate(lengths) if settings.max_tokens is None or length <= settings.max_tokens
    ]
    if not short:
        found = f"the shortest of {len(lengths):,} has {min(lengths)}" if lengths else "there are none at all"
        limit = "" if settings.max_tokens is None else f" of at most {settings.max_tokens} tokens (training.max_tokens)"
        raise InputError(f"no training examples{limit}; {found}")
    if settings.max_examples is None or settings.max_examples >= len(short):
        return short
    order = np.random.default_rng((settings.seed, SUBSET)).permutation(len(short))
    return sorted(short[place] for place in order[: settings.max_examples])


def num_batches(num_examples: int, batch_size: int) -> int:
    """Of an epoch."""
    return -(-num_examples // batch_size)


def epoch_batches(lengths: Sequence[int], *, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Every example once, in shuffled batches of like length; no batch is larger than another by more than one.

    A rest of a few examples as the last batch would have as much weight as a whole batch.
    """
    chance = np.random.default_rng((seed, ORDER, epoch))
    blurred = np.asarray(lengths) * chance.uniform(1 - BLUR, 1 + BLUR, size=len(lengths))
    batches = np.array_split(np.argsort(blurred, kind="stable"), num_batches(len(lengths), batch_size))
    return [batches[place].tolist() for place in chance.permutation(len(batches))]


def prefetched(make: Callable[[Key], Made], keys: Iterable[Key]) -> Iterator[Made]:
    """Yield ``make(key)`` for every key, in order; the next ones are made meanwhile, on one thread of their own."""
    with single_core_threads(1) as thread:
        waiting: deque[Future[Made]] = deque()
        try:
            for key in keys:
                waiting.append(thread.submit(make, key))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
