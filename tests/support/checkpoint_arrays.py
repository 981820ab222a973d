"""The variables of a bilm-tf training run that would have published given arrays, with an output layer."""

import re

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32]]

WORDS = ["<S>", "</S>", "<UNK>", "the", "bank", "of", "a", "river", "."]


def variable_name(published: str, *, single_layer: bool = False) -> str:
    """Return the name that a published array had in training (bilm-tf's dump_weights.py renames the other way)."""
    cell = re.fullmatch(r"RNN_(\d)/RNN/MultiRNNCell/Cell(\d)/LSTMCell/(\w+)", published)
    if cell is None:
        return f"lm/{published}"
    direction, layer, name = cell.groups()
    stack = "" if single_layer else f"multi_rnn_cell/cell_{layer}/"
    return (
        f"lm/RNN_{direction}/rnn/{stack}lstm_cell/" + {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}[name]
    )


def training_variables(arrays: Arrays, projection_dim: int, *, single_layer: bool = False) -> Arrays:
    """Return every variable of a checkpoint: weights, output layer, Adagrad's sums, and the step as a scalar."""
    rng = np.random.default_rng(7)
    variables = {variable_name(name, single_layer=single_layer): array for name, array in arrays.items()}
    variables["lm/softmax/W"] = rng.normal(size=(len(WORDS), projection_dim)).astype(np.float32)
    variables["lm/softmax/b"] = rng.normal(size=len(WORDS)).astype(np.float32)
    sums = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items() if "RNN_0" in name}
    return variables | sums | {"global_step": np.float32(7.0), "train_perplexity": np.float32(1.0)}
