"""Mix a biLM's layers into one vector per token.

Shapes: B sentences, L layers, T tokens, D width.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.errors import InputError

LayerNorm = Literal["token", "batch"]
EPSILON = 1e-12


class ScalarMix(nn.Module):
    """A trained weighted mean of layers, scaled by gamma (Peters et al. 2018, equation 1).

    Args:
        num_layers: L, the token layer included.
        layer_norm: ``"token"`` normalizes every vector by itself. ``"batch"`` takes one mean and variance per layer
            over all tokens of the batch, as the first implementations did, so a vector depends on its batch.
        initial_weights: L weights to start from, before the softmax; zeros if None.
        only_layer: use this layer alone, scaled by gamma.
        trainable: train the weights and gamma.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        layer_norm: LayerNorm | None = None,
        initial_weights: Sequence[float] | None = None,
        only_layer: int | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if initial_weights is not None and len(initial_weights) != num_layers:
            raise InputError(f"{len(initial_weights)} initial weights for {num_layers} layers; give one per layer")
        if only_layer is not None and not -num_layers <= only_layer < num_layers:
            raise InputError(f"layer {only_layer} of {num_layers}; expected {-num_layers} to {num_layers - 1}")
        if only_layer is not None and initial_weights is not None:
            raise InputError("only_layer and initial_weights are both given; one layer alone has no weights")
        if layer_norm not in (None, "token", "batch"):
            raise InputError(f"layer_norm {layer_norm!r}; expected 'token', 'batch' or None")
        self.num_layers = num_layers
        self.layer_norm = layer_norm
        self.only_layer = only_layer
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=trainable)
        self.weights: nn.Parameter | None = None  # before the softmax
        if only_layer is None:
            start = torch.zeros(num_layers) if initial_weights is None else torch.tensor(initial_weights).float()
            self.weights = nn.Parameter(start, requires_grad=trainable)

    def forward(self, layers_BLTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed vectors, (B, T, D), zero where the mask is false.

        Args:
            layers_BLTD: the layers of a batch.
            mask_BT: true where there is a token.
        """
        if layers_BLTD.shape[1] != self.num_layers:
            raise InputError(f"{layers_BLTD.shape[1]} layers given to a mix of {self.num_layers}")
        layers_BLTD = normalize_layers(layers_BLTD, mask_BT, self.layer_norm)
        if self.weights is None:
            assert self.only_layer is not None
            mixed_BTD = self.gamma * layers_BLTD[:, self.only_layer]
        else:
            weights_1L = self.gamma * self.weights.softmax(dim=0)[None]
            # A matrix product reads the layers in place.
            mixed_BTD = (weights_1L @ layers_BLTD.flatten(2)).view(len(layers_BLTD), *layers_BLTD.shape[2:])
        return mixed_BTD * mask_BT[:, :, None]

    def layer_weights(self) -> Tensor:
        """Return the weight of every layer after the softmax, (L,)."""
        if self.weights is None:
            return functional.one_hot(torch.tensor(self.only_layer) % self.num_layers, self.num_layers).float()
        return self.weights.detach().softmax(dim=0)

    def penalty(self, strength: float) -> Tensor:
        """Return the sum of the squared weights before the softmax, times ``strength``: a term of a task's loss.

        It draws the mix towards the plain mean. Gamma is not penalized.

        Args:
            strength: factor of the penalty; the paper's lambda.
        """
        if self.weights is None:
            return self.gamma.new_zeros(())
        return strength * self.weights.square().sum()


def normalize_layers(layers_BLTD: Tensor, mask_BT: Tensor, layer_norm: LayerNorm | None) -> Tensor:
    """Return layers normalized per token or per batch, or as they are."""
    if layer_norm == "token":
        return functional.layer_norm(layers_BLTD, layers_BLTD.shape[-1:], eps=EPSILON)
    return layers_BLTD if layer_norm is None else _normalize_batch(layers_BLTD, mask_BT)


def _normalize_batch(layers_BLTD: Tensor, mask_BT: Tensor) -> Tensor:
    mask_B1T1 = mask_BT[:, None, :, None]
    num_elements = (mask_BT.sum() * layers_BLTD.shape[-1]).clamp(min=1)  # there may be no token at all
    mean_L11 = (layers_BLTD * mask_B1T1).sum(dim=(0, 2, 3), keepdim=True) / num_elements
    centered_BLTD = (layers_BLTD - mean_L11) * mask_B1T1
    variance_L11 = centered_BLTD.square().sum(dim=(0, 2, 3), keepdim=True) / num_elements
    return centered_BLTD / torch.sqrt(variance_L11 + EPSILON)
