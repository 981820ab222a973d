"""What task models read of a token: its static vector, its spelling, and ELMo.

Shapes: B sequences, T tokens, E width of an input, L layers of a biLM, D width of a layer; W distinct words,
K characters.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.model.scalar_mix import ScalarMix
from elmokit.nn.basic import CharCNN, Dropout
from elmokit.tasks.recipe import CharSettings, ElmoSettings


@dataclass(frozen=True)
class Spelling:
    """The characters of a column's distinct words, and which of them stands where."""

    chars_WK: Tensor
    words_BT: Tensor


@dataclass(frozen=True)
class Column:
    """Token sequences side by side, padded to the longest."""

    mask_BT: Tensor  # true where there is a token
    words_BT: Tensor | None = None  # rows of the static vectors; row 0 is zeros, for words that are not there
    learned_BT: Tensor | None = None  # rows of the learned offsets to them; row 0 stays zero
    spelling: Spelling | None = None
    layers_LND: Tensor | None = None  # of the tokens alone, one sequence after the other


@dataclass(frozen=True)
class EncodedTokens:
    """A column as the layers of a task model read it."""

    inputs_BTE: Tensor
    elmo_BTD: Tensor | None  # to be joined to the output of the lowest RNN; None where the recipe has nothing there
    mask_BT: Tensor


@dataclass(frozen=True)
class InputSizes:
    """What follows from data: None where a recipe has no such part."""

    vectors_VD: Tensor | None = None  # with its row of zeros
    num_learned: int = 0  # words whose vectors are learned further, and one row for all others
    num_chars: int = 0
    num_layers: int = 0
    layer_dim: int = 0


class TokenEncoder(nn.Module):
    """Joins the vectors of every token. A location of ELMo has a mix of its own, shared by all columns."""

    vectors_VD: Tensor | None

    def __init__(self, sizes: InputSizes, chars: CharSettings | None, elmo: ElmoSettings) -> None:
        super().__init__()
        self.register_buffer("vectors_VD", sizes.vectors_VD, persistent=False)
        word_dim = 0 if sizes.vectors_VD is None else sizes.vectors_VD.shape[1]
        self.learned = nn.Parameter(torch.zeros(sizes.num_learned, word_dim)) if sizes.num_learned else None
        self.char_cnn = None
        if chars is not None:
            self.char_cnn = CharCNN(sizes.num_chars, chars.char_dim, chars.filters, dropout=chars.dropout)
        self.penalty_strength = elmo.penalty
        has_elmo = bool(sizes.num_layers)
        self.input_mix = _mix(sizes, elmo) if has_elmo and elmo.place in ("input", "both") else None
        self.output_mix = _mix(sizes, elmo) if has_elmo and elmo.place in ("output", "both") else None
        self.dropout = Dropout(elmo.dropout)
        char_dim = 0 if chars is None else sum(count for _, count in chars.filters)
        self.input_dim = word_dim + char_dim + (sizes.layer_dim if self.input_mix is not None else 0)
        self.output_dim = sizes.layer_dim if self.output_mix is not None else 0

    def forward(self, column: Column) -> EncodedTokens:
        """Join what the recipe asks for."""
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
            parts.append(spelled_BTF * column.mask_BT[:, :, None])  # all other parts have zeros on padding
        if self.input_mix is not None:
            parts.append(self._mixed(self.input_mix, column))
        inputs_BTE = torch.cat(parts, dim=2)
        elmo_BTD = None if self.output_mix is None else self._mixed(self.output_mix, column)
        return EncodedTokens(inputs_BTE, elmo_BTD, column.mask_BT)

    def penalty(self) -> Tensor:
        """What is added to a loss to keep the layers' weights near each other."""
        mixes = [mix for mix in (self.input_mix, self.output_mix) if mix is not None]
        return sum((mix.penalty(self.penalty_strength) for mix in mixes), torch.zeros(()))

    def _mixed(self, mix: ScalarMix, column: Column) -> Tensor:
        layers_LND, mask_BT = column.layers_LND, column.mask_BT
        assert layers_LND is not None
        everywhere_1N = torch.ones(1, layers_LND.shape[1], dtype=torch.bool, device=mask_BT.device)
        mixed_1ND: Tensor = self.dropout(mix(layers_LND[None], everywhere_1N))
        flat_PD = mixed_1ND.new_zeros(mask_BT.numel(), mixed_1ND.shape[2])
        return flat_PD.index_copy(0, mask_BT.flatten().nonzero().squeeze(1), mixed_1ND[0]).view(*mask_BT.shape, -1)


def _mix(sizes: InputSizes, elmo: ElmoSettings) -> ScalarMix:
    mix = ScalarMix(
        sizes.num_layers,
        layer_norm=None if elmo.layer_norm == "none" else elmo.layer_norm,
        only_layer=sizes.num_layers - 1 if elmo.layers == "last" else None,
    )
    mix.gamma.requires_grad_(elmo.learn_gamma)
    return mix
