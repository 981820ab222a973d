"""Layers of a biLM that is trained with a task: computed anew in every step, with gradients, and never cached.

Shapes: W distinct words, C ids per word, N positions of all sequences with their boundaries, T without, L layers,
P width of a token vector, D width of a layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from elmokit.embed.embedder import Embedder
from elmokit.model.bilm import BiLMState
from elmokit.text.spelling import Spelling
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import build_bilm
from elmokit.weights.start_state import map_state, stored_state, to_tensors, warm_state


@dataclass(frozen=True)
class SpelledSequences:
    """Token sequences as a biLM reads them, one after the other."""

    char_ids_WC: Tensor
    words_N: Tensor  # index of the word at every position
    lengths: list[int]  # positions of every sequence, with its boundaries


class TrainedLayers(nn.Module):
    """A copy of a biLM with trainable weights.

    Sequences start in the state in which they start before training, so that a step depends on the weights alone.

    Args:
        saved: the biLM to begin with; its tensors are copied.
    """

    def __init__(self, saved: SavedBiLM) -> None:
        super().__init__()
        self._saved = saved
        self.bilm = build_bilm(replace(saved, tensors={name: part.clone() for name, part in saved.tensors.items()}))
        self.bilm.requires_grad_(True)  # noqa: FBT003  torch's signature
        self._spelling = Spelling(saved.config, saved.dictionary)
        start = stored_state(saved)
        self._start: BiLMState = warm_state(self.bilm, saved.dictionary) if start is None else start

    @property
    def num_layers(self) -> int:
        """Number of layers, the token layer included."""
        return self.bilm.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector."""
        return self.bilm.config.width

    def spell(self, sequences: Sequence[Sequence[str]]) -> SpelledSequences:
        """Return sequences as `forward` reads them."""
        spelling, distinct = self._spelling, dict[str, int]()
        bounded = [[spelling.begin, *tokens, spelling.end] for tokens in sequences]
        places = [distinct.setdefault(word, len(distinct)) for tokens in bounded for word in tokens]
        return SpelledSequences(
            char_ids_WC=torch.from_numpy(spelling.encode(list(distinct)).char_ids_WC),
            words_N=torch.tensor(places),
            lengths=[len(tokens) for tokens in bounded],
        )

    def forward(self, spelled: SpelledSequences) -> Tensor:
        """Return the layers of concatenated sequences without boundaries, (L, T, D)."""
        lengths = spelled.lengths
        tokens_NP = self.bilm.encode_tokens(spelled.char_ids_WC)[spelled.words_N]
        start = map_state(self._start, lambda part: part.expand(-1, len(lengths), -1))
        layers_LND = self.bilm.run(tokens_NP, lengths, start).layers_LND
        ends_B = torch.tensor(lengths).cumsum(0)
        is_token_N = torch.ones(len(spelled.words_N), dtype=torch.bool)
        is_token_N[ends_B - 1] = False
        is_token_N[ends_B - torch.tensor(lengths)] = False
        return layers_LND[:, is_token_N]

    def to_embedder(self) -> Embedder:
        """Return an Embedder with the present weights, to predict with and to save."""
        tensors = {name: part.detach().clone() for name, part in self.bilm.state_dict().items()}
        return Embedder.from_saved(replace(self._saved, tensors=tensors, start_state=to_tensors(self._start)))
