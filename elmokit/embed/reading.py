"""Tokenized sentences in batches through a biLM, and the vectors back in the order of the sentences.

Shapes: L layers of vectors, T tokens, D width, N tokens of a window's sentences one after the other.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from elmokit.embed.engine import Engine
from elmokit.embed.picking import Layer, Vectors, pick_layers
from elmokit.embed.state import StartStates
from elmokit.embed.worker_pool import EmbedderPool
from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.grouping import batches_by_length, group_by_size, windows

# Sentences sorted together to find batches of similar length: at most so many, or fewer whose vectors take this much.
WINDOW, WINDOW_BYTES = 4096, 96 * 2**20
MOST_POSITIONS = 4096  # in one batch: bounds memory whatever the sentences' length

Tokens = Sequence[str]


class Reader:
    """An engine with the states in which its batches start."""

    def __init__(self, engine: Engine, states: StartStates) -> None:
        self.engine, self.states = engine, states
        self.num_layers, self.width = engine.bilm.config.num_layers, engine.bilm.config.width
        self._warned = False

    def iter_layers(self, sentences: Iterable[Tokens], *, batch_size: int) -> Iterator[Vectors]:
        """Yield the layers of every sentence, (L, T, D), in order, reading the sentences as it goes."""
        for window in self._windows(sentences, batch_size):
            yield from self._read_window(window, batch_size)
        self._warn_of_cut_words()

    def iter_tokens(
        self, sentences: Iterable[Tokens], *, layer: Layer, batch_size: int, pool: EmbedderPool | None
    ) -> Iterator[Vectors]:
        """Yield one layer or the mean of all, (T, D), of every sentence, in order; by a pool if there is one."""
        if pool is None:
            found = self.iter_layers(sentences, batch_size=batch_size)
            yield from (pick_layers(layers_LTD, layer) for layers_LTD in found)
            return
        for window in self._windows(sentences, batch_size):
            batches = self._plan_batches(window, batch_size)
            computed = pool.map_batches([[window[index] for index in batch] for batch in batches], layer)
            vectors: dict[int, Vectors] = {}
            for batch, arrays in zip(batches, computed, strict=True):
                self.engine.cut_words.add({word for index in batch for word in window[index]})
                vectors.update(zip(batch, arrays, strict=True))
            yield from (vectors[index] for index in range(len(window)))
        self._warn_of_cut_words()

    def iter_unordered(self, sentences: Sequence[Tokens], *, batch_size: int) -> Iterator[tuple[int, Vectors]]:
        """Yield (index, layers) as they are computed. The layers of a batch are views of one array."""
        for batch in self._plan_batches(sentences, batch_size):
            yield from zip(batch, self.run_batch([sentences[index] for index in batch]), strict=True)

    def run_batch(self, batch: Sequence[Tokens]) -> list[Vectors]:
        """Return the layers of every sentence, (L, T, D), as views of one array."""
        run = self.engine.run(batch, self.states.begin(self.engine.bilm, len(batch)))
        self.states.end(run.ragged.final)
        layers_LND = run.ragged.layers_LND.cpu().numpy()
        ends = np.cumsum(run.lengths)
        return [layers_LND[:, end - length + 1 : end - 1] for end, length in zip(ends, run.lengths, strict=True)]

    def _windows(self, sentences: Iterable[Tokens], batch_size: int) -> Iterator[list[Tokens]]:
        if batch_size < 1:
            raise InputError(f"batch_size {batch_size}; expected 1 or more")
        if self.states.policy == "carry":
            return windows(sentences, batch_size)
        most_tokens = WINDOW_BYTES // (4 * self.num_layers * self.width)
        return group_by_size(sentences, size_of=len, enough=most_tokens, max_items=WINDOW)

    def _plan_batches(self, sentences: Sequence[Tokens], batch_size: int) -> list[list[int]]:
        # Rows that carry their state must meet in the order given; all others are batched by length.
        if self.states.policy == "carry":
            return list(windows(range(len(sentences)), batch_size))
        lengths = [len(sentence) + 2 for sentence in sentences]
        return batches_by_length(lengths, batch_size=batch_size, max_positions=MOST_POSITIONS)

    def _read_window(self, window: list[Tokens], batch_size: int) -> Iterator[Vectors]:
        # One block for the whole window: thousands of arrays that come and go between a batch's own would leave
        # holes in memory, and it would grow.
        ends = np.cumsum([len(sentence) for sentence in window])
        layers_LND = np.empty((self.num_layers, ends[-1], self.width), dtype=np.float32)
        places = [slice(end - len(sentence), end) for end, sentence in zip(ends, window, strict=True)]
        for index, layers_LTD in self.iter_unordered(window, batch_size=batch_size):
            layers_LND[:, places[index]] = layers_LTD
        for place in places:
            yield layers_LND[:, place].copy()

    def _warn_of_cut_words(self) -> None:
        message = self.engine.cut_words.message()
        if message and not self._warned:
            self._warned = True
            warnings.warn(message, ElmokitWarning, stacklevel=4)
