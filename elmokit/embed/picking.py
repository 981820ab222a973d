"""Selection of a token's layers, and pooling of a text's tokens.

Shapes: L layers, T tokens, D width, X what is kept of L: all, or nothing once they are one.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError

Vectors = NDArray[np.float32]

Layer = int | Literal["mean"]
"""One layer's number, or the mean of all."""
Layers = Layer | Literal["all"] | tuple[float, ...]
"""Also all of them, or a weight for each: their weighted sum."""
Pooling = Literal["mean", "max"]

MIX = "mix:"


def check_layer(layer: Layer, num_layers: int) -> None:
    """Reject a layer that a model does not have."""
    given: object = layer  # which need not be what the annotation says
    if given != "mean" and not (isinstance(given, int) and -num_layers <= given < num_layers):
        raise InputError(
            f"layer {layer!r}; expected 'mean', 0 to {num_layers - 1}, or {-num_layers} to -1 counted from the top"
        )


def check_layers(layers: Layers, num_layers: int) -> None:
    """Reject a choice of layers that does not fit a model."""
    if layers == "all":
        return
    if not isinstance(layers, tuple):
        check_layer(layers, num_layers)
    elif len(layers) != num_layers:
        raise InputError(
            f"{len(layers)} mix weights {layers}; the model has {num_layers} layers, give one weight for each"
        )
    elif not np.isfinite(layers).all():
        raise InputError(f"mix weights {layers}; expected finite numbers")


def check_pooling(pooling: Pooling) -> None:
    """Reject an unknown pooling."""
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling {pooling!r}; expected 'mean' or 'max'")


def pick_layers(layers_LTD: Vectors, layers: Layers) -> Vectors:
    """Take all layers, (L, T, D), or make one of them, (T, D)."""
    if layers == "all":
        return layers_LTD
    if layers == "mean":
        mean_TD: Vectors = layers_LTD.mean(axis=0)
        return mean_TD
    if isinstance(layers, tuple):
        mixed_TD: Vectors = np.einsum("l,ltd->td", np.array(layers, dtype=np.float32), layers_LTD)
        return mixed_TD
    # A copy, so that one layer does not hold the others in memory.
    one_TD: Vectors = layers_LTD[layers].copy()
    return one_TD


def pool_tokens(vectors_XTD: Vectors, pooling: Pooling) -> Vectors:
    """Make the tokens' vectors one, (X, D); zeros if there is no token."""
    if not vectors_XTD.shape[-2]:
        return np.zeros((*vectors_XTD.shape[:-2], vectors_XTD.shape[-1]), dtype=np.float32)
    pooled_XD: Vectors = vectors_XTD.mean(axis=-2) if pooling == "mean" else vectors_XTD.max(axis=-2)
    return pooled_XD


def parse_layers(text: str) -> Layers:
    """Read a choice of layers as one types it: ``all``, ``mean``, ``2`` or ``mix:0.2,0.5,0.3``."""
    if text == "all":
        return "all"
    if text == "mean":
        return "mean"
    try:
        if text.startswith(MIX):
            return tuple(float(weight) for weight in text.removeprefix(MIX).split(","))
        return int(text)
    except ValueError:
        raise InputError(
            f"layers {text!r}; expected all, mean, a layer's number, or a weight for each such as mix:0.2,0.5,0.3"
        ) from None
