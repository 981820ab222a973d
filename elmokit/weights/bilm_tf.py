"""The published format: options.json and an HDF5 file, as bilm-tf writes them and AllenNLP reads them.

One table says how each published array becomes tensors of ours and how these become the array again, so that reading
and writing cannot drift apart. Everything is moved, nothing computed: what is read is written back bit for bit.

Shapes: C cells, P width of an LSTM layer's input and output.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import atomic_file
from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError, ElmokitWarning, InputError, WeightsError
from elmokit.text.spelling import Dictionary
from elmokit.text.vocab import SPECIAL_WORDS, Vocab
from elmokit.weights.options import config_from_options, options_from_config, read_json_object, unknown_option_keys
from elmokit.weights.safe_hdf5 import read_datasets, write_datasets
from elmokit.weights.saved import SavedBiLM, SavedSoftmax, Shape, check_saved, expected_shapes, list_names

# Gate blocks: bilm-tf has (input, candidate, forget, output), we have (input, forget, output, candidate).
OURS_FROM_PUBLISHED = [0, 2, 3, 1]
PUBLISHED_FROM_OURS = [0, 3, 1, 2]


@dataclass(frozen=True)
class Layout:
    """Layout of one published array in our tensors, and back."""

    split: Callable[[Tensor], tuple[Tensor, ...]]
    join: Callable[[tuple[Tensor, ...]], Tensor]
    shape: Callable[[Shape], Shape]
    """The array's shape, from that of our tensor; where it holds two, they have the same."""


def _order_gates(weight: Tensor, order: list[int]) -> Tensor:
    """Put the four blocks of rows into another order."""
    return weight.view(4, -1, *weight.shape[1:])[order].view(weight.shape)


def _split_kernel(kernel: Tensor) -> tuple[Tensor, ...]:
    # Rows are [input; what the layer put out a step before]. To transpose first is the fast way round.
    return tuple(_order_gates(half.T.contiguous(), OURS_FROM_PUBLISHED) for half in kernel.chunk(2))


def _join_kernel(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([_order_gates(part, PUBLISHED_FROM_OURS).T for part in parts])


AS_IS = Layout(split=lambda array: (array,), join=lambda parts: parts[0], shape=lambda ours: ours)
TRANSPOSED = Layout(
    split=lambda array: (array.T.contiguous(),),
    join=lambda parts: parts[0].T.contiguous(),
    shape=lambda ours: ours[::-1],
)
CONVOLUTION = Layout(
    split=lambda array: (array.squeeze(0).permute(2, 1, 0).contiguous(),),
    join=lambda parts: parts[0].permute(2, 1, 0).unsqueeze(0).contiguous(),
    shape=lambda ours: (1, *ours[::-1]),
)
KERNEL = Layout(split=_split_kernel, join=_join_kernel, shape=lambda ours: (2 * ours[1], ours[0]))
GATES = Layout(
    split=lambda array: (_order_gates(array, OURS_FROM_PUBLISHED),),
    join=lambda parts: _order_gates(parts[0], PUBLISHED_FROM_OURS),
    shape=lambda ours: ours,
)


@dataclass(frozen=True)
class Row:
    """One published array and the tensors of ours that it holds."""

    published: str
    ours: tuple[str, ...]
    layout: Layout


def weight_table(config: BiLMConfig) -> list[Row]:
    """Every array of a published model of this shape."""
    return list(_rows(config))


def _rows(config: BiLMConfig) -> Iterator[Row]:
    encoder = "char_encoder"
    if config.words:
        yield Row("embedding", (f"{encoder}.word_embedding",), AS_IS)
    if config.char_encoder.filters:
        yield Row("char_embed", (f"{encoder}.char_embedding",), AS_IS)
    for i in range(len(config.char_encoder.filters)):
        yield Row(f"CNN/W_cnn_{i}", (f"{encoder}.convs.{i}.weight",), CONVOLUTION)
        yield Row(f"CNN/b_cnn_{i}", (f"{encoder}.convs.{i}.bias",), AS_IS)
    for k in range(config.char_encoder.num_highway):
        # What is called "carry" gates the transformed half.
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            yield Row(f"CNN_high_{k}/W_{theirs}", (f"{encoder}.highways.{k}.{ours}.weight",), TRANSPOSED)
            yield Row(f"CNN_high_{k}/b_{theirs}", (f"{encoder}.highways.{k}.{ours}.bias",), AS_IS)
    if config.has_token_projection:
        yield Row("CNN_proj/W_proj", (f"{encoder}.projection.weight",), TRANSPOSED)
        yield Row("CNN_proj/b_proj", (f"{encoder}.projection.bias",), AS_IS)
    for number, direction in enumerate(("forward_lstm", "backward_lstm")):
        for index in range(config.lstm.num_layers):
            cell, layer = f"RNN_{number}/RNN/MultiRNNCell/Cell{index}/LSTMCell", f"{direction}.layers.{index}"
            yield Row(f"{cell}/W_0", (f"{layer}.input_weight", f"{layer}.recurrent_weight"), KERNEL)
            yield Row(f"{cell}/B", (f"{layer}.bias",), GATES)
            if config.lstm.has_projection:
                yield Row(f"{cell}/W_P_0", (f"{layer}.projection",), TRANSPOSED)


def published_shapes(config: BiLMConfig, *, source: str | Path = "the options") -> dict[str, Shape]:
    """Name and shape of every published array, from the shapes of our tensors."""
    shapes = expected_shapes(config, source=source)
    return {row.published: row.layout.shape(shapes[row.ours[0]]) for row in weight_table(config)}


@dataclass(frozen=True)
class ReadOptions:
    """Published options, what they say about the model, and the words of a model that reads word ids."""

    options: dict[str, Any]
    config: BiLMConfig
    vocab: Vocab | None


def read_options(path: str | Path, vocab: Vocab | None = None) -> ReadOptions:
    """Read an options file; a model that reads word ids needs its vocabulary."""
    options = read_json_object(Path(path))
    if "char_cnn" in options:
        return ReadOptions(options, config_from_options(options, source=str(path)), None)
    if vocab is None:
        raise WeightsError(
            f"{path}: no char_cnn, so the model reads word ids; put the vocabulary that it was trained with beside it, "
            "as vocab.txt, and name the folder"
        )
    config = config_from_options(options, source=str(path), num_words=len(vocab))
    return ReadOptions(options, config, vocab)


def read_bilm_tf(options_path: str | Path, weights_path: str | Path, vocab: Vocab | None = None) -> SavedBiLM:
    """Read a published model; warn once of options and datasets that are left aside.

    ``vocab`` is needed only for a model that reads word ids.
    """
    read = read_options(options_path, vocab)
    found = read_datasets(weights_path, published_shapes(read.config, source=options_path))
    _warn_of_unknown(unknown_option_keys(read.options), found.unknown, f"{options_path}, {weights_path}")
    return saved_from_arrays(read, found.arrays)


def saved_from_arrays(read: ReadOptions, arrays: dict[str, NDArray[np.float32]]) -> SavedBiLM:
    """Build a model of published arrays; they are taken out of ``arrays``."""
    tensors: dict[str, Tensor] = {}
    for row in weight_table(read.config):
        # Each array is released once it is copied, so that memory holds the model about once.
        parts = row.layout.split(torch.from_numpy(arrays.pop(row.published)))
        tensors.update(zip(row.ours, parts, strict=True))
    if read.vocab is None:
        return SavedBiLM(read.config, tensors, options=read.options)
    # Our word table begins with the boundaries and the unknown word, as the vocabularies of bilm-tf nearly always do.
    specials = [read.vocab.id(word) for word in SPECIAL_WORDS]
    order = [*specials, *(row for row in range(len(read.vocab)) if row not in specials)]
    table = "char_encoder.word_embedding"
    tensors[table] = tensors[table][order]
    words = tuple(read.vocab.words[row] for row in order[len(specials) :])
    return SavedBiLM(read.config, tensors, options=read.options, dictionary=Dictionary((), words))


def read_softmax(path: str | Path, config: BiLMConfig, vocab: Vocab) -> SavedSoftmax:
    """Read an output layer that was published as an HDF5 file of its own: ``softmax/W`` and ``softmax/b``."""
    shapes: dict[str, Shape] = {"softmax/W": (len(vocab), config.lstm.proj_dim), "softmax/b": (len(vocab),)}
    arrays = read_datasets(path, shapes, given_by="options and the vocabulary").arrays
    return SavedSoftmax(torch.from_numpy(arrays["softmax/W"]), torch.from_numpy(arrays["softmax/b"]), vocab)


def write_bilm_tf(saved: SavedBiLM, options_path: str | Path, weights_path: str | Path) -> None:
    """Write a model in the published format. It has no place for a start state: that is computed again at load."""
    if saved.config.char_encoder.num_dictionary_chars is not None:
        raise InputError("the published format has no place for a dictionary of characters; keep elmokit's folder")
    options = _options_to_write(saved)
    check_saved(saved, source="the model to write")
    arrays = {
        row.published: row.layout.join(tuple(saved.tensors[name].detach().cpu() for name in row.ours)).numpy()
        for row in weight_table(saved.config)
    }
    with atomic_file(weights_path) as weights_file, atomic_file(options_path) as options_file:
        write_datasets(weights_file, arrays)
        options_file.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
    if saved.dictionary is not None:  # without its words, a model that reads word ids is of no use
        vocab = Vocab([*SPECIAL_WORDS, *saved.dictionary.words])
        with atomic_file(Path(options_path).with_name("vocab.txt")) as vocab_file:
            vocab_file.write_text(vocab.to_text(), encoding="utf-8")


def _options_to_write(saved: SavedBiLM) -> dict[str, Any]:
    if saved.options is None:
        return options_from_config(saved.config)
    num_words = saved.config.words.num_words if saved.config.words else None
    if config_from_options(saved.options, source="the published options", num_words=num_words) != saved.config:
        raise ConfigError(
            "the published options kept with the model say otherwise than its config; "
            "set options to None to write options made from the config"
        )
    return saved.options


def _warn_of_unknown(options: list[str], datasets: list[str], source: str) -> None:
    parts = []
    if options:
        parts.append(f"options {list_names(options)}")
    if datasets:
        parts.append(f"datasets {list_names(datasets)}")
    if parts:
        message = f"{source}: left aside unknown {' and '.join(parts)}; the vectors are as without them"
        warnings.warn(message, ElmokitWarning, stacklevel=3)
