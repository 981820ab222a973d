"""Rename the biLM's tensors in a state dict that AllenNLP saved.

AllenNLP orders the gates differently, adds the forget gate's 1 to the bias, has a row of zeros for the mask id, and
stores both halves of a highway in one matrix, the gate's negated.

Shapes: C cells.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

OLD_BILM = "_elmo_lstm."
NEW_BILM = "bilm."


@dataclass(frozen=True)
class Row:
    """A pattern of AllenNLP's names, our names for it, and a function that splits the tensor."""

    pattern: str
    ours: tuple[str, ...]
    """Names, with the groups of the pattern as {0}, {1}; empty for tensors that are dropped."""
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda tensor: (tensor,)


def _order_gates(weight: Tensor) -> tuple[Tensor, ...]:
    """Reorder gates from (input, forget, candidate, output) to (input, forget, output, candidate)."""
    return (weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1),)


def _order_bias(bias_C: Tensor) -> tuple[Tensor, ...]:
    # Our model adds the forget gate's 1 itself, as bilm-tf does.
    forget_one = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=bias_C.dtype, device=bias_C.device)
    return _order_gates(bias_C - forget_one.repeat_interleave(len(bias_C) // 4))


def _split_highway(both: Tensor) -> tuple[Tensor, ...]:
    transform, carry = both.chunk(2)
    return transform, -carry


ENCODER, LAYER = r"_token_embedder\.", r"_elmo_lstm\.(forward|backward)_layer_(\d+)\."
TABLE = (
    Row(ENCODER + "_char_embedding_weights", ("char_encoder.char_embedding",), lambda rows: (rows[1:],)),
    Row(ENCODER + r"char_conv_(\d+)\.(weight|bias)", ("char_encoder.convs.{0}.{1}",)),
    Row(
        ENCODER + r"_highways\._layers\.(\d+)\.(weight|bias)",
        ("char_encoder.highways.{0}.transform.{1}", "char_encoder.highways.{0}.gate.{1}"),
        _split_highway,
    ),
    Row(ENCODER + r"_projection\.(weight|bias)", ("char_encoder.projection.{0}",)),
    Row(LAYER + r"input_linearity\.weight", ("{0}_lstm.layers.{1}.input_weight",), _order_gates),
    Row(LAYER + r"state_linearity\.weight", ("{0}_lstm.layers.{1}.recurrent_weight",), _order_gates),
    Row(LAYER + r"state_linearity\.bias", ("{0}_lstm.layers.{1}.bias",), _order_bias),
    Row(LAYER + r"state_projection\.weight", ("{0}_lstm.layers.{1}.projection",)),
    # The characters of the boundaries and the token layer of vocab_to_cache follow from the rest.
    Row(ENCODER + "_(beginning|end)_of_sentence_characters", (), lambda _: ()),
    Row(r"_word_embedding\.weight|_bos_embedding|_eos_embedding", (), lambda _: ()),
)


def rename_allennlp_weights(_module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Replace AllenNLP's tensors of a biLM under ``prefix`` by ours; a hook for a module's ``load_state_dict``.

    An unknown name stays, so that loading can report it.
    """
    for name in [name for name in state_dict if name.startswith(prefix + OLD_BILM)]:
        for row in TABLE:
            if match := re.fullmatch(row.pattern, name.removeprefix(prefix + OLD_BILM)):
                parts = row.split(state_dict.pop(name))
                names = [prefix + NEW_BILM + ours.format(*match.groups()) for ours in row.ours]
                state_dict.update(zip(names, parts, strict=True))
                break
