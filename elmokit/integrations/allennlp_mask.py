"""Masks as AllenNLP's code used them, and the functions of ``allennlp.nn.util`` that ELMo needs.

Shapes: B sentences, T tokens.
"""

from typing import Any

import torch
from torch import Tensor


class OldMask(Tensor):
    """A Boolean mask from which numbers can be subtracted, as from the integer masks of AllenNLP 0.9: ``1 - mask``."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return masks as masks, and everything else as plain tensors."""
        found = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if isinstance(found, OldMask) and found.dtype != torch.bool:
            return found.as_subclass(Tensor)
        return found

    def __rsub__(self, other: Any) -> Tensor:
        return torch.as_tensor(other, device=self.device) - self.as_subclass(Tensor).long()

    def __sub__(self, other: Any) -> Tensor:
        return self.as_subclass(Tensor).long() - torch.as_tensor(other, device=self.device)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as a plain tensor."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)


def old_mask(mask: Tensor) -> Tensor:
    """Return a Boolean mask as an `OldMask`."""
    return mask.as_subclass(OldMask)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Cut the first and the last token of every sentence: (B, T, …) to (B, T - 2, …), and the same for the mask."""
    kept_BT = mask.as_subclass(Tensor).bool()[
        :, 2:
    ]  # a sentence has a token wherever two positions on it still has one
    shape = (*kept_BT.shape, *[1] * (tensor.ndim - 2))
    return tensor[:, 1:-1] * kept_BT.reshape(shape), old_mask(kept_BT)


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Any, sentence_end_token: Any
) -> tuple[Tensor, Tensor]:
    """Put a token before and after every sentence: (B, T) or (B, T, …) to T + 2, and the mask of the result.

    The tokens are numbers for (B, T), or tensors of the shape of one token.
    """
    plain_BT = mask.as_subclass(Tensor).bool()
    lengths_B, rows_B = plain_BT.sum(dim=1), torch.arange(len(tensor), device=tensor.device)
    bounded = tensor.new_zeros(tensor.shape[0], tensor.shape[1] + 2, *tensor.shape[2:])
    bounded[:, 1:-1] = tensor
    bounded[:, 0] = torch.as_tensor(sentence_begin_token, dtype=tensor.dtype, device=tensor.device)
    end = torch.as_tensor(sentence_end_token, dtype=tensor.dtype, device=tensor.device)
    bounded[rows_B, lengths_B + 1] = end
    positions_T = torch.arange(bounded.shape[1], device=tensor.device)
    return bounded, old_mask(positions_T < lengths_B[:, None] + 2)
