"""A drop-in replacement for ELMoForManyLangs' class: same names and arguments.

Change ``from elmoformanylangs import Embedder`` to ``from elmokit.integrations.elmoformanylangs import Embedder``.
The original carried its LSTM state between batches that it had shuffled, so its vectors changed from call to call.
Here every sentence starts from zero, or as ``state`` says.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Sequence
from pathlib import Path

from elmokit.embed import embedder
from elmokit.embed.picking import Layers, Vectors, pick_layers
from elmokit.embed.state import State
from elmokit.errors import InputError


class Embedder:
    """A model of ELMoForManyLangs, or any other that elmokit loads.

    Args:
        model_dir: Folder or archive of the model.
        batch_size: Sentences per batch.
        state: State in which a sentence starts, as for `elmokit.Embedder`.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64, *, state: State = "reset") -> None:
        self.model_dir = model_dir
        self.batch_size = batch_size
        self._embedder = embedder.Embedder.from_pretrained(model_dir, state=state)

    def sents2elmo(self, sents: Sequence[Sequence[str]], output_layer: int = -1) -> list[Vectors]:
        """Return the vectors of every sentence's tokens.

        Args:
            sents: Lists of tokens.
            output_layer: 0 for the token layer, 1 or 2 for an LSTM layer, -1 for the mean of all, -2 for all.

        Returns:
            One array (T, D) per sentence; (L, T, D) for all layers.
        """
        num_layers = self._embedder.num_layers
        if not -2 <= output_layer < num_layers:
            raise InputError(f"output_layer {output_layer}; expected 0 to {num_layers - 1}, -1 (mean) or -2 (all)")
        chosen: Layers = {-1: "mean", -2: "all"}.get(output_layer, output_layer)  # type: ignore[assignment]
        found = self._embedder.iter_layers(sents, batch_size=self.batch_size)
        return [pick_layers(layers_LTD, chosen) for layers_LTD in found]
