"""Weights of a biLM under AllenNLP's names, in both directions, so that its task models load here and ours there.

AllenNLP orders the gates differently, adds the forget gate's 1 to the bias, has a row of zeros for the mask id, and
stores both halves of a highway in one matrix, the gate's negated.

Shapes: C cells.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.config import BiLMConfig

BILM = "bilm."
# These follow from the rest: the characters of the boundaries, and the token layer of vocab_to_cache.
DROPPED = (
    "_token_embedder._beginning_of_sentence_characters",
    "_token_embedder._end_of_sentence_characters",
    *("_word_embedding.weight", "_bos_embedding", "_eos_embedding"),
)


@dataclass(frozen=True)
class Row:
    """One tensor of AllenNLP's, the tensors of ours that it holds, and both conversions."""

    theirs: str
    ours: tuple[str, ...]
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda tensor: (tensor,)
    join: Callable[[tuple[Tensor, ...]], Tensor] = lambda parts: parts[0]


def _order_gates(weight: Tensor) -> Tensor:
    """Exchange the gates (…, candidate, output) and (…, output, candidate); twice, it changes nothing."""
    exchanged: Tensor = weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1)
    return exchanged


def _forget_one(bias_C: Tensor) -> Tensor:
    # Our model adds the forget gate's 1 itself, as bilm-tf does.
    one = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=bias_C.dtype, device=bias_C.device)
    return one.repeat_interleave(len(bias_C) // 4)


def _split_highway(both: Tensor) -> tuple[Tensor, ...]:
    transform, carry = both.chunk(2)
    return transform, -carry


def _rows(config: BiLMConfig) -> Iterator[Row]:
    theirs, ours = "_token_embedder", "char_encoder"
    yield Row(
        f"{theirs}._char_embedding_weights",
        (f"{ours}.char_embedding",),
        lambda rows: (rows[1:],),
        lambda parts: functional.pad(parts[0], (0, 0, 1, 0)),
    )
    for kind in ("weight", "bias"):
        for i in range(len(config.char_encoder.filters)):
            yield Row(f"{theirs}.char_conv_{i}.{kind}", (f"{ours}.convs.{i}.{kind}",))
        for k in range(config.char_encoder.num_highway):
            halves = tuple(f"{ours}.highways.{k}.{half}.{kind}" for half in ("transform", "gate"))
            yield Row(
                f"{theirs}._highways._layers.{k}.{kind}",
                halves,
                _split_highway,
                lambda parts: torch.cat([parts[0], -parts[1]]),
            )
        if config.has_token_projection:
            yield Row(f"{theirs}._projection.{kind}", (f"{ours}.projection.{kind}",))
    for direction in ("forward", "backward"):
        for index in range(config.lstm.num_layers):
            layer, cell = f"_elmo_lstm.{direction}_layer_{index}", f"{direction}_lstm.layers.{index}"
            for part, name in (("input", "input_weight"), ("state", "recurrent_weight")):
                yield Row(
                    f"{layer}.{part}_linearity.weight",
                    (f"{cell}.{name}",),
                    lambda weight: (_order_gates(weight),),
                    lambda parts: _order_gates(parts[0]),
                )
            yield Row(
                f"{layer}.state_linearity.bias",
                (f"{cell}.bias",),
                lambda bias_C: (_order_gates(bias_C - _forget_one(bias_C)),),
                lambda parts: _order_gates(parts[0]) + _forget_one(parts[0]),
            )
            if config.lstm.has_projection:
                yield Row(f"{layer}.state_projection.weight", (f"{cell}.projection",))


def from_allennlp(config: BiLMConfig, state_dict: dict[str, Any], prefix: str) -> None:
    """Replace AllenNLP's tensors under ``prefix`` by ours, in place. An unknown name stays, so that it is reported."""
    for row in _rows(config):
        if prefix + row.theirs in state_dict:
            parts = row.split(state_dict.pop(prefix + row.theirs))
            state_dict.update(zip((prefix + BILM + name for name in row.ours), parts, strict=True))
    for name in DROPPED:
        state_dict.pop(prefix + name, None)


def to_allennlp(config: BiLMConfig, state_dict: dict[str, Any], prefix: str) -> None:
    """Replace our tensors under ``prefix`` by AllenNLP's, in place."""
    for row in _rows(config):
        names = [prefix + BILM + name for name in row.ours]
        if all(name in state_dict for name in names):
            state_dict[prefix + row.theirs] = row.join(tuple(state_dict.pop(name) for name in names))
