"""Options that several constructors share, as typed keyword arguments."""

from collections.abc import Sequence
from typing import TypedDict

import torch

from elmokit.embed.state import State
from elmokit.kernels.stack import Precision
from elmokit.model.scalar_mix import LayerNorm


class EmbedderOptions(TypedDict, total=False):
    """The options of `Embedder` that do not depend on its model; explained there."""

    state: State
    precision: Precision
    language: str
    device: torch.device | str


class ElmoOptions(TypedDict, total=False):
    """The options of `Elmo` that do not depend on its model; explained there."""

    num_mixes: int
    dropout: float
    requires_grad: bool
    keep_boundaries: bool
    layer_norm: LayerNorm | None
    initial_weights: Sequence[float] | None
    only_layer: int | None
    trainable_mix: bool
    state: State
