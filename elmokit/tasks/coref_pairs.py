"""Scores of pairs of span and antecedent (Lee et al. 2017, section 4).

A pair is [span; antecedent; their product; features], which is far too wide to build for every pair. Without the part
of the span ``i`` alone, the first layer of the network is ``(B + C diag(g_i)) g_j``: one matrix per span, multiplied by
all its antecedents ``j``. Spans are processed in small blocks that share one range of antecedents, so that each block
is one matrix product.

Shapes: M spans by position, m of a block; A antecedents at most; n of a block; P pairs; D width of a span, F width of
all features, H hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.nn.basic import Dropout
from elmokit.nn.split_ffnn import SplitFFNN

BLOCK = 8  # spans
DISTANCES = torch.tensor([1, 2, 3, 4, 5, 8, 16, 32, 64])  # lower bounds of the 10 distance bins, without the first


@dataclass(frozen=True)
class PairBlock:
    """Some spans, the antecedents of all of them, and the range of their n x m pairs."""

    spans: slice
    antecedents: slice
    pairs: slice


@dataclass(frozen=True)
class PairLayout:
    """All pairs of a document, block by block; some entries of a block are only padding."""

    blocks: list[PairBlock]
    spans_P: Tensor
    antecedents_P: Tensor
    real_P: Tensor
    """True for pairs, false for padding: the antecedent comes before the span, and near enough."""


def lay_out_pairs(num_spans: int, max_antecedents: int) -> PairLayout:
    """Pair every span with at most ``max_antecedents`` nearest ones before it."""
    blocks, spans, antecedents, num_pairs = [], [], [], 0
    for start in range(1, num_spans, BLOCK):  # the first span has no antecedent
        stop = min(start + BLOCK, num_spans)
        first = max(0, start - max_antecedents)
        block_spans, block_antecedents = np.arange(start, stop), np.arange(first, stop - 1)
        size = len(block_spans) * len(block_antecedents)
        blocks.append(PairBlock(slice(start, stop), slice(first, stop - 1), slice(num_pairs, num_pairs + size)))
        spans.append(np.tile(block_spans, len(block_antecedents)))
        antecedents.append(np.repeat(block_antecedents, len(block_spans)))
        num_pairs += size
    nothing = np.empty(0, dtype=np.int64)
    spans_P, antecedents_P = np.concatenate([nothing, *spans]), np.concatenate([nothing, *antecedents])
    distance_P = spans_P - antecedents_P
    real_P = (distance_P > 0) & (distance_P <= max_antecedents)
    return PairLayout(blocks, *map(torch.from_numpy, (spans_P, antecedents_P, real_P)))


class PairScorer(nn.Module):
    """Scores every span with each of its antecedents."""

    def __init__(
        self,
        span_dim: int,
        *,
        max_antecedents: int,
        feature_dim: int,
        hidden_dims: tuple[int, ...],
        dropout: float,
        num_genres: int,
        has_speakers: bool,
    ) -> None:
        """``num_genres`` counts genre 0, which is none; 0 for a model without genres."""
        super().__init__()
        self.max_antecedents = max_antecedents
        self.distances = nn.Embedding(len(DISTANCES) + 1, feature_dim)
        self.same_speaker = nn.Embedding(2, feature_dim) if has_speakers else None
        self.genres = nn.Embedding(num_genres, feature_dim, padding_idx=0) if num_genres else None
        tables = [table for table in (self.distances, self.same_speaker, self.genres) if table is not None]
        for table in tables:
            nn.init.xavier_uniform_(table.weight)
        if self.genres is not None:
            nn.init.zeros_(self.genres.weight[0])
        self.scorer = SplitFFNN((span_dim, span_dim, span_dim, feature_dim * len(tables)), hidden_dims, dropout=dropout)
        self.dropout = Dropout(dropout)

    def forward(self, vectors_MD: Tensor, scores_M: Tensor, *, speakers_M: Tensor | None, genre: int) -> Tensor:
        """Return the scores of the antecedents, (M, A): column 0 is the span before, column 1 the one before that.

        -inf where there is none. The score of "no antecedent" is 0.
        """
        num_columns = min(self.max_antecedents, max(0, len(vectors_MD) - 1))
        layout = lay_out_pairs(len(vectors_MD), num_columns)
        own_HD, plain_HD, product_HD, feature_HF = self.scorer.pieces
        own_MH = nn.functional.linear(vectors_MD, own_HD, self.scorer.bias)
        first_PH: Tensor = _BlockProducts.apply(  # type: ignore[no-untyped-call]
            vectors_MD, own_MH, plain_HD, product_HD, layout.blocks
        )
        features_PF = self._features(layout, speakers_M, genre)
        pairs_P = self.scorer(torch.addmm(first_PH, features_PF, feature_HF.t()))[layout.real_P]
        spans_P, antecedents_P = layout.spans_P[layout.real_P], layout.antecedents_P[layout.real_P]
        total_P = pairs_P + scores_M[spans_P] + scores_M[antecedents_P]
        nowhere_MA = total_P.new_full((len(vectors_MD), num_columns), float("-inf"))
        scores_MA: Tensor = nowhere_MA.index_put((spans_P, spans_P - antecedents_P - 1), total_P)
        return scores_MA

    def _features(self, layout: PairLayout, speakers_M: Tensor | None, genre: int) -> Tensor:
        distance_P = layout.spans_P - layout.antecedents_P
        parts = [self.distances(torch.bucketize(distance_P, DISTANCES, right=True))]
        if self.same_speaker is not None:
            assert speakers_M is not None
            parts.append(self.same_speaker((speakers_M[layout.spans_P] == speakers_M[layout.antecedents_P]).long()))
        if self.genres is not None:
            parts.append(self.genres(torch.full_like(distance_P, genre)))
        features_PF: Tensor = self.dropout(torch.cat(parts, dim=1))
        return features_PF


class _BlockProducts(torch.autograd.Function):
    """First layer of the pair of span i with antecedent j: ``own_i + (plain + product diag(g_i)) g_j``."""

    # With M_i = P + Q diag(g_i), P = plain and Q = product (H, D), and y_ij = own_i + M_i g_j. Given dy_ij:
    #   d own_i = sum over j of dy_ij
    #   dg_j   += M_i^T dy_ij                  (g_j as antecedent)
    #   dM_i    = sum over j of dy_ij g_j^T
    #   dP      = sum over i of dM_i           dQ = sum over i of dM_i diag(g_i)
    #   dg_i   += column sums of (dM_i * Q)    (g_i inside M_i)
    # A block has n antecedents and m spans, so that y, M and dM are single products of (n, D) with (D, m H).

    @staticmethod
    def forward(
        ctx: Any,
        vectors_MD: Tensor,
        own_MH: Tensor,
        plain_HD: Tensor,
        product_HD: Tensor,
        blocks: Sequence[PairBlock],
    ) -> Tensor:
        num_pairs = blocks[-1].pairs.stop if blocks else 0
        first_PH = vectors_MD.new_empty(num_pairs, own_MH.shape[1])
        for block in blocks:
            matrices = _matrices(block, vectors_MD, plain_HD, product_HD).flatten(0, 1)  # (m H, D)
            own = own_MH[block.spans].flatten()
            torch.addmm(
                own, vectors_MD[block.antecedents], matrices.t(), out=first_PH[block.pairs].view(-1, len(matrices))
            )
        ctx.save_for_backward(vectors_MD, plain_HD, product_HD)
        ctx.blocks = blocks
        return first_PH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, first_grad_PH: Tensor) -> tuple[Tensor | None, ...]:
        vectors_MD, plain_HD, product_HD = ctx.saved_tensors
        vectors_grad_MD, product_grad_HD = torch.zeros_like(vectors_MD), torch.zeros_like(product_HD)
        own_grad_MH = vectors_MD.new_zeros(len(vectors_MD), len(plain_HD))
        plain_grad_HD = torch.zeros_like(plain_HD)
        first_grad_PH = first_grad_PH.contiguous()
        for block in ctx.blocks:
            spans_mD, antecedents_nD = vectors_MD[block.spans], vectors_MD[block.antecedents]
            matrices_mHD = _matrices(block, vectors_MD, plain_HD, product_HD)
            grad = first_grad_PH[block.pairs].view(len(antecedents_nD), -1)  # (n, m H)
            own_grad_MH[block.spans] = grad.sum(dim=0).view(len(spans_mD), -1)
            vectors_grad_MD[block.antecedents].addmm_(grad, matrices_mHD.flatten(0, 1))
            matrices_grad_mHD = (grad.t() @ antecedents_nD).view_as(matrices_mHD)
            plain_grad_HD += matrices_grad_mHD.sum(dim=0)
            vectors_grad_MD[block.spans] += torch.mul(matrices_grad_mHD, product_HD, out=matrices_mHD).sum(dim=1)
            product_grad_HD += matrices_grad_mHD.mul_(spans_mD[:, None]).sum(dim=0)
        return vectors_grad_MD, own_grad_MH, plain_grad_HD, product_grad_HD, None


def _matrices(block: PairBlock, vectors_MD: Tensor, plain_HD: Tensor, product_HD: Tensor) -> Tensor:
    """Return M_i of every span of a block, (m, H, D)."""
    return torch.addcmul(plain_HD, vectors_MD[block.spans][:, None], product_HD)
