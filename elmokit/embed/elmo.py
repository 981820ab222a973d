"""ELMo as a layer of a task model: a biLM and learned mixes of its layers.

It lives beside the Embedder, not in the model room: it loads files and keeps states, which the model never does.

Shapes: B sentences, T tokens, C characters a word, L layers, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.embed.state import StartStates, State
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM, BiLMState, PaddedLayers
from elmokit.model.scalar_mix import LayerNorm, ScalarMix
from elmokit.model.uncompiled import uncompiled
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.source import Source, build_bilm, load_saved
from elmokit.weights.start_state import stored_state


@dataclass(frozen=True)
class ElmoOutput:
    """A batch's mixed vectors, zero on padding."""

    mixes: list[Tensor]  # one (B, T, D) a mix
    mask_BT: Tensor  # true where there is a token


class Elmo(nn.Module):
    """A biLM, run once, and one or more mixes of its layers (Peters et al. 2018, section 3.2).

    The biLM is frozen unless ``requires_grad``; the mixes are trained with the task unless ``trainable_mix``
    is false. Input is padded character ids without boundary tokens, as `elmokit.text.chars.pad_sentences` makes them.
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
        keep_boundaries: bool = False,
        layer_norm: LayerNorm | None = None,
        initial_weights: Sequence[float] | None = None,
        only_layer: int | None = None,
        trainable_mix: bool = True,
        state: State = "warm",
        warm: BiLMState | None = None,
    ) -> None:
        super().__init__()
        if num_mixes < 1:
            raise InputError(f"num_mixes {num_mixes}; expected 1 or more")
        self.bilm = bilm.requires_grad_(requires_grad)
        self.keep_boundaries = keep_boundaries
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.num_layers,
                layer_norm=layer_norm,
                initial_weights=initial_weights,
                only_layer=only_layer,
                trainable=trainable_mix,
            )
            for _ in range(num_mixes)
        )
        self.dropout = nn.Dropout(dropout)
        self._states = StartStates(state, warm=warm)

    @classmethod
    def from_pretrained(
        cls,
        source: Source = EN_SMALL,
        *,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
        keep_boundaries: bool = False,
        layer_norm: LayerNorm | None = None,
        initial_weights: Sequence[float] | None = None,
        only_layer: int | None = None,
        trainable_mix: bool = True,
        state: State = "warm",
    ) -> "Elmo":
        """Build it around a saved biLM; ``source`` is what `Embedder.from_pretrained` takes."""
        saved = load_saved(source)
        return cls(
            build_bilm(saved),
            num_mixes=num_mixes,
            dropout=dropout,
            requires_grad=requires_grad,
            keep_boundaries=keep_boundaries,
            layer_norm=layer_norm,
            initial_weights=initial_weights,
            only_layer=only_layer,
            trainable_mix=trainable_mix,
            state=state,
            warm=stored_state(saved),
        )

    @property
    def width(self) -> int:
        """Width of a mixed vector."""
        return self.bilm.config.width

    def reset_state(self) -> None:
        """Forget the state carried from batch to batch; it changes nothing unless ``state="carry"``."""
        self._states.reset()

    def penalty(self, strength: float) -> Tensor:
        """The mixes' penalties together, to add to a task's loss (`ScalarMix.penalty`)."""
        penalties = [mix.penalty(strength) for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack(penalties).sum()

    def forward(self, char_ids_BTC: Tensor) -> ElmoOutput:
        """Mix the layers of padded sentences; with ``keep_boundaries`` every sentence is two tokens longer."""
        padded = read_layers(self.bilm, char_ids_BTC, self._states)
        # The mix sees the boundaries too: with layer_norm="batch" AllenNLP counts them in its mean and variance.
        mixed = [mix(padded.layers_BLTD, padded.mask_BT) for mix in self.mixes]
        mask_BT = padded.mask_BT
        if not self.keep_boundaries:
            mixed = [drop_boundaries(vectors_BTD, mask_BT) for vectors_BTD in mixed]
            mask_BT = mask_BT[:, 2:]
        return ElmoOutput([self.dropout(vectors_BTD) for vectors_BTD in mixed], mask_BT)


@uncompiled
def read_layers(bilm: BiLM, char_ids_BTC: Tensor, states: StartStates) -> PaddedLayers:
    """Run padded sentences from the states that are due; gradients flow only into a biLM that is trained."""
    padded: PaddedLayers = bilm(char_ids_BTC, states.begin(bilm, len(char_ids_BTC)))
    states.end(padded.final)
    return padded


def drop_boundaries(vectors_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Cut the first and the last position of every sentence; vectors and mask are given with them."""
    # A sentence has a token wherever two positions on it still has something.
    return vectors_BTD[:, 1:-1] * mask_BT[:, 2:, None]
