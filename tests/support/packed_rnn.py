"""torch's own recurrent layers on a padded batch: the oracle of ours."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def read_packed(rnn: nn.RNNBase, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the outputs of all sequences, zero on padding."""
    packed, _ = rnn(pack_padded_sequence(inputs_BTD, mask_BT.sum(dim=1), batch_first=True, enforce_sorted=False))
    outputs_BTD, _ = pad_packed_sequence(packed, batch_first=True, total_length=mask_BT.shape[1])
    return outputs_BTD
