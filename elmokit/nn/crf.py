"""Linear-chain CRF: likelihood of tag sequences, and Viterbi decoding under rules.

Shapes: B sentences, T tokens, K tags.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.metrics.tags import ViterbiRules
from elmokit.nn.padding import sequence_lengths

IMPOSSIBLE = float("-inf")


class LinearChainCRF(nn.Module):
    """Scores a sequence by the sum of its emissions and transitions (Lafferty et al. 2001).

    There are no scores for the first and the last tag. Rules apply to decoding, never to the likelihood.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))  # from row to column
        nn.init.xavier_normal_(self.transitions)

    def log_likelihood(self, emissions_BTK: Tensor, tags_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the log-probability of the tags of each sentence, (B,)."""
        _check_shapes(emissions_BTK, mask_BT, len(self.transitions))
        sequence_lengths(mask_BT)  # rejects gaps and empty sentences
        # Padding is never read, neither its scores nor its tags, which may be invalid.
        emissions_BTK = emissions_BTK.masked_fill(~mask_BT[:, :, None], 0.0)
        score_B = _path_scores(emissions_BTK, self.transitions, tags_BT.masked_fill(~mask_BT, 0), mask_BT)
        log_total_B = _log_total(emissions_BTK, self.transitions, mask_BT)
        # If no path is possible, the result is -inf; -inf - -inf would be NaN.
        return score_B - log_total_B.masked_fill(log_total_B == IMPOSSIBLE, 0.0)


@dataclass(frozen=True, eq=False)
class RuleScores:
    """Rules as scores that are added to a path: 0 where allowed, -inf where forbidden."""

    transitions_KK: Tensor
    start_K: Tensor
    end_K: Tensor


def rule_scores(rules: ViterbiRules, like: Tensor) -> RuleScores:
    """Return rules as scores with dtype and device of ``like``."""
    allowed = (torch.from_numpy(part).to(like.device) for part in (rules.transitions_KK, rules.start_K, rules.end_K))
    return RuleScores(*[like.new_zeros(part.shape).masked_fill(~part, IMPOSSIBLE) for part in allowed])


def viterbi_decode(scores_TK: Tensor, transitions_KK: Tensor, start_K: Tensor, end_K: Tensor) -> list[int]:
    """Return the best path through the scores of one sentence; -inf forbids a tag or a transition."""
    mask_1T = torch.ones(1, len(scores_TK), dtype=torch.bool, device=scores_TK.device)
    return decode_batch(scores_TK[None], mask_1T, transitions_KK, start_K, end_K)[0]


@torch.no_grad()
def decode_batch(
    scores_BTK: Tensor, mask_BT: Tensor, transitions_KK: Tensor, start_K: Tensor, end_K: Tensor
) -> list[list[int]]:
    """Return the best path through the scores of every sentence; of equals, the first in the order of tags."""
    _check_shapes(scores_BTK, mask_BT, len(transitions_KK))
    lengths_B = sequence_lengths(mask_BT)
    best_BK = scores_BTK[:, 0] + start_K
    stay_K = torch.arange(len(start_K), device=scores_BTK.device)
    back_pointers = []
    for step in range(1, scores_BTK.shape[1]):
        going_B1 = mask_BT[:, step, None]
        reached_BK, from_BK = (best_BK[:, :, None] + transitions_KK).max(dim=1)
        best_BK = torch.where(going_B1, reached_BK + scores_BTK[:, step], best_BK)
        back_pointers.append(torch.where(going_B1, from_BK, stay_K))
    score_B, tag_B = (best_BK + end_K).max(dim=1)
    _check_possible(score_B)
    path = [tag_B]
    for from_BK in reversed(back_pointers):
        path.append(from_BK.gather(1, path[-1][:, None]).squeeze(1))
    paths_BT = torch.stack(path[::-1], dim=1).tolist()
    return [tags[:length] for tags, length in zip(paths_BT, lengths_B.tolist(), strict=True)]


def _path_scores(emissions_BTK: Tensor, transitions_KK: Tensor, tags_BT: Tensor, mask_BT: Tensor) -> Tensor:
    emitted_BT = emissions_BTK.gather(2, tags_BT[:, :, None]).squeeze(2)
    moved_BT = transitions_KK[tags_BT[:, :-1], tags_BT[:, 1:]].masked_fill(~mask_BT[:, 1:], 0.0)
    return emitted_BT.sum(dim=1) + moved_BT.sum(dim=1)


def _log_total(emissions_BTK: Tensor, transitions_KK: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the logarithm of the sum of exp(score) over all paths, (B,), by the forward algorithm."""
    first_BK, *others = emissions_BTK.unbind(dim=1)
    so_far_BK = first_BK
    for emitted_BK, going_B in zip(others, mask_BT[:, 1:].unbind(dim=1), strict=True):
        reached_BK = _log_sum_exp(so_far_BK[:, :, None] + transitions_KK) + emitted_BK
        so_far_BK = torch.where(going_B[:, None], reached_BK, so_far_BK)
    return _log_sum_exp(so_far_BK)


def _log_sum_exp(scores: Tensor) -> Tensor:
    """Return log-sum-exp over dimension 1. Unlike torch's, its gradient is zero where every score is -inf, not NaN."""
    top = scores.detach().amax(dim=1)
    top = top.masked_fill(top == IMPOSSIBLE, 0.0)
    total = (scores - top.unsqueeze(1)).exp().sum(dim=1)
    none = total == 0
    return total.masked_fill(none, 1.0).log().masked_fill(none, IMPOSSIBLE) + top


def _check_shapes(scores_BTK: Tensor, mask_BT: Tensor, num_tags: int) -> None:
    if scores_BTK.shape != (*mask_BT.shape, num_tags):
        raise InputError(
            f"scores of shape {tuple(scores_BTK.shape)}, a mask of shape {tuple(mask_BT.shape)} and {num_tags} tags; "
            "expected (sentences, tokens, tags), in agreement with the mask and the transitions"
        )


def _check_possible(score_B: Tensor) -> None:
    impossible_B = ~(score_B > IMPOSSIBLE)  # also NaN
    if bool(impossible_B.any()):
        row = int(impossible_B.nonzero()[0])
        raise InputError(
            f"sentence {row} of a batch has no possible tags: the best score is {float(score_B[row])}; "
            "check for rules that leave no path, or for scores that are not finite"
        )
