"""CoVe: the encoder of a translation model as a source of context vectors (McCann et al. 2017).

Two biLSTMs over fixed word vectors. Both layers can be used; the published CoVe is the upper one. The weights come from
training on translation (`elmokit.encoders.translation`), or from the published file.

Shapes: B sentences, T tokens, E width of a word vector, H width per direction, D = 2 H, L = 2 layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elmokit.errors import WeightsError
from elmokit.nn.basic import Dropout

NUM_LAYERS = 2
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
DIRECTIONS = ("", "_reverse")


@dataclass(frozen=True)
class EncodedSource:
    """Layers of the encoder, and the state of each layer at the end of each direction."""

    layers_LBTD: Tensor
    hidden_LBD: Tensor
    cell_LBD: Tensor


class CoVeEncoder(nn.Module):
    """Two stacked biLSTMs; padding never changes a vector.

    Args:
        input_dim: Width of the word vectors.
        hidden_dim: Width per direction; 300 in the paper.
        dropout: Share of the lower layer's outputs that is dropped in training.
    """

    def __init__(self, input_dim: int, hidden_dim: int = 300, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.lower = nn.LSTM(input_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.upper = nn.LSTM(2 * hidden_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.dropout = Dropout(dropout)

    def forward(self, inputs_BTE: Tensor, mask_BT: Tensor) -> EncodedSource:
        """Return both layers, zero on padding, and the final states, forward and backward side by side."""
        lengths_B = mask_BT.sum(dim=1).cpu()
        packed = pack_padded_sequence(inputs_BTE, lengths_B, batch_first=True, enforce_sorted=False)
        lower, lower_state = self.lower(packed)
        upper, upper_state = self.upper(_replace_data(lower, self.dropout(lower.data)))
        num_tokens = mask_BT.shape[1]
        layers = [pad_packed_sequence(one, batch_first=True, total_length=num_tokens)[0] for one in (lower, upper)]
        hidden, cell = zip(lower_state, upper_state, strict=True)
        return EncodedSource(torch.stack(layers), _join_directions(hidden), _join_directions(cell))


def published_names() -> dict[str, str]:
    """Return the name of each tensor of the published file by its name here."""
    return {
        f"{layer}.{part}_l0{direction}": f"{part}_l{number}{direction}"
        for number, layer in enumerate(("lower", "upper"))
        for part in PARTS
        for direction in DIRECTIONS
    }


def from_published(tensors: Mapping[str, Tensor], *, source: str) -> CoVeEncoder:
    """Build an encoder from the tensors of the published file: a plain state dict of a two-layer ``nn.LSTM``."""
    names = published_names()
    if missing := sorted(set(names.values()) - set(tensors)):
        raise WeightsError(f"{source}: no tensor {missing[0]!r} in it; expected the {len(names)} tensors of CoVe")
    input_dim, hidden_dim = tensors["weight_ih_l0"].shape[1], tensors["weight_hh_l0"].shape[1]
    encoder = CoVeEncoder(input_dim, hidden_dim)
    own = encoder.state_dict()
    for name, published in names.items():
        if tensors[published].shape != own[name].shape:
            raise WeightsError(
                f"{source}: {published} has shape {tuple(tensors[published].shape)}; expected {tuple(own[name].shape)}"
            )
    encoder.load_state_dict({name: tensors[published].float() for name, published in names.items()})
    return encoder.eval()


def _replace_data(packed: PackedSequence, data: Tensor) -> PackedSequence:
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _join_directions(states: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([torch.cat([state[0], state[1]], dim=1) for state in states])
