"""From a word's characters to its context-free token vector.

A model with a word table reads the word's id too: its vector stands before the filters in the projection's input.

Shapes: W words, C ids per word, K characters kept, E character width, F filters together, P width of a token vector.
"""

import math
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import CharEncoderConfig, WordTableConfig
from elmokit.kernels.library import Kernels
from elmokit.model.char_pool import TableCache, TablePool
from elmokit.model.highway import Highway
from elmokit.model.products import ProductCache, apply_linear, kernels_for, learns
from elmokit.model.uncompiled import uncompiled

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
BUCKET = 4  # words are grouped by length in steps of this many characters
WORDS_AT_ONCE = 512  # bounds the memory of the convolutions: filters x positions x words


class CharEncoder(nn.Module):
    """Character embedding, convolutions, max-pool, highways, projection: as in the published models."""

    def __init__(self, config: CharEncoderConfig, token_dim: int, *, words: WordTableConfig | None = None) -> None:
        super().__init__()
        self.config = config
        if config.filters:
            self.char_embedding = nn.Parameter(torch.empty(config.num_chars, config.char_dim))
        self.convs = nn.ModuleList(nn.Conv1d(config.char_dim, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highway))
        self.word_embedding = nn.Parameter(torch.empty(words.num_words, words.dim)) if words else None
        input_dim = (words.dim if words else 0) + config.num_filters
        self.projection = nn.Linear(input_dim, token_dim) if input_dim != token_dim else None
        self._products, self._tables = ProductCache(), TableCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as the original program does, but for words: Glorot's range for a long table is almost zero."""
        if self.config.filters:
            nn.init.uniform_(self.char_embedding, -1.0, 1.0)
        if self.word_embedding is not None:
            nn.init.uniform_(self.word_embedding, -1.0, 1.0)
        for weight, bias in self._filters():
            if self.config.activation == "relu":
                nn.init.uniform_(weight, -0.05, 0.05)
            else:
                nn.init.normal_(weight, std=math.sqrt(1.0 / (weight.shape[2] * self.config.char_dim)))
            nn.init.zeros_(bias)
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=math.sqrt(1.0 / self.projection.in_features))
            nn.init.zeros_(self.projection.bias)

    @uncompiled
    def forward(self, ids_WC: Tensor) -> Tensor:
        """Return the words' token vectors, (W, P)."""
        if self.word_embedding is None:
            inputs_WF = self._pool(ids_WC)
        else:
            inputs_WF = functional.embedding(ids_WC[:, 0] - 1, self.word_embedding)  # id 0 is padding
            if self.config.filters:
                inputs_WF = torch.cat([inputs_WF, self._pool(ids_WC[:, 1:])], dim=1)
        return inputs_WF if self.projection is None else apply_linear(self.projection, inputs_WF, self._products)

    def _pool(self, char_ids_WC: Tensor) -> Tensor:
        """Return the pooled filters after the highways, (W, F)."""
        # The kernel's tables are made for the 261 ids of bytes; those of a dictionary would not fit in a cache.
        kernels = kernels_for(self.char_embedding) if self.config.num_dictionary_chars is None else None
        pooled_WF = self._convolve(char_ids_WC) if kernels is None else self._look_up(char_ids_WC, kernels)
        for highway in self.highways:
            pooled_WF = highway(pooled_WF)
        return pooled_WF

    def pack_weights(self) -> None:
        """Run with packed weights and tables from now on, wherever no gradient is asked for."""
        self._tables.packed = self._products.packed = True
        for highway in cast("list[Highway]", list(self.highways)):
            highway.products.packed = True

    def mix_precision(self) -> None:
        """From now on, train the highways with products in bfloat16 where there are kernels."""
        for highway in cast("list[Highway]", list(self.highways)):
            highway.mixed = True

    def _filters(self) -> list[tuple[Tensor, Tensor]]:
        """Return the weight and bias of every width's filters."""
        return [(conv.weight, conv.bias) for conv in cast("list[nn.Conv1d]", list(self.convs)) if conv.bias is not None]

    def _look_up(self, char_ids_WC: Tensor, kernels: Kernels) -> Tensor:
        char_ids_WC, filters = char_ids_WC.long().contiguous(), self._filters()
        weights, biases = zip(*filters, strict=True)
        if self._tables.packed and not learns(self.char_embedding, *weights, *biases):
            tables = self._tables.get(self.char_embedding, filters, activation=self.config.activation)
            return kernels.char_pool(char_ids_WC, tables)
        pooled_WF: Tensor = TablePool.apply(  # type: ignore[no-untyped-call]
            kernels, char_ids_WC, self.config.activation, self.char_embedding, *weights, *biases
        )
        return pooled_WF

    def _convolve(self, char_ids_WC: Tensor) -> Tensor:
        """Return the maximum of every filter over the word, (W, F).

        All windows inside the padding of a word give the same value, so one of them is enough: short words
        are cut to their own length plus one such window, which leaves the maximum unchanged.
        """
        # Id 0 never stands inside a word that an encoder of ours made; its embedding is zero, as in the original.
        embedding = functional.pad(self.char_embedding, (0, 0, 1, 0))
        activate = ACTIVATIONS[self.config.activation]
        order, pooled = [], []
        for words, num_kept in self._same_length(char_ids_WC):
            chars_WEK = functional.embedding(char_ids_WC[words, :num_kept], embedding).transpose(1, 2)
            strongest = [conv(chars_WEK).amax(dim=2) for conv in self.convs]
            order.append(words)
            pooled.append(activate(torch.cat(strongest, dim=1)))
        if not pooled:
            return embedding.new_empty(0, self.config.num_filters)
        return torch.cat(pooled)[torch.argsort(torch.cat(order))].to(embedding.dtype)

    def _same_length(self, char_ids_WC: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Yield groups of words of similar length: (their indices, number of characters to read)."""
        max_chars = char_ids_WC.shape[1]
        widest = max(width for width, _ in self.config.filters)
        position_C = torch.arange(1, max_chars + 1, device=char_ids_WC.device)
        length_W = ((char_ids_WC != self.config.num_chars) * position_C).amax(dim=1)
        bucket_W = (length_W + BUCKET - 1) // BUCKET
        for bucket in bucket_W.unique().tolist():
            words = (bucket_W == bucket).nonzero().squeeze(1)
            for part in words.split(WORDS_AT_ONCE):
                yield part, min(bucket * BUCKET + widest, max_chars)
