"""Token inputs of a task model: static vector, spelling, and ELMo.

Shapes: B sequences, T tokens, E width of an input, L layers of a biLM, D width of a layer; W distinct words,
K characters.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.embed.trained_layers import SpelledSequences, TrainedLayers
from elmokit.model.scalar_mix import ScalarMix
from elmokit.nn.basic import CharCNN, Dropout
from elmokit.nn.mixes import DimensionMix, GatedMix
from elmokit.tasks.progress import MixWeights
from elmokit.tasks.recipe import CharSettings, ElmoSettings

MIXES = {"dimension": DimensionMix, "gated": GatedMix}


@dataclass(frozen=True)
class Spelling:
    """Characters of the distinct words of a column, and the index of the word at every position."""

    chars_WK: Tensor
    words_BT: Tensor


@dataclass(frozen=True)
class Column:
    """Token sequences side by side, padded to the longest."""

    mask_BT: Tensor  # true = token
    words_BT: Tensor | None = None  # rows of the static vectors; row 0 is zeros, for out-of-vocabulary words
    learned_BT: Tensor | None = None  # rows of their trained offsets; row 0 stays zero
    spelling: Spelling | None = None
    layers_LND: Tensor | None = None  # layers of a frozen biLM, no padding, sequences concatenated
    spelled: SpelledSequences | None = None  # input of a biLM that is trained with the task


@dataclass(frozen=True)
class EncodedTokens:
    """Vectors of the tokens of a column."""

    inputs_BTE: Tensor
    elmo_BTD: Tensor | None  # to concatenate with the output of the lowest RNN; None if the recipe has no ELMo there
    mask_BT: Tensor


@dataclass(frozen=True)
class InputSizes:
    """Sizes that follow from the data; None or 0 for parts that the recipe does not have."""

    vectors_VD: Tensor | None = None  # row 0 is zeros
    num_learned: int = 0  # words with trained offsets, and one row for all others
    num_chars: int = 0
    num_layers: int = 0
    layer_dim: int = 0


class TokenEncoder(nn.Module):
    """Concatenates the vectors of every token. Each place of ELMo has its own mix, shared by all columns.

    Args:
        sizes: sizes of the inputs.
        chars: the character CNN; None for none.
        elmo: place and mix of the biLM's layers.
        trained: biLM that is trained with the task; None if columns have the layers of a frozen one.
    """

    vectors_VD: Tensor | None

    def __init__(
        self,
        sizes: InputSizes,
        chars: CharSettings | None,
        elmo: ElmoSettings,
        *,
        trained: TrainedLayers | None = None,
    ) -> None:
        super().__init__()
        self.trained = trained
        self.register_buffer("vectors_VD", sizes.vectors_VD, persistent=False)
        word_dim = 0 if sizes.vectors_VD is None else sizes.vectors_VD.shape[1]
        self.learned = nn.Parameter(torch.zeros(sizes.num_learned, word_dim)) if sizes.num_learned else None
        self.char_cnn = None
        if chars is not None:
            self.char_cnn = CharCNN(sizes.num_chars, chars.char_dim, chars.filters, dropout=chars.dropout)
        self.penalty_strength = elmo.penalty
        has_elmo = bool(sizes.num_layers)
        self.layer_dim = sizes.layer_dim // 2 if elmo.layers == "type" else sizes.layer_dim
        self.input_mix = _mix(sizes, elmo) if has_elmo and elmo.place in ("input", "both") else None
        self.output_mix = _mix(sizes, elmo) if has_elmo and elmo.place in ("output", "both") else None
        self.place_gate = _zero_linear(self.layer_dim) if has_elmo and elmo.gate_places else None
        self.dropout = Dropout(elmo.dropout)
        char_dim = 0 if chars is None else sum(count for _, count in chars.filters)
        self.input_dim = word_dim + char_dim + (self.layer_dim if self.input_mix is not None else 0)
        self.output_dim = self.layer_dim if self.output_mix is not None else 0

    def forward(self, column: Column) -> EncodedTokens:
        """Return the concatenated vectors."""
        parts = []
        if self.vectors_VD is not None:
            assert column.words_BT is not None
            words_BTE = functional.embedding(column.words_BT, self.vectors_VD)
            if self.learned is not None:
                assert column.learned_BT is not None
                words_BTE = words_BTE + functional.embedding(column.learned_BT, self.learned, padding_idx=0)
            parts.append(words_BTE)
        if self.char_cnn is not None:
            assert column.spelling is not None
            spelled_BTF = functional.embedding(column.spelling.words_BT, self.char_cnn(column.spelling.chars_WK))
            parts.append(spelled_BTF * column.mask_BT[:, :, None])  # zeros on padding, as in all other parts
        layers_LND = column.layers_LND if self.trained is None else self.trained(column.spelled)
        gate_BT1 = None if self.place_gate is None else self._gate(self.place_gate, layers_LND, column.mask_BT)
        if self.input_mix is not None:
            mixed_BTD = self._mixed(self.input_mix, layers_LND, column.mask_BT)
            parts.append(mixed_BTD if gate_BT1 is None else gate_BT1 * mixed_BTD)
        inputs_BTE = torch.cat(parts, dim=2)
        elmo_BTD = None if self.output_mix is None else self._mixed(self.output_mix, layers_LND, column.mask_BT)
        if elmo_BTD is not None and gate_BT1 is not None:
            elmo_BTD = (2 - gate_BT1) * elmo_BTD
        return EncodedTokens(inputs_BTE, elmo_BTD, column.mask_BT)

    def penalty(self) -> Tensor:
        """Return the penalty of the mix weights, which is added to the loss."""
        mixes = [mix for mix in (self.input_mix, self.output_mix) if mix is not None]
        return sum((mix.penalty(self.penalty_strength) for mix in mixes), torch.zeros(()))

    def _mixed(self, mix: ScalarMix, layers_LND: Tensor | None, mask_BT: Tensor) -> Tensor:
        assert layers_LND is not None
        everywhere_1N = torch.ones(1, layers_LND.shape[1], dtype=torch.bool, device=mask_BT.device)
        mixed_1ND: Tensor = self.dropout(mix(layers_LND[None, :, :, : self.layer_dim], everywhere_1N))
        return _padded(mixed_1ND[0], mask_BT)

    def _gate(self, gate: nn.Linear, layers_LND: Tensor | None, mask_BT: Tensor) -> Tensor:
        """Return the factor of the input per token, from 0 to 2, (B, T, 1)."""
        assert layers_LND is not None
        return _padded(2 * gate(layers_LND[:, :, : self.layer_dim].mean(dim=0)).sigmoid(), mask_BT)


def _padded(values_ND: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the values of all tokens as a batch, zero where the mask is false."""
    flat_PD = values_ND.new_zeros(mask_BT.numel(), values_ND.shape[1])
    return flat_PD.index_copy(0, mask_BT.flatten().nonzero().squeeze(1), values_ND).view(*mask_BT.shape, -1)


def _zero_linear(width: int) -> nn.Linear:
    """Return a linear function to one number that starts as zero."""
    linear = nn.utils.skip_init(nn.Linear, width, 1)  # draws no random numbers: other weights stay what they are
    assert isinstance(linear, nn.Linear)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def mix_weights(module: nn.Module) -> dict[str, MixWeights]:
    """Return the mixes of a task's module by place, their weights after the softmax."""
    tokens = cast(TokenEncoder, module.tokens)
    mixes = {"input": tokens.input_mix, "output": tokens.output_mix}
    return {place: _normalized(mix) for place, mix in mixes.items() if mix is not None}


def _normalized(mix: ScalarMix) -> MixWeights:
    return MixWeights(mix.layer_weights().tolist(), mix.gamma.item())


def _mix(sizes: InputSizes, elmo: ElmoSettings) -> ScalarMix:
    layer_norm = None if elmo.layer_norm == "none" else elmo.layer_norm
    mix: ScalarMix
    if elmo.mix == "scalar":
        only_layer = {"all": None, "last": sizes.num_layers - 1, "type": 0}[elmo.layers]
        mix = ScalarMix(sizes.num_layers, layer_norm=layer_norm, only_layer=only_layer)
    else:
        mix = MIXES[elmo.mix](sizes.num_layers, sizes.layer_dim, layer_norm=layer_norm)
    mix.gamma.requires_grad_(elmo.learn_gamma)
    return mix
