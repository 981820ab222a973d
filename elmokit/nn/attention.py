"""Attention between the tokens of two texts, or within one.

Padding is never attended to, and its own result is zero.

Shapes: B examples, T query tokens, S key tokens, D their width, H width of the merged vectors.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.nn.basic import masked_softmax

INITIAL_NOTHING = -1.0


class TrilinearScores(nn.Module):
    """Attention score of two tokens: ``w_k . k + w_x . x + (w_d * x) . k + bias`` (Seo et al. 2017)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(dim))
        self.key_weight = nn.Parameter(torch.empty(dim))
        self.dot_weight = nn.Parameter(torch.empty(dim))
        self.bias = nn.Parameter(torch.zeros(()))
        limit = (3 / dim) ** 0.5  # Glorot's, for a vector in TensorFlow
        for weight in (self.input_weight, self.key_weight, self.dot_weight):
            nn.init.uniform_(weight, -limit, limit)

    def forward(self, inputs_BTD: Tensor, keys_BSD: Tensor) -> Tensor:
        """Return the scores, (B, T, S)."""
        products_BTS = (inputs_BTD * self.dot_weight) @ keys_BSD.transpose(1, 2)
        from_inputs_BT, from_keys_BS = inputs_BTD @ self.input_weight, keys_BSD @ self.key_weight
        return products_BTS + from_inputs_BT[:, :, None] + from_keys_BS[:, None, :] + self.bias


class BiAttention(nn.Module):
    """Attention from context to question and from question to context, merged (Seo et al. 2017).

    A context token x becomes ``merge([x, seen, x * seen, x * asked])``. ``seen`` is the question as attended by x.
    ``asked``, one vector per text, is the context as attended by its best match among the question's tokens. The four
    parts are never concatenated: three of their products with the weight have a cheaper form.
    """

    def __init__(self, dim: int, output_dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)
        self.merge = nn.Linear(4 * dim, output_dim)
        nn.init.xavier_uniform_(self.merge.weight)
        nn.init.zeros_(self.merge.bias)

    def forward(
        self, context_BTD: Tensor, context_mask_BT: Tensor, question_BSD: Tensor, question_mask_BS: Tensor
    ) -> Tensor:
        """Return the merged context tokens, (B, T, H)."""
        context_BTD = _without_padding(context_BTD, context_mask_BT)
        question_BSD = _without_padding(question_BSD, question_mask_BS)
        scores_BTS = self.scores(context_BTD, question_BSD)
        weights_BTS = masked_softmax(scores_BTS, question_mask_BS[:, None, :])
        best_BT = scores_BTS.masked_fill(~question_mask_BS[:, None, :], float("-inf")).amax(dim=2)
        asked_B1D = masked_softmax(best_BT, context_mask_BT)[:, None, :] @ context_BTD
        x_HD, seen_HD, both_HD, asked_HD = self.merge.weight.chunk(4, dim=1)
        # asked is one vector per text, so it is folded into the weight; the short question is projected first.
        merged_BTH = context_BTD @ (x_HD + asked_HD * asked_B1D).mT + weights_BTS @ (question_BSD @ seen_HD.t())
        both_BTD = context_BTD * (weights_BTS @ question_BSD)
        return _without_padding(merged_BTH + functional.linear(both_BTD, both_HD, self.merge.bias), context_mask_BT)


class SelfAttention(nn.Module):
    """Attention of the tokens of a text to each other, or to nothing (Clark & Gardner 2018).

    The weight of another token is ``exp(score) / (sum of exp(scores) + exp(nothing))`` with a trained ``nothing``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)
        self.nothing = nn.Parameter(torch.tensor(INITIAL_NOTHING))

    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return every token x as [seen, x, seen * x], (B, T, 3 D)."""
        inputs_BTD = _without_padding(inputs_BTD, mask_BT)
        num_examples, num_tokens, _ = inputs_BTD.shape
        itself_TT = torch.eye(num_tokens, dtype=torch.bool, device=mask_BT.device)
        hidden_BTT = ~mask_BT[:, None, :] | itself_TT
        scores_BTT = self.scores(inputs_BTD, inputs_BTD).masked_fill(hidden_BTT, float("-inf"))
        # As one more key of the softmax, which is stable for scores of any size.
        nothing_BT1 = self.nothing.expand(num_examples, num_tokens, 1)
        weights_BTT = torch.cat([scores_BTT, nothing_BT1], dim=2).softmax(dim=2)[:, :, :-1]
        seen_BTD = _without_padding(weights_BTT @ inputs_BTD, mask_BT)
        return torch.cat([seen_BTD, inputs_BTD, seen_BTD * inputs_BTD], dim=2)


def soft_align(
    left_BTD: Tensor, left_mask_BT: Tensor, right_BSD: Tensor, right_mask_BS: Tensor
) -> tuple[Tensor, Tensor]:
    """Return each text as attended by the other's tokens, (B, T, D) and (B, S, D), by dot products (ESIM)."""
    left_BTD = _without_padding(left_BTD, left_mask_BT)
    right_BSD = _without_padding(right_BSD, right_mask_BS)
    scores_BTS = left_BTD @ right_BSD.transpose(1, 2)
    seen_by_left_BTD = masked_softmax(scores_BTS, right_mask_BS[:, None, :]) @ right_BSD
    seen_by_right_BSD = masked_softmax(scores_BTS.transpose(1, 2), left_mask_BT[:, None, :]) @ left_BTD
    return _without_padding(seen_by_left_BTD, left_mask_BT), _without_padding(seen_by_right_BSD, right_mask_BS)


def self_biattention(inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return every token x as [x, x - seen, x * seen], (B, T, 3 D); it attends to itself too (McCann et al. 2017)."""
    inputs_BTD = _without_padding(inputs_BTD, mask_BT)
    scores_BTT = inputs_BTD @ inputs_BTD.transpose(1, 2)
    seen_BTD = masked_softmax(scores_BTT, mask_BT[:, None, :]) @ inputs_BTD
    seen_BTD = _without_padding(seen_BTD, mask_BT)
    return torch.cat([inputs_BTD, inputs_BTD - seen_BTD, inputs_BTD * seen_BTD], dim=2)


def _without_padding(inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    if mask_BT.dtype != torch.bool or mask_BT.shape != inputs_BTD.shape[:2]:
        raise InputError(
            f"tokens of shape {tuple(inputs_BTD.shape)} with a mask of {mask_BT.dtype} and shape "
            f"{tuple(mask_BT.shape)}; expected torch.bool of shape {tuple(inputs_BTD.shape[:2])}"
        )
    return inputs_BTD.masked_fill(~mask_BT[:, :, None], 0.0)
