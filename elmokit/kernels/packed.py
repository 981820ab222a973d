"""Weights in the layouts that the kernels read, made once per model.

Shapes: I character ids, E character width; G outputs, P inputs of a matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

FILTER_BLOCK = 32  # BLOCK in char_pool.c
PANEL = 16  # of panels.c
SLICE, TILE = 512, 16  # of int8.c
LARGEST_BYTE = 127


@dataclass(frozen=True)
class CharTables:
    """A character CNN as look-up tables: what each filter answers to each character at each place of its window."""

    table: Tensor  # flat: for every width, for every block of filters, (width, 262, FILTER_BLOCK)
    bias: Tensor
    widths: Tensor
    counts: Tensor  # filters of each width
    activation: Literal["relu", "tanh"]


@dataclass(frozen=True)
class PanelWeight:
    """A matrix (G, P) in panels of PANEL outputs."""

    panels: Tensor  # (panels, P, PANEL)
    num_outputs: int
    num_inputs: int


@dataclass(frozen=True)
class Int8Weight:
    """A matrix (G, P) of eight-bit numbers, with one scale per output and slice of inputs."""

    packed: Tensor  # flat: for every slice, (tiles, columns / 2, TILE, 2)
    scales: Tensor  # (slices, tiles * TILE)
    num_outputs: int
    num_inputs: int


def build_char_tables(
    char_embedding: Tensor, convs: Sequence[tuple[Tensor, Tensor]], *, activation: Literal["relu", "tanh"]
) -> CharTables:
    """Multiply every character with every filter once.

    ``char_embedding`` is (261, E), without the row of the mask id; ``convs`` are (weight, bias) as in ``nn.Conv1d``.
    """
    embedding_IE = functional.pad(char_embedding.detach().double(), (0, 0, 1, 0))
    blocks = []
    for weight, _ in convs:
        answers = torch.einsum("ie,new->win", embedding_IE, weight.detach().double())
        answers = functional.pad(answers, (0, -weight.shape[0] % FILTER_BLOCK))
        blocks.append(answers.unflatten(2, (-1, FILTER_BLOCK)).permute(2, 0, 1, 3).flatten())
    return CharTables(
        table=torch.cat(blocks).float(),
        bias=torch.cat([bias.detach() for _, bias in convs]).float(),
        widths=torch.tensor([weight.shape[2] for weight, _ in convs], device="cpu"),
        counts=torch.tensor([weight.shape[0] for weight, _ in convs], device="cpu"),
        activation=activation,
    )


@dataclass(frozen=True)
class ConvGradients:
    """The gradients of what `build_char_tables` multiplied."""

    char_embedding: Tensor  # (261, E)
    weights: list[Tensor]  # (filters, E, width) each


def conv_gradients(table_grad: Tensor, char_embedding: Tensor, weights: Sequence[Tensor]) -> ConvGradients:
    """From the gradient of the tables back to the characters' vectors and the filters."""
    embedding_IE = functional.pad(char_embedding.detach(), (0, 0, 1, 0))
    embedding_grad_IE = torch.zeros_like(embedding_IE)
    weight_grads, first = [], 0
    for weight in weights:
        count, _, width = weight.shape
        num_blocks = -(-count // FILTER_BLOCK)
        shape = num_blocks, width, len(embedding_IE), FILTER_BLOCK
        size = math.prod(shape)
        answers_grad_winB = table_grad[first : first + size].view(shape).permute(1, 2, 0, 3)
        answers_grad_win = answers_grad_winB.reshape(width, len(embedding_IE), -1)[:, :, :count]
        weight_grads.append(torch.einsum("ie,win->new", embedding_IE, answers_grad_win))
        embedding_grad_IE += torch.einsum("win,new->ie", answers_grad_win, weight.detach())
        first += size
    return ConvGradients(embedding_grad_IE[1:], weight_grads)


def pack_panels(weight_GP: Tensor) -> PanelWeight:
    """Lay a matrix out so that a product reads it from beginning to end."""
    num_outputs, num_inputs = weight_GP.shape
    weight_GP = functional.pad(weight_GP.detach(), (0, 0, 0, -num_outputs % PANEL))
    panels = weight_GP.unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()
    return PanelWeight(panels, num_outputs, num_inputs)


def quantise(weight_GP: Tensor) -> Int8Weight:
    """Round a matrix to eight bits, each output's slice of inputs to its own largest value."""
    num_outputs, num_inputs = weight_GP.shape
    packed, scales = [], []
    for slice_Gp in functional.pad(weight_GP.detach().float(), (0, 0, 0, -num_outputs % TILE)).split(SLICE, dim=1):
        rounded_Gp, scale_G = _round(slice_Gp)
        rounded_Gp = functional.pad(rounded_Gp, (0, slice_Gp.shape[1] % 2))
        packed.append(rounded_Gp.unflatten(0, (-1, TILE)).unflatten(2, (-1, 2)).transpose(1, 2).flatten())
        scales.append(scale_G)
    return Int8Weight(torch.cat(packed), torch.stack(scales), num_outputs, num_inputs)


def round_to_int8(weight_GP: Tensor) -> Tensor:
    """The matrix as `quantise` keeps it, in float32: what is multiplied with where there are no kernels."""
    slices = [_round(slice_Gp) for slice_Gp in weight_GP.detach().float().split(SLICE, dim=1)]
    return torch.cat([rounded_Gp * scale_G[:, None] for rounded_Gp, scale_G in slices], dim=1)


def _round(slice_Gp: Tensor) -> tuple[Tensor, Tensor]:
    scale_G = slice_Gp.abs().amax(dim=1) / LARGEST_BYTE
    scale_G = torch.where(scale_G == 0, 1.0, scale_G)
    return (slice_Gp / scale_G[:, None]).round().to(torch.int8), scale_G
