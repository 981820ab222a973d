"""The best binary tree over spans, by CKY over all sentences of a batch at once.

A span (i, j) covers the tokens i up to j, 0 <= i < j <= n. Its score is that of its best label. The score of a tree is
the sum over its spans, so the best tree follows from

    best(i, i + 1) = score(i, i + 1)
    best(i, j)     = score(i, j) + max over i < k < j of best(i, k) + best(k, j)

computed for all spans of one length together: the left parts of a span are the shorter spans that begin where it
begins, and its right parts those that end where it ends.

Shapes: B sentences, T tokens of the longest, T + 1 places between tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Span = tuple[int, int]


@torch.no_grad()
def best_trees(scores_BIJ: Tensor, lengths: Sequence[int]) -> list[list[Span]]:
    """Return the spans of the best binary tree per sentence, parents first, from the left.

    Args:
        scores_BIJ: Score of the span (i, j), (B, T + 1, T + 1). Only entries with i < j <= length are read.
        lengths: Tokens per sentence. Of equal splits the first is taken.
    """
    num_sentences, num_places, _ = scores_BIJ.shape
    num_tokens = num_places - 1
    # By start and length, and by end and length: so that the parts of all spans of one length are slices.
    from_start = scores_BIJ.new_zeros(num_sentences, num_places, num_places)
    to_end = scores_BIJ.new_zeros(num_sentences, num_places, num_places)
    splits = torch.zeros(num_sentences, num_places, num_places, dtype=torch.int64)
    for length in range(1, num_tokens + 1):
        best_BS = scores_BIJ.diagonal(length, dim1=1, dim2=2)
        if length > 1:
            left_BSK = from_start[:, : num_places - length, 1:length]
            right_BSK = to_end[:, length:, 1:length].flip(2)
            parts_BS, first_BS = (left_BSK + right_BSK).max(dim=2)
            best_BS = best_BS + parts_BS
            splits[:, : num_places - length, length] = first_BS.cpu() + 1
        from_start[:, : num_places - length, length] = best_BS
        to_end[:, length:, length] = best_BS
    tables = splits.numpy()
    return [_follow(tables[index], length) for index, length in enumerate(lengths)]


def _follow(splits: NDArray[np.int64], length: int) -> list[Span]:
    spans: list[Span] = []
    waiting = [(0, length)]
    while waiting:
        start, end = waiting.pop()
        spans.append((start, end))
        if end - start > 1:
            middle = start + int(splits[start, end - start])
            waiting += [(middle, end), (start, middle)]
    return spans
