"""Mixes of layers beyond the scalar mix of the paper, with its interface: weights per dimension or per token.

Shapes: B sentences, L layers, T tokens, D width.
"""

import torch
from torch import Tensor, nn

from elmokit.model.scalar_mix import LayerNorm, ScalarMix, normalize_layers


class DimensionMix(ScalarMix):
    """A weighted mean of layers with trained weights for every dimension, scaled by gamma.

    Args:
        num_layers: L.
        width: D.
        layer_norm: as for `ScalarMix`.
    """

    def __init__(self, num_layers: int, width: int, *, layer_norm: LayerNorm | None = None) -> None:
        super().__init__(num_layers, layer_norm=layer_norm)
        self.weights = nn.Parameter(torch.zeros(num_layers, width))  # before the softmax over layers

    def forward(self, layers_BLTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed vectors, (B, T, D), zero where the mask is false."""
        assert self.weights is not None
        layers_BLTD = normalize_layers(layers_BLTD, mask_BT, self.layer_norm)
        mixed_BTD = torch.einsum("ld,bltd->btd", self.gamma * self.weights.softmax(dim=0), layers_BLTD)
        return mixed_BTD * mask_BT[:, :, None]

    def layer_weights(self) -> Tensor:
        """Return the mean weight of every layer, (L,)."""
        assert self.weights is not None
        return self.weights.detach().softmax(dim=0).mean(dim=1)

    def penalty(self, strength: float) -> Tensor:
        """Return the penalty of a scalar mix, averaged over dimensions: each of them has its share of the loss."""
        assert self.weights is not None
        return strength * self.weights.square().mean(dim=1).sum()


class GatedMix(ScalarMix):
    """A weighted mean of layers whose weights depend on the token, scaled by gamma.

    The weights are softmax over l of (w_l + g_l . h_l), for the vector h_l of the token in layer l. With g = 0, as
    training starts, this is the scalar mix.

    Args:
        num_layers: L.
        width: D.
        layer_norm: as for `ScalarMix`.
    """

    def __init__(self, num_layers: int, width: int, *, layer_norm: LayerNorm | None = None) -> None:
        super().__init__(num_layers, layer_norm=layer_norm)
        self.gate_LD = nn.Parameter(torch.zeros(num_layers, width))

    def forward(self, layers_BLTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed vectors, (B, T, D), zero where the mask is false."""
        assert self.weights is not None
        layers_BLTD = normalize_layers(layers_BLTD, mask_BT, self.layer_norm)
        scores_BLT = torch.einsum("ld,bltd->blt", self.gate_LD, layers_BLTD) + self.weights[None, :, None]
        mixed_BTD = torch.einsum("blt,bltd->btd", self.gamma * scores_BLT.softmax(dim=1), layers_BLTD)
        return mixed_BTD * mask_BT[:, :, None]

    def penalty(self, strength: float) -> Tensor:
        """Return the penalty of a scalar mix, with that of the gate, averaged over dimensions."""
        return super().penalty(strength) + strength * self.gate_LD.square().mean(dim=1).sum()
