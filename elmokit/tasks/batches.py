"""Batches of examples of similar length.

The batches of an epoch depend on the seed and the epoch alone, so that a run can be resumed within one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from elmokit.errors import InputError
from elmokit.model.directions import single_core_threads
from elmokit.tasks.recipe import TrainingSettings
from elmokit.tasks.task import AnyTask, Batch

if TYPE_CHECKING:
    from elmokit.tasks.task_model import TaskModel

BLUR = 0.1  # relative noise on lengths, so that batches differ between epochs
AHEAD = 2  # batches made while another one is trained on

# Random streams.
SUBSET, ORDER, VARIATION = range(3)

Key = TypeVar("Key")
Made = TypeVar("Made")


class TrainingBatches:
    """Batches of a run, each made when its step asks for it."""

    def __init__(self, model: "TaskModel", examples: Sequence[Any]) -> None:
        settings = model.recipe.training
        self._model, self._examples = model, examples
        self._lengths = count_tokens(model.task, examples, source="training data")
        self._batch_size, self._seed = settings.batch_size, settings.seed
        self._epoch: int | None = None
        self._order: list[list[int]] = []
        self.per_epoch = num_batches(len(examples), self._batch_size)

    def make(self, step: int) -> Batch[Any]:
        """Return the batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._order = epoch_batches(self._lengths, batch_size=self._batch_size, seed=self._seed, epoch=epoch)
            self._epoch = epoch
        examples = [self._vary(index, epoch) for index in self._order[place]]
        return self._model.make_batch(examples, labeled=True)

    def _vary(self, index: int, epoch: int) -> Any:
        rng = np.random.default_rng((self._seed, VARIATION, epoch, index))
        return self._model.task.vary(self._examples[index], rng)


def count_tokens(task: AnyTask, examples: Sequence[Any], *, source: str) -> list[int]:
    """Return the number of tokens per example; reject an empty sequence. ``source`` names the examples in errors."""
    lengths = []
    for number, example in enumerate(examples, start=1):
        of_sequences = [len(tokens) for column in task.sequences(example) for tokens in column]
        if not all(of_sequences):
            raise InputError(
                f"{source}: example {number} of {len(examples):,} has a sentence without tokens; leave it out"
            )
        lengths.append(sum(of_sequences))
    return lengths


def choose_examples(lengths: Sequence[int], settings: TrainingSettings) -> list[int]:
    """Return the indices of the examples to train on: none too long, and a random part if the settings ask for one.

    With the same seed, a smaller part is a subset of a larger one.
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
    """Return the number of batches per epoch."""
    return -(-num_examples // batch_size)


def epoch_batches(lengths: Sequence[int], *, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Return shuffled batches of similar length with every example once; their sizes differ by at most one.

    A small last batch would have as much weight as a full one.
    """
    chance = np.random.default_rng((seed, ORDER, epoch))
    blurred = np.asarray(lengths) * chance.uniform(1 - BLUR, 1 + BLUR, size=len(lengths))
    batches = np.array_split(np.argsort(blurred, kind="stable"), num_batches(len(lengths), batch_size))
    return [batches[place].tolist() for place in chance.permutation(len(batches))]


def prefetched(make: Callable[[Key], Made], keys: Iterable[Key]) -> Iterator[Made]:
    """Yield ``make(key)`` for every key, in order; the next ones are made meanwhile on a background thread."""
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
