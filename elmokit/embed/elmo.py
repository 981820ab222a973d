"""ELMo as a layer of a task model: a biLM and trained mixes of its layers.

It lives beside the Embedder, not in the model room: it loads files and carries states, which the model never does.

Shapes: B sentences, T tokens, C characters per word, L layers, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from elmokit.embed.options import ElmoOptions
from elmokit.embed.state import StartStates, State
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM, BiLMState, PaddedLayers
from elmokit.model.scalar_mix import LayerNorm, ScalarMix
from elmokit.model.uncompiled import uncompiled
from elmokit.text.spelling import Dictionary, Spelling
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, build_bilm, load_saved
from elmokit.weights.start_state import stored_state, to_tensors


@dataclass(frozen=True)
class ElmoOutput:
    """The mixed vectors of a batch.

    Args:
        mixes: one tensor (B, T, D) per mix, zero on padding.
        mask_BT: true where there is a token. With ``keep_boundaries`` T counts both boundary tokens.
    """

    mixes: list[Tensor]
    mask_BT: Tensor


class Elmo(nn.Module):
    """A biLM, run once, and one or more mixes of its layers (Peters et al. 2018, section 3.2).

    The input is padded character ids without boundary tokens, which `char_ids` makes from tokens.

    Args:
        bilm: the model.
        num_mixes: the number of places where the task model uses ELMo; each gets its own mix.
        dropout: probability with which values of the mixed vectors are set to zero in training.
        requires_grad: train the biLM too; it is frozen otherwise.
        keep_boundaries: keep the vectors of the begin- and end-of-sentence tokens: T + 2 positions.
        layer_norm: normalize layers before the mix: ``"token"`` for each vector by itself, ``"batch"`` with one mean
            and variance per layer over the batch, as the first implementations did, or None.
        initial_weights: one weight per layer to start from, before the softmax; zeros if None.
        only_layer: use this layer alone instead of a mix of all.
        trainable_mix: train the mixes' weights and gamma.
        state: where the LSTMs start a sentence, as for `Embedder`.
        warm: the start state for ``state="warm"``, each tensor (layers, 1, width); computed at first use if None.
        dictionary: the characters and words of a model that does not read bytes.
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
        dictionary: Dictionary | None = None,
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
        self._spelling = Spelling(bilm.config, dictionary)
        self._states = StartStates(state, warm=warm, dictionary=dictionary)
        self._given_start = warm
        self._published_options: dict[str, Any] | None = None

    @classmethod
    def from_pretrained(cls, source: Source | None = None, **options: Unpack[ElmoOptions]) -> "Elmo":
        """Load a saved biLM and build an `Elmo` around it.

        Args:
            source: a model, as for `Embedder.from_pretrained`; None loads ``en-small``, which is in the package.
            options: all options of `Elmo` except ``warm`` and ``dictionary``, which the model on disk decides.
        """
        saved = load_saved(EN_SMALL if source is None else source)
        elmo = cls(build_bilm(saved), warm=stored_state(saved), dictionary=saved.dictionary, **options)
        elmo._published_options = saved.options
        return elmo

    def save_pretrained(self, folder: str | Path, *, description: str | None = None, half: bool = False) -> None:
        """Save the biLM as a folder that `from_pretrained` loads; a model of ours that is there is replaced.

        The mixes are part of the task model: save them with its ``state_dict``. A biLM that was trained here gets a new
        start state when it is loaded.

        Args:
            folder: the folder to write.
            description: a text for the model card.
            half: store weights as float16: half the size, with about three digits.
        """
        tensors, trained = dict(self.bilm.state_dict()), any(weight.requires_grad for weight in self.bilm.parameters())
        start = None if trained or self._given_start is None else to_tensors(self._given_start)
        saved = SavedBiLM(
            self.bilm.config,
            tensors,
            options=self._published_options,
            start_state=start,
            dictionary=self._spelling.dictionary,
        )
        save_folder(saved, folder, description=description, half=half)

    def char_ids(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the padded character ids that `forward` takes, int64 of shape (B, T, C), on the biLM's device.

        Args:
            sentences: B lists of tokens.
        """
        return torch.from_numpy(self._spelling.pad(sentences)).to(self.bilm.device)

    @property
    def width(self) -> int:
        """Width of a mixed vector."""
        return self.bilm.config.width

    @property
    def stored_start(self) -> BiLMState | None:
        """Start state that was stored with the model; None if there was none."""
        return self._given_start

    def reset_state(self) -> None:
        """Reset the state carried from batch to batch; without effect unless ``state="carry"``."""
        self._states.reset()

    def penalty(self, strength: float) -> Tensor:
        """Return the sum of the mixes' penalties, a scalar to add to a task's loss (`ScalarMix.penalty`).

        Args:
            strength: factor of the penalty; the paper's lambda.
        """
        penalties = [mix.penalty(strength) for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack(penalties).sum()

    def forward(self, char_ids_BTC: Tensor) -> ElmoOutput:
        """Mix the layers of padded sentences.

        Args:
            char_ids_BTC: integer character ids, zero on padding, as `char_ids` makes them.
        """
        _check_ids(char_ids_BTC)
        padded = read_layers(self.bilm, char_ids_BTC, self._states)
        # The mix sees the boundaries too: with layer_norm="batch" AllenNLP counts them in its mean and variance.
        mixed = [mix(padded.layers_BLTD, padded.mask_BT) for mix in self.mixes]
        mask_BT = padded.mask_BT
        if not self.keep_boundaries:
            mixed = [drop_boundaries(vectors_BTD, mask_BT) for vectors_BTD in mixed]
            mask_BT = mask_BT[:, 2:]
        return ElmoOutput([self.dropout(vectors_BTD) for vectors_BTD in mixed], mask_BT)


def _check_ids(char_ids_BTC: Tensor) -> None:
    given: object = char_ids_BTC  # callers need not heed the annotation
    if not isinstance(given, Tensor):
        raise InputError(
            f"Elmo got a {type(given).__name__}; expected a tensor of character ids, elmo.char_ids(sentences) "
            "makes it from lists of tokens"
        )
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(f"character ids are {given.dtype}; expected integers, as elmo.char_ids(sentences) makes them")


@uncompiled
def read_layers(bilm: BiLM, char_ids_BTC: Tensor, states: StartStates) -> PaddedLayers:
    """Run padded sentences, each from its start state; gradients flow only into a biLM that is trained."""
    padded: PaddedLayers = bilm(char_ids_BTC, states.begin(bilm, len(char_ids_BTC)))
    states.end(padded.final)
    return padded


def drop_boundaries(vectors_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Cut the first and the last position of every sentence; vectors and mask are given with them."""
    # A sentence has a token wherever two positions on it still has something.
    return vectors_BTD[:, 1:-1] * mask_BT[:, 2:, None]
