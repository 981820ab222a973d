"""Models of ELMoForManyLangs: 44 languages in a format of their own.

config.json         names the file with the sizes, often by a path on its authors' machine
char.dic, word.dic  one ``token TAB id`` per line
token_embedder.pkl  the character CNN, the word vectors and their projection
encoder.pkl         the LSTMs

The pickles are opened with torch's ``weights_only``, which runs no code, and every name and shape is checked before a
tensor is used.

Shapes: C cells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import torch
from torch import Tensor

from elmokit.config import BiLMConfig, parse_config
from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.text.lines import read_lines
from elmokit.text.spelling import Dictionary
from elmokit.weights.options import read_json_object
from elmokit.weights.saved import SavedBiLM, Shape, all_finite, check_shapes, shapes_of
from elmokit.weights.state_dicts import load_state_dict

# The sizes of all published models, for those whose own file of sizes is not in the folder.
DEFAULT_SIZES: dict[str, Any] = {
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
}
BEGIN, END, UNKNOWN, PAD = "<bos>", "<eos>", "<oov>", "<pad>"
BEGIN_WORD, END_WORD = "<bow>", "<eow>"
# The original program swaps the two markers of a word, in training and in use.
SPECIAL_CHARS = (UNKNOWN, BEGIN, END, END_WORD, BEGIN_WORD, PAD)
STRIPPED = "\u3000"  # the ideographic space: written like any token, and lost when the line is stripped


def read_elmoformanylangs(folder: Path) -> SavedBiLM:
    """Read a model of ELMoForManyLangs from its folder."""
    chars, words = _read_dictionary(folder / "char.dic"), _read_dictionary(folder / "word.dic")
    for kind, found, specials in (("char", chars, SPECIAL_CHARS), ("word", words, (UNKNOWN, BEGIN, END))):
        if missing := [name for name in specials if name not in found]:
            raise WeightsError(f"{folder / kind}.dic: has no {' '.join(missing)}; download the model again")
    sizes = _read_sizes(folder)
    char_order = [
        *(row for name, row in chars.items() if name not in SPECIAL_CHARS),
        *(chars[n] for n in SPECIAL_CHARS),
    ]
    word_specials = (BEGIN, END, UNKNOWN)
    word_order = [
        *(words[n] for n in word_specials),
        *(row for name, row in words.items() if name not in word_specials),
    ]
    dictionary = Dictionary(
        chars=tuple(name for name in chars if name not in SPECIAL_CHARS),
        words=tuple(name for name in words if name not in word_specials),
        begin=BEGIN,
        end=END,
        unknown=UNKNOWN,
    )
    config = _config(sizes, dictionary, str(folder))
    tensors: dict[str, Tensor] = {}
    for name, rows in (("token_embedder.pkl", _encoder_rows(config)), ("encoder.pkl", _lstm_rows(config))):
        tensors |= _convert(load_state_dict(folder / name), rows, source=str(folder / name))
    tensors["char_encoder.char_embedding"] = tensors["char_encoder.char_embedding"][char_order]
    tensors["char_encoder.word_embedding"] = tensors["char_encoder.word_embedding"][word_order]
    about = {"Origin": "read from a model of ELMoForManyLangs"}
    return SavedBiLM(config, tensors, dictionary=dictionary, about=about)


# Sizes and dictionaries


def _read_sizes(folder: Path) -> dict[str, Any]:
    config = read_json_object(folder / "config.json")
    if "token_embedder" in config and "encoder" in config:
        return config
    path = config.get("config_path")
    # The path of another machine, perhaps one with Windows.
    beside = folder / PureWindowsPath(path).name if isinstance(path, str) and path else None
    return read_json_object(beside) if beside is not None and beside.is_file() else DEFAULT_SIZES


def _config(sizes: Mapping[str, Any], dictionary: Dictionary, source: str) -> BiLMConfig:
    embedder, encoder = sizes.get("token_embedder"), sizes.get("encoder")
    if not isinstance(embedder, dict) or not isinstance(encoder, dict):
        raise ConfigError(f"{source}: its config has no token_embedder and encoder; download the model again")
    kinds = (embedder.get("name"), encoder.get("name"))
    if kinds != ("cnn", "elmo"):
        raise ConfigError(f"{source}: token_embedder and encoder are {kinds}; elmokit runs ('cnn', 'elmo') only")
    try:
        values = {
            "char_encoder": {
                "char_dim": embedder["char_dim"],
                "filters": embedder["filters"],
                "num_highway": embedder["n_highway"],
                "activation": embedder["activation"],
                "max_chars": embedder["max_characters_per_token"],
                "num_dictionary_chars": dictionary.num_chars,
            },
            "words": {"num_words": dictionary.num_words, "dim": embedder["word_dim"]},
            "lstm": {
                "cell_dim": encoder["dim"],
                "proj_dim": encoder["projection_dim"],
                "num_layers": encoder["n_layers"],
                "cell_clip": encoder["cell_clip"],
                "proj_clip": encoder["proj_clip"],
                "skip_connections": True,
            },
        }
    except KeyError as error:
        raise ConfigError(f"{source}: its config has no {error}; download the model again") from None
    return parse_config(BiLMConfig, values, source=source)


def _read_dictionary(path: Path) -> dict[str, int]:
    """Return the row of every token, in the order of the rows."""
    rows: dict[str, int] = {}
    try:
        for line in read_lines([path]):
            fields = line.text.strip().split("\t")
            token, row = fields if len(fields) == 2 else (STRIPPED, fields[0])
            if len(fields) > 2 or not (row.isascii() and row.isdigit() and len(row) < 10) or token in rows:
                raise WeightsError(
                    f"{path}, line {line.number}: {line.text[:40]!r}; expected a new token, a tab, an id"
                )
            rows[token] = int(row)
    except InputError as error:
        raise WeightsError(str(error)) from error
    if sorted(rows.values()) != list(range(len(rows))):
        raise WeightsError(f"{path}: its ids are not 0 to {len(rows) - 1:,}, one each; download the model again")
    return dict(sorted(rows.items(), key=lambda item: item[1]))


# Weights


@dataclass(frozen=True)
class Row:
    """One tensor of theirs: its shape, our names for it, and a function that splits it."""

    shape: Shape
    ours: tuple[str, ...]
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda tensor: (tensor,)


def _order_gates(weight: Tensor) -> tuple[Tensor, ...]:
    """Reorder gates from (input, forget, candidate, output) to (input, forget, output, candidate)."""
    return (weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1),)


def _order_bias(bias_C: Tensor) -> tuple[Tensor, ...]:
    # Their forget bias has the 1 in it; our model adds it at run time.
    forget_one = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=bias_C.dtype)
    return _order_gates(bias_C - forget_one.repeat_interleave(len(bias_C) // 4))


def _split_highway(both: Tensor) -> tuple[Tensor, ...]:
    transform, carry = both.chunk(2)
    return transform, -carry  # their gate keeps the input, ours opens the transform


def _encoder_rows(config: BiLMConfig) -> dict[str, Row]:
    ours, encoder = "char_encoder", config.char_encoder
    assert config.words is not None
    rows = {
        "char_emb_layer.embedding.weight": Row((encoder.num_chars, encoder.char_dim), (f"{ours}.char_embedding",)),
        "word_emb_layer.embedding.weight": Row((config.words.num_words, config.words.dim), (f"{ours}.word_embedding",)),
    }
    for i, (width, count) in enumerate(encoder.filters):
        rows[f"convolutions.{i}.weight"] = Row((count, encoder.char_dim, width), (f"{ours}.convs.{i}.weight",))
        rows[f"convolutions.{i}.bias"] = Row((count,), (f"{ours}.convs.{i}.bias",))
    filters = encoder.num_filters
    for k in range(encoder.num_highway):
        for part, shape in (("weight", (2 * filters, filters)), ("bias", (2 * filters,))):
            names = tuple(f"{ours}.highways.{k}.{half}.{part}" for half in ("transform", "gate"))
            rows[f"highways._layers.{k}.{part}"] = Row(shape, names, _split_highway)
    outputs = config.lstm.proj_dim
    rows["projection.weight"] = Row((outputs, config.encoder_dim), (f"{ours}.projection.weight",))
    rows["projection.bias"] = Row((outputs,), (f"{ours}.projection.bias",))
    return rows


def _lstm_rows(config: BiLMConfig) -> dict[str, Row]:
    rows, cells, outputs = {}, config.lstm.cell_dim, config.lstm.proj_dim
    for direction in ("forward", "backward"):
        for index in range(config.lstm.num_layers):
            theirs, ours = f"{direction}_layer_{index}", f"{direction}_lstm.layers.{index}"
            gates = (4 * cells, outputs)
            rows[f"{theirs}.input_linearity.weight"] = Row(gates, (f"{ours}.input_weight",), _order_gates)
            rows[f"{theirs}.state_linearity.weight"] = Row(gates, (f"{ours}.recurrent_weight",), _order_gates)
            rows[f"{theirs}.state_linearity.bias"] = Row((4 * cells,), (f"{ours}.bias",), _order_bias)
            rows[f"{theirs}.state_projection.weight"] = Row((outputs, cells), (f"{ours}.projection",))
    return rows


def _convert(found: dict[str, Tensor], rows: dict[str, Row], *, source: str) -> dict[str, Tensor]:
    check_shapes(shapes_of(found), {name: row.shape for name, row in rows.items()}, source=source)
    tensors: dict[str, Tensor] = {}
    for name, row in rows.items():
        tensor = found.pop(name)
        if tensor.dtype != torch.float32 or not all_finite(tensor.numpy()):
            raise WeightsError(f"{source}: {name} is {tensor.dtype} or holds NaN; expected finite float32")
        parts = row.split(tensor)
        tensors.update((ours, part.contiguous()) for ours, part in zip(row.ours, parts, strict=True))
    return tensors
