"""A biLM's layers of sequences that are read once: what a `LayerStore` gives, computed when it is asked for.

Shapes: B sequences, L layers, T tokens, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.embed.embedder import Embedder


class LiveLayers:
    """The layers of token sequences under one biLM; nothing is kept."""

    def __init__(self, embedder: Embedder) -> None:
        self.num_layers, self.width = embedder.num_layers, embedder.width
        self._embedder = embedder

    def stack(self, sequences: Sequence[Sequence[str]], padded_to: int) -> Tensor:
        """The layers of sequences side by side, (B, L, T, D) float32, zeros after a sequence's end."""
        stacked_BLTD = torch.zeros(len(sequences), self.num_layers, padded_to, self.width)
        for index, layers_LTD in self._embedder.iter_unordered(sequences):
            # Rounded as a store rounds them, so that a model reads what it has learned from.
            stacked_BLTD[index, :, : layers_LTD.shape[1]] = torch.from_numpy(layers_LTD).half()
        return stacked_BLTD
