"""Layers of sequences that are read once: what a `LayerStore` gives, computed when it is asked for.

Shapes: L layers, T tokens of a sequence, N of several, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.encoders.layer_sources import LayerSource


class LiveLayers:
    """The layers of token sequences under one source; nothing is kept.

    Args:
        source: computes the layers.
        rounded: round to float16, as a `LayerStore` does, so that a model reads what it was trained on.
    """

    def __init__(self, source: LayerSource, *, rounded: bool = True) -> None:
        self.num_layers, self.width = source.num_layers, source.width
        self.source, self.rounded = source, rounded

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        """Return the layers of sequences one after the other, (L, N, D) float32."""
        lengths = [len(tokens) for tokens in sequences]
        joined_LND = torch.empty(self.num_layers, sum(lengths), self.width)
        parts = joined_LND.split(lengths, dim=1)
        for index, layers_LTD in self.source.iter_unordered(sequences):
            computed_LTD = torch.from_numpy(layers_LTD)
            parts[index].copy_(computed_LTD.half() if self.rounded else computed_LTD)
        return joined_LND
