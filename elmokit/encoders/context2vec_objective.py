"""context2vec's training objective: tell the word of a context from words drawn at random."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encoders.context2vec import Context2Vec
from elmokit.encoders.recipe import Context2VecRecipe
from elmokit.encoders.sentences import (
    NumberedSentences,
    length_batches,
    negative_probabilities,
    num_batches,
)
from elmokit.encoders.state import BatchLoss
from elmokit.runs.seeds import seeded
from elmokit.text.vocab import Vocab

START, NEGATIVES = 0, 2  # keys of the streams that first weights and negatives are drawn from
DEV_SEED = 2**31  # of the dev set's negatives, which are the same in every evaluation


class ContextObjective:
    """Negative-sampling loss per token."""

    def __init__(
        self, recipe: Context2VecRecipe, vocab: Vocab, *, train: NumberedSentences, dev: NumberedSentences
    ) -> None:
        self._recipe, self._train, self._dev = recipe, train, dev
        self._cumulative = np.cumsum(negative_probabilities(train, len(vocab)))
        with seeded(recipe.training.seed, START):
            self.model = Context2Vec(
                len(vocab),
                (vocab.bos_id, vocab.eos_id),
                word_dim=recipe.word_dim,
                hidden_dim=recipe.hidden_dim,
                context_dim=recipe.context_dim,
            )
        self.steps_per_epoch = num_batches(train.lengths, recipe.training.batch_size)
        self._batches = lru_cache(1)(self._make_batches)
        self._fingerprints = {"train": train.fingerprint(), "dev": dev.fingerprint()}

    def loss(self, step: int) -> BatchLoss:
        """Return the mean loss per token of a batch."""
        epoch, index = divmod(step, self.steps_per_epoch)
        words_BT = torch.from_numpy(self._train.take(self._batches(epoch)[index]))
        negatives_BTK = self._draw(words_BT.shape, (self._recipe.training.seed, NEGATIVES, step))
        return BatchLoss(self.model.loss(words_BT, negatives_BTK), words_BT.numel(), 1.0)

    @torch.no_grad()
    def dev_loss(self) -> float:
        """Return the mean loss per token of the dev sentences."""
        total, num_tokens = 0.0, 0
        batches = length_batches(self._dev.lengths, self._recipe.training.batch_size, seed=0, epoch=0)
        for index, batch in enumerate(batches):
            words_BT = torch.from_numpy(self._dev.take(batch))
            negatives_BTK = self._draw(words_BT.shape, (DEV_SEED, index))
            total += float(self.model.loss(words_BT, negatives_BTK)) * words_BT.numel()
            num_tokens += words_BT.numel()
        return total / num_tokens

    def resume_key(self) -> dict[str, Any]:
        """Return the recipe without its files and its end, and fingerprints of the numbered sentences."""
        settings = self._recipe.model_dump(mode="json", exclude={"train", "dev"})
        for name in ("epochs", "hours", "min_learning_rate"):
            settings["training"].pop(name)
        return {"recipe": settings, "fingerprints": self._fingerprints}

    def _draw(self, shape: torch.Size, key: tuple[int, ...]) -> torch.Tensor:
        points = np.random.default_rng(key).random((*shape, self._recipe.num_negatives))
        found = np.searchsorted(self._cumulative, points * self._cumulative[-1], side="right")
        return torch.from_numpy(np.minimum(found, len(self._cumulative) - 1))

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        training = self._recipe.training
        return length_batches(self._train.lengths, training.batch_size, seed=training.seed, epoch=epoch)
