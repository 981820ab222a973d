"""Blocks that several task models share. Padding never changes a result.

Shapes: B sequences, T positions, D width, H hidden width per direction; W distinct words, K characters of the
longest, E character width, F filters together.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.errors import ConfigError
from elmokit.model.products import kernels_for

NO_CHAR = 0  # padding of words
LEVELS = 2**16  # resolution of a dropout rate


class Dropout(nn.Module):
    """Dropout that draws its mask in a quarter of torch's time, a large part of a step with wide inputs."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = check_dropout(p)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs; in training, values are zeroed with probability p and the rest scaled by 1 / (1 - p)."""
        if not self.training or self.p == 0:
            return inputs
        dropped: Tensor = _Drop.apply(inputs, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    # y = m * x / (1 - p) and dx = m * dy / (1 - p), with m = 0 for dropped values and 1 for the others.
    # Only the random bits are saved, two bytes per value.
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, p: float) -> Tensor:
        ctx.drawn, ctx.p = _draw_bits(inputs.shape, inputs.device), p
        return _drop(inputs, ctx.drawn, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _drop(grad, ctx.drawn, ctx.p), None


def _drop(values: Tensor, drawn: Tensor, p: float) -> Tensor:
    kernels, scale = kernels_for(values), 1 / (1 - p)
    if kernels is None:
        # A product takes half the time of `masked_fill_`, which branches.
        return (values * scale).mul_(drawn >= _least_kept(p))
    rows = (part.reshape(1, part.numel()) for part in (values, drawn))
    return kernels.drop(*rows, least=_least_kept(p), scale=scale).view(values.shape)


class VariationalDropout(nn.Module):
    """Dropout with one mask for all positions of a sequence (Gal & Ghahramani 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = check_dropout(p)

    def forward(self, inputs_BTD: Tensor) -> Tensor:
        """Return the inputs; in training, columns are zeroed with probability p and the rest scaled by 1 / (1 - p)."""
        if not self.training or self.p == 0:
            return inputs_BTD
        num_sequences, _, width = inputs_BTD.shape
        return inputs_BTD * draw_mask((num_sequences, 1, width), self.p, inputs_BTD)


class CharCNN(nn.Module):
    """Word vectors from characters: embedding, dropout, convolutions, max-pooling, ReLU.

    A filter reads every window that begins on a character of the word; past the end of the word it reads zeros.
    """

    def __init__(self, num_chars: int, char_dim: int, filters: Sequence[tuple[int, int]], *, dropout: float) -> None:
        """``num_chars`` counts the padding character, 0. ``filters`` are (window width, number of filters) pairs."""
        super().__init__()
        self.embedding = nn.Embedding(num_chars, char_dim, padding_idx=NO_CHAR)
        self.convs = nn.ModuleList(nn.Conv1d(char_dim, count, width) for width, count in filters)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize weights Glorot-uniformly, biases with zeros."""
        nn.init.xavier_uniform_(self.embedding.weight)
        with torch.no_grad():
            self.embedding.weight[NO_CHAR] = 0.0
        for conv in self.convs:
            assert isinstance(conv, nn.Conv1d)
            assert conv.bias is not None
            nn.init.xavier_uniform_(conv.weight)
            nn.init.zeros_(conv.bias)

    def forward(self, chars_WK: Tensor) -> Tensor:
        """Return the vectors of distinct words, (W, F)."""
        present_WK = chars_WK != NO_CHAR
        chars_WEK = self.dropout(self.embedding(chars_WK)).transpose(1, 2)
        pooled = []
        for conv in self.convs:
            assert isinstance(conv, nn.Conv1d)
            filtered_WFK = conv(functional.pad(chars_WEK, (0, conv.kernel_size[0] - 1)))
            pooled.append(masked_max(filtered_WFK.transpose(1, 2), present_WK).relu())
        return torch.cat(pooled, dim=1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last dimension where the mask is true, zero elsewhere."""
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1).masked_fill(~mask, 0.0)


def masked_max(inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the maximum over positions, (B, D); zero for an empty sequence."""
    highest_BD = inputs_BTD.masked_fill(~mask_BT[:, :, None], float("-inf")).amax(dim=1)
    return highest_BD.masked_fill(~mask_BT.any(dim=1)[:, None], 0.0)


def masked_mean(inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean over positions, (B, D); zero for an empty sequence."""
    total_BD = inputs_BTD.masked_fill(~mask_BT[:, :, None], 0.0).sum(dim=1)
    return total_BD / mask_BT.sum(dim=1).clamp(min=1)[:, None]


def draw_mask(shape: Sequence[int], p: float, like: Tensor) -> Tensor:
    """Return a dropout mask with dtype and device of ``like``: 0 with probability p, else 1 / (1 - p)."""
    return like.new_full(shape, 1 / (1 - p)).mul_(draw_kept(shape, p, like.device))


def draw_kept(shape: Sequence[int], p: float, device: torch.device) -> Tensor:
    """Return booleans, false with probability p, rounded to 16 bits."""
    return _draw_bits(shape, device) >= _least_kept(p)


def _draw_bits(shape: Sequence[int], device: torch.device) -> Tensor:
    """Return numbers of 16 random bits; one 64-bit draw gives four."""
    count = math.prod(shape)
    bits = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None)
    return bits.view(torch.int16)[:count].view(*shape)


def _least_kept(p: float) -> int:
    """Return the lowest of all numbers of 16 bits that dropout with probability p keeps."""
    return round(p * LEVELS) - LEVELS // 2


def check_dropout(p: float) -> float:
    """Return a dropout rate; raise ConfigError if it is outside [0, 1)."""
    if not 0 <= p < 1:
        raise ConfigError(f"a dropout of {p}; expected 0 <= dropout < 1")
    return p
