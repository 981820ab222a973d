"""Embed a Ray Data set, on one machine or many.

`EmbedBatch` is a callable that Ray sends to its workers. It holds only plain values; each worker loads the model.

Shapes: N rows, T tokens, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.picking import Layer, Pooling, check_pooling
from elmokit.embed.sentences import Sentence
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.integrations.loading import load_embedder
from elmokit.kernels.stack import Precision
from elmokit.weights.source import Source

Batch = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class EmbedBatch:
    """A callable that adds a column of vectors to a batch.

    Use it as ``dataset.map_batches(EmbedBatch("model-folder"), batch_size=256)``.

    Args:
        source: A model, as `Embedder.from_pretrained` takes it; the workers must be able to load it.
        column: Column of texts, or of lists of tokens.
        output: New column: one vector per row, (width,), pooled over all tokens of the text. With ``pool=None`` one
            vector per token, (tokens, width); a text is then one sentence.
        layer: Layer to return, or ``"mean"`` of all.
        pool: ``"mean"`` or ``"max"`` over tokens, or None for vectors of tokens.
        state: State in which a sentence starts, ``"warm"`` or ``"reset"``.
        precision: ``"fp32"``, ``"int8"`` or ``"bf16"``.
        language: Language of raw text, for the tokenizer.
        device: Device of the model on each worker.
    """

    source: Source
    column: str = "text"
    output: str = "embedding"
    layer: Layer = "mean"
    pool: Pooling | None = "mean"
    state: State = "warm"
    precision: Precision = "fp32"
    language: str = "en"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.pool is not None:
            check_pooling(self.pool)
        if self.state == "carry":
            raise InputError("state is 'carry', but Ray's batches have no fixed order; use 'reset' or 'warm'")

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its vectors."""
        if self.column not in batch:
            raise InputError(f"the data has no column {self.column!r}; its columns are {', '.join(batch)}")
        sentences = [_as_sentence(value, self.column) for value in batch[self.column]]
        # Ray runs many tasks per process, and every task has its own copy of the callable.
        embedder = load_embedder(
            self.source, state=self.state, precision=self.precision, language=self.language, device=self.device
        )
        if self.pool is not None:
            return batch | {self.output: embedder.encode(sentences, layer=self.layer, pooling=self.pool)}
        vectors = np.empty(len(sentences), dtype=object)
        vectors[:] = embedder.embed_tokens(sentences, layer=self.layer)
        return batch | {self.output: vectors}


def _as_sentence(value: object, column: str) -> Sentence:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | Sequence):
        return value
    raise InputError(f"column {column!r} holds {value!r}; expected texts or lists of tokens")
