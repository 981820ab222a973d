"""A biLM off disk, before it is a module: its config and its tensors by name.

Shapes: L LSTM layers, C cells, P width of an LSTM layer's input and output, F filters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.text.spelling import Dictionary
from elmokit.text.vocab import Vocab

Shape = tuple[int, ...]
Source = str | Path | tuple[str | Path, str | Path]
"""A folder or an archive with a model, the name of a model, or the pair of published options and weights.

`elmokit.weights.locating` knows the formats and file names.
"""

# Far above every model there is, and low enough that a hostile config cannot exhaust memory with names alone.
MAX_DEPTH = 100
MAX_PARAMETERS = 10**11

NAMES_IN_MESSAGE = 5


@dataclass(frozen=True, eq=False)
class SavedBiLM:
    """Everything that a saved biLM holds."""

    config: BiLMConfig
    tensors: dict[str, Tensor]
    """The state dict of ``elmokit.model.bilm.BiLM``, float32; see ``expected_shapes``."""
    options: dict[str, Any] | None = None
    """The published options exactly as they were read; None for a model born here."""
    start_state: dict[str, Tensor] | None = None
    """The state in which ``warm`` sentences start; see ``start_state_shapes``. None if it was never computed."""
    dictionary: Dictionary | None = None
    """The characters and words of a model that does not read bytes."""
    about: dict[str, str] = field(default_factory=dict)
    """Facts for the model card that came with the files: origin, language, creators."""


@dataclass(frozen=True, eq=False)
class SavedSoftmax:
    """The output layer of a saved language model, and the words it can predict."""

    weight_VP: Tensor
    bias_V: Tensor
    vocab: Vocab


def expected_shapes(config: BiLMConfig, *, source: str | Path) -> dict[str, Shape]:
    """Name and shape of every tensor of a biLM, without building it. ``source`` names the config in errors."""
    encoder, lstm = config.char_encoder, config.lstm
    depth = max(encoder.num_highway, lstm.num_layers, len(encoder.filters))
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"{source}: a stack of {depth} filters, highways or LSTM layers; elmokit reads models of up to {MAX_DEPTH}"
        )
    filters, cells, outputs = encoder.num_filters, lstm.cell_dim, lstm.proj_dim
    shapes: dict[str, Shape] = {}
    if encoder.filters:
        shapes["char_encoder.char_embedding"] = (encoder.num_chars, encoder.char_dim)
    if config.words:
        shapes["char_encoder.word_embedding"] = (config.words.num_words, config.words.dim)
    for i, (width, count) in enumerate(encoder.filters):
        shapes[f"char_encoder.convs.{i}.weight"] = (count, encoder.char_dim, width)
        shapes[f"char_encoder.convs.{i}.bias"] = (count,)
    for k in range(encoder.num_highway):
        for part in ("gate", "transform"):
            shapes[f"char_encoder.highways.{k}.{part}.weight"] = (filters, filters)
            shapes[f"char_encoder.highways.{k}.{part}.bias"] = (filters,)
    if config.has_token_projection:
        shapes["char_encoder.projection.weight"] = (outputs, config.encoder_dim)
        shapes["char_encoder.projection.bias"] = (outputs,)
    for direction in ("forward", "backward"):
        for index in range(lstm.num_layers):
            layer = f"{direction}_lstm.layers.{index}"
            shapes[f"{layer}.input_weight"] = (4 * cells, outputs)
            shapes[f"{layer}.recurrent_weight"] = (4 * cells, outputs)
            shapes[f"{layer}.bias"] = (4 * cells,)
            if lstm.has_projection:
                shapes[f"{layer}.projection"] = (outputs, cells)
    if sum(prod(shape) for shape in shapes.values()) > MAX_PARAMETERS:
        raise ConfigError(
            f"{source}: a model of more than {MAX_PARAMETERS:,} parameters; check its sizes, none so large is read"
        )
    return shapes


def start_state_shapes(config: BiLMConfig) -> dict[str, Shape]:
    """Name and shape of every tensor of a start state: what each LSTM layer remembers before a sentence."""
    lstm = config.lstm
    widths = {"hidden": lstm.proj_dim, "cell": lstm.cell_dim}
    return {
        f"{direction}.{part}": (lstm.num_layers, width)
        for direction in ("forward", "backward")
        for part, width in widths.items()
    }


def check_saved(saved: SavedBiLM, *, source: str) -> None:
    """Reject tensors that are missing, unknown, or not of the shapes that the config gives."""
    check_dictionary(saved.dictionary, saved.config, source=source)
    check_shapes(shapes_of(saved.tensors), expected_shapes(saved.config, source=source), source=source)
    if saved.start_state is not None:
        check_shapes(shapes_of(saved.start_state), start_state_shapes(saved.config), source=f"{source}, start state")


def check_dictionary(dictionary: Dictionary | None, config: BiLMConfig, *, source: str) -> None:
    """Reject a dictionary that is missing, not needed, or not of the sizes that the config gives."""
    if (dictionary is None) != config.reads_bytes:
        needed = "reads bytes, but has a dictionary" if dictionary else "needs a dictionary, and has none"
        raise WeightsError(f"{source}: the model {needed}; the config and the dictionary are of different models")
    if dictionary is None:
        return
    expected = {
        "characters": config.char_encoder.num_dictionary_chars,
        "words": config.words and config.words.num_words,
    }
    for kind, found in (("characters", dictionary.num_chars), ("words", dictionary.num_words)):
        if expected[kind] is not None and expected[kind] != found:
            raise WeightsError(
                f"{source}: the dictionary has {found:,} {kind} with the special ones; the config says "
                f"{expected[kind]:,}, so the config and the dictionary are of different models"
            )


def check_reads_bytes(config: BiLMConfig, *, purpose: str) -> None:
    """Reject a model with a dictionary of its own where only bytes are supported."""
    if not config.reads_bytes:
        raise InputError(
            f"the model reads words by a dictionary of its own; {purpose} supports models that read bytes, such as "
            "those of bilm-tf with char_cnn and those trained by elmokit"
        )


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Name and shape of every tensor given."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(found: Mapping[str, Shape], expected: Mapping[str, Shape], *, source: str) -> None:
    """Reject names that are missing or unknown, and shapes that are not the expected ones."""
    if missing := sorted(expected.keys() - found.keys()):
        raise WeightsError(
            f"{source}: {list_names(missing)} missing; the config and the weights are of different models"
        )
    if unknown := sorted(found.keys() - expected.keys()):
        raise WeightsError(
            f"{source}: {list_names(unknown)} unknown; the config and the weights are of different models"
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise WeightsError(
                f"{source}: {name} has shape {found[name]}; the config says {shape}, "
                "so the config and the weights are of different models"
            )


def all_finite(array: NDArray[np.float32]) -> bool:
    """Return True if no value is NaN or infinite, without a temporary of the array's size."""
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def list_names(names: list[str]) -> str:
    """Return the first few names for a message, and the number of the others."""
    shown = ", ".join(names[:NAMES_IN_MESSAGE])
    more = len(names) - NAMES_IN_MESSAGE
    return f"{shown} and {more} more" if more > 0 else shown
