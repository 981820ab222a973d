"""One reading of a batch for all models that read the same biLM.

Shapes: L layers, N tokens of several sequences, D width.
"""

from collections.abc import Sequence

from torch import Tensor

from elmokit.tasks.columns import ColumnMaker, LayerSource


class SharedLayers:
    """A source that keeps what it gave, to give it again. Made for one batch: what it keeps goes with it."""

    def __init__(self, source: LayerSource) -> None:
        self.num_layers, self.width = source.num_layers, source.width
        self._source = source
        self._kept: dict[tuple[tuple[str, ...], ...], Tensor] = {}

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        """The layers of sequences one after the other, (L, N, D) float32; one tensor for all who ask."""
        key = tuple(map(tuple, sequences))
        if key not in self._kept:
            self._kept[key] = self._source.join(sequences)
        return self._kept[key]


def share_layers(makers: Sequence[ColumnMaker]) -> list[ColumnMaker]:
    """Makers of the same columns; those with the same source of layers ask it only once for the same sequences."""
    shared: dict[int, SharedLayers] = {}
    return [
        maker
        if maker.layers is None
        else maker.with_layers(shared.setdefault(id(maker.layers), SharedLayers(maker.layers)))
        for maker in makers
    ]
