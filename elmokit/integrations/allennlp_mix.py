"""AllenNLP's mix of layers: its parameters' names and shapes over ours.

Shapes: D width, L layers, T tokens, S any leading sizes.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are AllenNLP's signatures.

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from elmokit.errors import InputError
from elmokit.model import scalar_mix


class ScalarMix(nn.Module):
    """`elmokit.ScalarMix` with AllenNLP's parameters: ``scalar_parameters``, one per layer, and ``gamma``, each (1,).

    ``do_layer_norm`` normalizes each layer by its mean and variance over the whole batch, as AllenNLP does, so a
    vector depends on its batch.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self._layer_norm: scalar_mix.LayerNorm | None = "batch" if do_layer_norm else None
        start = scalar_mix.ScalarMix(mixture_size, initial_weights=initial_scalar_parameters).weights
        assert start is not None
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(weight.clone(), requires_grad=trainable) for weight in start.detach().split(1)
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers of one shape, (*S, D); zero where the mask, (*S), is false."""
        if len(tensors) != len(self.scalar_parameters):
            raise InputError(
                f"{len(tensors)} tensors for a mix of {len(self.scalar_parameters)} layers; expected one per layer"
            )
        shape = tensors[0].shape
        mask = torch.ones(shape[:-1], dtype=torch.bool, device=tensors[0].device) if mask is None else mask.bool()
        # The mix treats each token alone, so all tokens can form one sentence.
        layers_1LTD = torch.stack([tensor.reshape(-1, shape[-1]) for tensor in tensors])[None]
        # A new module per call: threads that share this one would overwrite the parameters of a shared one.
        mix = scalar_mix.ScalarMix(len(tensors), layer_norm=self._layer_norm)
        parameters = {"weights": torch.cat(list(self.scalar_parameters)), "gamma": self.gamma.squeeze(0)}
        mixed_1TD: Tensor = functional_call(mix, parameters, (layers_1LTD, mask.reshape(1, -1)))
        return mixed_1TD.reshape(shape)
