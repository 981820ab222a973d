"""Layers of sequences that are read once: what a `LayerStore` gives, computed when it is asked for.

Shapes: L layers, T tokens of a sequence, N of several, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.encoders.layer_sources import LayerSource


class LiveLayers:
    """The layers of token sequences under one source; nothing is kept."""

    def __init__(self, source: LayerSource) -> None:
        self.num_layers, self.width = source.num_layers, source.width
        self.source = source

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        """Return the layers of sequences one after the other, (L, N, D) float32."""
        lengths = [len(tokens) for tokens in sequences]
        joined_LND = torch.empty(self.num_layers, sum(lengths), self.width)
        parts = joined_LND.split(lengths, dim=1)
        for index, layers_LTD in self.source.iter_unordered(sequences):
            # Rounded as a store rounds them, so that a model reads what it has learned from.
            parts[index].copy_(torch.from_numpy(layers_LTD).half())
        return joined_LND
