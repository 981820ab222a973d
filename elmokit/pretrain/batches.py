"""Training batches as tensors: the text of both directions, and its distinct words.

A batch depends only on the seed and its number. Every rank makes the whole batch and takes its rows.

Shapes: R rows of the whole batch, r of this rank, T unrolled steps, N = T r positions, time-major,
W distinct words, C ids per word (its characters, or its word id), K negatives.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.model.softmax import Candidates
from elmokit.pretrain.negatives import draw_negatives
from elmokit.text.corpus import Corpus
from elmokit.text.corpus_inputs import CorpusInputs
from elmokit.text.streams import Cursor, RowStreams
from elmokit.text.vocab import Vocab


@dataclass(frozen=True)
class DirectionBatch:
    """One direction's part of a batch."""

    words_N: Tensor  # index of the input among the batch's distinct words
    targets_N: Tensor  # vocabulary id of the next word
    candidates: Candidates | None  # negatives; None with the full softmax
    rows: Tensor | None  # softmax rows that get a gradient on any rank; None: all

    def to(self, device: torch.device) -> "DirectionBatch":
        """Return a copy on a device."""
        candidates = None
        if self.candidates is not None:
            candidates = Candidates(
                self.candidates.ids_K.to(device),
                self.candidates.log_expected_K.to(device),
                self.candidates.log_expected_targets_N.to(device),
            )
        rows = None if self.rows is None else self.rows.to(device)
        return DirectionBatch(self.words_N.to(device), self.targets_N.to(device), candidates, rows)


@dataclass(frozen=True)
class PretrainBatch:
    """Inputs and targets of one rank in one step."""

    step: int
    char_ids_WC: Tensor
    forward: DirectionBatch
    backward: DirectionBatch

    def to(self, device: torch.device) -> "PretrainBatch":
        """Return a copy on a device."""
        return PretrainBatch(self.step, self.char_ids_WC.to(device), self.forward.to(device), self.backward.to(device))


class PretrainBatches:
    """The batches of a run, from any step on."""

    def __init__(
        self,
        corpus: Corpus,
        vocab: Vocab,
        *,
        num_rows: int,
        unroll_steps: int,
        num_negatives: int | None,
        seed: int,
        rows: range,
        reads_words: bool = False,
    ) -> None:
        self._inputs = CorpusInputs(corpus, vocab if reads_words else None)
        self._num_words = len(vocab)
        self._target_of_word = corpus.target_ids(vocab).astype(np.int64)
        self._num_negatives = num_negatives
        self._seed = seed
        self._rows = rows
        self._streams = [
            RowStreams(corpus, direction=direction, num_rows=num_rows, unroll_steps=unroll_steps, seed=seed)
            for direction in ("forward", "backward")
        ]

    def cursors(self) -> list[Cursor]:
        """Return the positions of the rows of both directions."""
        return [stream.cursor() for stream in self._streams]

    def resume(self, cursors: list[Cursor]) -> None:
        """Continue from the positions of an earlier session."""
        for stream, cursor in zip(self._streams, cursors, strict=True):
            stream.resume(cursor)

    def __next__(self) -> PretrainBatch:
        step = self._streams[0].step
        texts = [next(stream) for stream in self._streams]
        mine = slice(self._rows.start, self._rows.stop)
        inputs = np.stack([text.input_ids_RU[mine].T for text in texts])
        distinct_W, places = np.unique(inputs, return_inverse=True)
        places = places.reshape(2, -1)
        forward, backward = (
            self._direction(step, index, places[index], self._target_of_word[text.target_ids_RU.T])
            for index, text in enumerate(texts)
        )
        char_ids_WC = torch.from_numpy(self._inputs.ids(distinct_W))
        return PretrainBatch(step, char_ids_WC, forward, backward)

    def _direction(
        self, step: int, index: int, places_N: NDArray[np.int64], all_targets_TR: NDArray[np.int64]
    ) -> DirectionBatch:
        targets_N = np.ascontiguousarray(all_targets_TR[:, self._rows.start : self._rows.stop]).reshape(-1)
        words = torch.from_numpy(places_N.astype(np.int64))
        if self._num_negatives is None:
            return DirectionBatch(words, torch.from_numpy(targets_N), None, None)
        drawn = draw_negatives(self._num_negatives, num_words=self._num_words, key=(self._seed, step, index))
        candidates = Candidates(
            torch.from_numpy(drawn.ids),
            torch.from_numpy(drawn.log_expected(drawn.ids).astype(np.float32)),
            torch.from_numpy(drawn.log_expected(targets_N).astype(np.float32)),
        )
        rows = torch.from_numpy(np.union1d(drawn.ids, all_targets_TR))
        return DirectionBatch(words, torch.from_numpy(targets_N), candidates, rows)
