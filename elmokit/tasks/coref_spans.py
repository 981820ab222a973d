"""Scores of all spans of a document, and selection of the best (Lee et al. 2017, section 4).

Spans form a grid: row t has those that begin at token t, column w those of w + 1 tokens. Shared parts are computed once
per token; the vectors of whole spans are computed for the kept ones only.

Shapes: T tokens of a document, W tokens of the longest span, E width of the inputs, C width of the contexts, F width of
a feature, H hidden width, M kept spans, D width of a span.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from elmokit.nn.basic import Dropout
from elmokit.nn.split_ffnn import SplitFFNN

LEAST_KEPT = 16  # spans, or all; ``per_token`` alone would keep too few of a short text


@dataclass(frozen=True)
class KeptSpans:
    """Best spans of a document, sorted by first token, then by last."""

    starts_M: Tensor
    lasts_M: Tensor  # included
    scores_M: Tensor
    vectors_MD: Tensor


@dataclass(frozen=True)
class _ScoredSpans:
    """Scores of the grid, and the parts of the vectors of kept spans."""

    scores_TW: Tensor
    widths_TWF: Tensor
    attention_TWW: Tensor


class SpanScorer(nn.Module):
    """Scores all spans and keeps the best.

    The vector of a span is [context of its first token; of its last; embedding of its width; its head]. The head is a
    mean of its tokens' inputs, weighted by trained attention.
    """

    def __init__(
        self,
        input_dim: int,
        context_dim: int,
        *,
        max_width: int,
        feature_dim: int,
        hidden_dims: tuple[int, ...],
        dropout: float,
    ) -> None:
        super().__init__()
        self.max_width = max_width
        self.span_dim = 2 * context_dim + feature_dim + input_dim
        self.widths = nn.Embedding(max_width, feature_dim)
        nn.init.xavier_uniform_(self.widths.weight)
        self.attention = nn.Linear(context_dim, 1, bias=False)  # a bias would cancel in the softmax
        self.scorer = SplitFFNN((context_dim, context_dim, feature_dim, input_dim), hidden_dims, dropout=dropout)
        self.dropout = Dropout(dropout)

    def forward(self, inputs_TE: Tensor, contexts_TC: Tensor, left_T: Tensor, *, per_token: float) -> KeptSpans:
        """Keep ``per_token`` times as many spans as there are tokens.

        ``left_T`` counts the tokens from each to the end of its sentence, itself included.
        """
        spans = self._score(inputs_TE, contexts_TC)
        columns_W = torch.arange(self.max_width, device=left_T.device)
        inside_TW = columns_W < left_T[:, None]
        starts_S, columns_S = inside_TW.nonzero().unbind(dim=1)
        num_kept = max(int(per_token * len(left_T)), min(LEAST_KEPT, len(starts_S)))
        kept_M = keep_best(
            spans.scores_TW.detach()[inside_TW].cpu().numpy(),
            starts_S.cpu().numpy(),
            (starts_S + columns_S).cpu().numpy(),
            num_kept,
        )
        starts_M, columns_M = starts_S[kept_M], columns_S[kept_M]
        lasts_M = starts_M + columns_M
        tokens_MW = (starts_M[:, None] + columns_W).clamp(max=len(left_T) - 1)  # attention is zero past the span
        heads_ME = functional.embedding_bag(
            tokens_MW, inputs_TE, mode="sum", per_sample_weights=spans.attention_TWW[starts_M, columns_M]
        )
        parts = [contexts_TC[starts_M], contexts_TC[lasts_M], spans.widths_TWF[starts_M, columns_M], heads_ME]
        return KeptSpans(starts_M, lasts_M, spans.scores_TW[starts_M, columns_M], torch.cat(parts, dim=1))

    def _score(self, inputs_TE: Tensor, contexts_TC: Tensor) -> _ScoredSpans:
        """Score the grid; spans past the end of their sentence are in it, with meaningless scores."""
        start_HC, last_HC, width_HF, head_HE = self.scorer.pieces
        grid = (len(inputs_TE), self.max_width)
        attention_TWW = self._attend(contexts_TC)
        columns_W = torch.arange(self.max_width, device=inputs_TE.device)
        widths_TWF = self.dropout(self.widths(columns_W).expand(*grid, -1))
        # A head is linear in its tokens, so these are projected before they are summed.
        first_TWH = torch.baddbmm(
            self._windows(contexts_TC @ last_HC.t()), attention_TWW, self._windows(inputs_TE @ head_HE.t())
        )
        first_TWH = first_TWH + functional.linear(contexts_TC, start_HC, self.scorer.bias)[:, None]
        first_TWH = first_TWH + widths_TWF @ width_HF.t()
        scores_TW = self.scorer(first_TWH.flatten(0, 1)).view(grid)
        return _ScoredSpans(scores_TW, widths_TWF, attention_TWW)

    def _attend(self, contexts_TC: Tensor) -> Tensor:
        """Return the attention of every span to its tokens, (T, W, W); zero past its last."""
        scores_TW = self._windows(self.attention(contexts_TC)).squeeze(2)
        past_WW = torch.ones(self.max_width, self.max_width, dtype=torch.bool, device=contexts_TC.device).triu(1)
        return scores_TW[:, None].masked_fill(past_WW, float("-inf")).softmax(dim=2)

    def _windows(self, rows_TH: Tensor) -> Tensor:
        """Return every row and the W - 1 after it, zeros past the end of the document: a view, (T, W, H)."""
        padded = functional.pad(rows_TH, (0, 0, 0, self.max_width - 1))
        return padded.unfold(0, self.max_width, 1).transpose(1, 2)


def keep_best(
    scores_S: NDArray[np.float32], starts_S: NDArray[np.int64], lasts_S: NDArray[np.int64], num_kept: int
) -> NDArray[np.int64]:
    """Return the indices of the best spans, sorted; none of them crosses a better one.

    Two spans cross if they overlap and neither contains the other. Of equal scores, the first is better.
    """
    order = np.argsort(-scores_S, kind="stable")
    num_tokens = int(lasts_S.max(initial=-1)) + 1
    furthest_last, nearest_start = [-1] * num_tokens, [num_tokens] * num_tokens  # of kept spans that begin, end there
    kept: list[int] = []
    for place, start, last in zip(order.tolist(), starts_S[order].tolist(), lasts_S[order].tolist(), strict=True):
        if len(kept) == num_kept:
            break
        if max(furthest_last[start + 1 : last + 1], default=-1) > last:
            continue
        if min(nearest_start[start:last], default=num_tokens) < start:
            continue
        kept.append(place)
        furthest_last[start] = max(furthest_last[start], last)
        nearest_start[last] = min(nearest_start[last], start)
    return np.array(sorted(kept), dtype=np.int64)
