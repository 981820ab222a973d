"""Weights in the layouts that the kernels read, made once per model.

Shapes: I character ids, E character width, N filters of one width w, B filters in a block, t places in all blocks;
G outputs, P inputs of a matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

FILTER_BLOCK = 32  # BLOCK in char_pool.c
PANEL = 16  # of panels.c
SLICE, TILE = 512, 16  # of int8.h
LARGEST_BYTE = 127
QUAD, BYTE_OFFSET = 4, 128  # of bytes.h


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

    packed: Tensor  # flat: for every slice, (tiles, columns / 2, TILE, 2), or (tiles, columns / 4, TILE, 4)
    scales: Tensor  # (slices, tiles * TILE)
    num_outputs: int
    num_inputs: int


def build_char_tables(
    char_embedding: Tensor,
    convs: Sequence[tuple[Tensor, Tensor]],
    *,
    activation: Literal["relu", "tanh"],
    precision: torch.dtype = torch.double,
) -> CharTables:
    """Multiply every character with every filter once, in this precision: training takes float32, a fifth of the time.

    ``char_embedding`` is (261, E), without the row of the mask id; ``convs`` are (weight, bias) as in ``nn.Conv1d``.
    """
    embedding_IE = functional.pad(char_embedding.detach().to(precision), (0, 0, 1, 0))
    weights_tEB = torch.cat([_to_blocks(weight.detach().to(precision)) for weight, _ in convs])
    return CharTables(
        table=torch.matmul(embedding_IE, weights_tEB).float().flatten(),
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
    blocks = [_to_blocks(weight.detach()) for weight in weights]
    grad_tIB = table_grad.view(-1, len(embedding_IE), FILTER_BLOCK)
    embedding_grad_IE = torch.bmm(grad_tIB, torch.cat(blocks).transpose(1, 2)).sum(dim=0)
    block_grads = torch.matmul(embedding_IE.t(), grad_tIB).split([len(part) for part in blocks])
    weight_grads = [_from_blocks(part, weight.shape) for part, weight in zip(block_grads, weights, strict=True)]
    return ConvGradients(embedding_grad_IE[1:], weight_grads)


def _to_blocks(weight_NEw: Tensor) -> Tensor:
    """Return filters in the layout of the tables: (blocks x places, E, FILTER_BLOCK)."""
    padded = functional.pad(weight_NEw, (0, 0, 0, 0, 0, -len(weight_NEw) % FILTER_BLOCK))
    blocks: Tensor = padded.unflatten(0, (-1, FILTER_BLOCK))
    return blocks.permute(0, 3, 2, 1).flatten(0, 1)


def _from_blocks(blocks_tEB: Tensor, shape: torch.Size) -> Tensor:
    """Return filters in the layout of ``nn.Conv1d``, of this shape."""
    blocks: Tensor = blocks_tEB.unflatten(0, (-1, shape[2]))
    return blocks.permute(0, 3, 2, 1).flatten(0, 1)[: shape[0]]


def quantize(weight_GP: Tensor) -> Int8Weight:
    """Round a matrix to eight bits, each output's slice of inputs to its own largest value."""
    num_outputs, num_inputs = weight_GP.shape
    packed, scales = [], []
    for slice_Gp in functional.pad(weight_GP.detach().float(), (0, 0, 0, -num_outputs % TILE)).split(SLICE, dim=1):
        rounded_Gp, scale_G = _round(slice_Gp)
        rounded_Gp = functional.pad(rounded_Gp, (0, slice_Gp.shape[1] % 2))
        packed.append(rounded_Gp.unflatten(0, (-1, TILE)).unflatten(2, (-1, 2)).transpose(1, 2).flatten())
        scales.append(scale_G)
    return Int8Weight(torch.cat(packed), torch.stack(scales), num_outputs, num_inputs)


def quantize_to_bytes(weight_GP: Tensor) -> Int8Weight:
    """Round a matrix as `quantize` does and lay it out for products with eight-bit inputs, 128 added."""
    rounded, scales, num_outputs, num_inputs = [], [], *weight_GP.shape
    for slice_Gp in functional.pad(weight_GP.detach().float(), (0, 0, 0, -num_outputs % TILE)).split(SLICE, dim=1):
        rounded_Gp, scale_G = _round(slice_Gp)
        offset_Gp = functional.pad(rounded_Gp, (0, -slice_Gp.shape[1] % QUAD)).view(torch.uint8) ^ BYTE_OFFSET
        rounded.append(offset_Gp.unflatten(0, (-1, TILE)).unflatten(2, (-1, QUAD)).transpose(1, 2).flatten())
        scales.append(scale_G)
    return Int8Weight(torch.cat(rounded), torch.stack(scales), num_outputs, num_inputs)


def pack_bf16(weight_GP: Tensor) -> Tensor:
    """Round a matrix to bfloat16 and lay it out as `quantize` does."""
    packed = []
    for slice_Gp in functional.pad(weight_GP.detach(), (0, 0, 0, -len(weight_GP) % TILE)).split(SLICE, dim=1):
        rounded_Gp = functional.pad(slice_Gp.bfloat16(), (0, slice_Gp.shape[1] % 2))
        packed.append(rounded_Gp.unflatten(0, (-1, TILE)).unflatten(2, (-1, 2)).transpose(1, 2).flatten())
    return torch.cat(packed)


def round_to_int8(weight_GP: Tensor) -> Tensor:
    """Return the matrix rounded as by `quantize`, in float32, for products without kernels."""
    slices = [_round(slice_Gp) for slice_Gp in weight_GP.detach().float().split(SLICE, dim=1)]
    return torch.cat([rounded_Gp * scale_G[:, None] for rounded_Gp, scale_G in slices], dim=1)


def _round(slice_Gp: Tensor) -> tuple[Tensor, Tensor]:
    scale_G = slice_Gp.abs().amax(dim=1) / LARGEST_BYTE
    scale_G = torch.where(scale_G == 0, 1.0, scale_G)
    return (slice_Gp / scale_G[:, None]).round().to(torch.int8), scale_G
