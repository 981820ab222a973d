"""CoVe's training objective: translate sentence by sentence."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from elmokit.encoders.cove import CoVeEncoder
from elmokit.encoders.pairs import NumberedPair, PairBatch, epoch_batches, pad_pairs, pairs_fingerprint
from elmokit.encoders.recipe import CoVeRecipe
from elmokit.encoders.state import BatchLoss
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.encoders.translation import AttentionDecoder, TranslationModel
from elmokit.errors import InputError
from elmokit.runs.seeds import seeded

START = 0  # key of the stream that first weights are drawn from


class TranslationObjective:
    """Negative log-likelihood of target words, summed per pair."""

    def __init__(
        self,
        recipe: CoVeRecipe,
        vectors: StaticVectors,
        num_words: int,
        *,
        train: Sequence[NumberedPair],
        dev: Sequence[NumberedPair],
    ) -> None:
        self._recipe, self._dev = recipe, dev
        longest = recipe.max_length
        self._train = [pair for pair in train if len(pair.source) <= longest and len(pair.target) <= longest + 2]
        if not self._train:
            raise InputError(f"all {len(train):,} training pairs are longer than max_length = {longest}; raise it")
        self._matrix_VE = torch.from_numpy(vectors.matrix())
        with seeded(recipe.training.seed, START):
            encoder = CoVeEncoder(vectors.width, recipe.hidden_dim, dropout=recipe.dropout)
            decoder = AttentionDecoder(
                num_words, 2 * recipe.hidden_dim, embedding_dim=recipe.embedding_dim, dropout=recipe.dropout
            )
            self.model = TranslationModel(encoder, decoder)
        # Batches of one target length: the decoder computes on padding, the packed encoder does not.
        self._lengths = [len(pair.target) for pair in self._train]
        self._batches = lru_cache(1)(self._make_batches)
        self._fingerprints = {"train": pairs_fingerprint(self._train), "dev": pairs_fingerprint(dev)}

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""
        return -(-len(self._train) // self._recipe.training.batch_size)

    @property
    def num_pairs(self) -> int:
        """Training pairs that are short enough."""
        return len(self._train)

    def loss(self, step: int) -> BatchLoss:
        """Return the loss of a batch, summed over target words and averaged over pairs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        batch = pad_pairs([self._train[number] for number in self._batches(epoch)[index]])
        num_pairs = len(batch.lengths)
        loss = self.model.loss(self._vectors(batch), batch.mask_BT, batch.words_BS, batch.lengths)
        return BatchLoss(loss / num_pairs, batch.num_targets, num_pairs / batch.num_targets)

    def dev_loss(self) -> float:
        """Return the mean loss per target word of the dev pairs."""
        return self.corpus_loss(self._dev)

    @torch.no_grad()
    def corpus_loss(self, pairs: Sequence[NumberedPair]) -> float:
        """Return the mean loss per target word of any pairs, without dropout."""
        self.model.eval()
        order = sorted(range(len(pairs)), key=lambda number: len(pairs[number].source))
        size = self._recipe.training.batch_size
        total, num_targets = 0.0, 0
        for first in range(0, len(order), size):
            batch = pad_pairs([pairs[number] for number in order[first : first + size]])
            losses_N = self.model.target_losses(self._vectors(batch), batch.mask_BT, batch.words_BS, batch.lengths)
            total += float(losses_N.sum(dtype=torch.double))
            num_targets += batch.num_targets
        return total / num_targets

    def resume_key(self) -> dict[str, Any]:
        """Return the recipe without its files and its end, and fingerprints of the numbered pairs."""
        files = {"source", "target", "dev_source", "dev_target", "test_source", "test_target", "vectors"}
        settings = self._recipe.model_dump(mode="json", exclude=files)
        for name in ("epochs", "hours", "min_learning_rate"):
            settings["training"].pop(name)
        return {"recipe": settings, "fingerprints": self._fingerprints}

    def _vectors(self, batch: PairBatch) -> Tensor:
        return functional.embedding(batch.rows_BT, self._matrix_VE)

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        training = self._recipe.training
        return epoch_batches(self._lengths, training.batch_size, seed=training.seed, epoch=epoch)
