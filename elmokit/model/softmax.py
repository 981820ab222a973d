"""The language model's output layer: probabilities of words after a context, and the training loss.

The loss and its gradients are written by hand: the logits are the largest tensor of a training step, and this way
they are computed once, in pieces, and never copied. A full softmax is the sampled one with all words as candidates.

Shapes: N positions, n of them in a piece, P width, V words, K candidates, R distinct words that got a gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.kernels.cross_entropy import EntropyGrads, cross_entropy
from elmokit.kernels.panels import BF16, FP32
from elmokit.model.directions import core_threads, run_both
from elmokit.model.products import TorchProduct, exact_product, kernels_for
from elmokit.model.uncompiled import uncompiled

PIECE_BYTES = 4 * 2**20  # of logits at once: what is near the processor, for they are read several times
FEWEST_ROWS = 128  # of logits at once, whatever they take: they share a visit to all words' weights
MOST_PACKED = 2**24  # most candidate weights to pack, twice, for the compiled kernel
WORDS_AT_ONCE, POSITIONS_AT_ONCE = 1024, 256  # of logits where nothing is learned: tiles that stay in the cache
FEWEST_PACKED = 64  # positions that make up for packing the weights


class Softmax(nn.Module):
    """One weight vector and one bias per word, shared by both directions."""

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_words, dim))
        self.bias = nn.Parameter(torch.zeros(num_words))
        nn.init.normal_(self.weight, std=dim**-0.5)

    @uncompiled
    @torch.no_grad()
    def negative_log_probs(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Return the negative log-probability of each target over the whole vocabulary, in nats, (N,).

        The matrix of positions by words is computed tile by tile; only the sums of its rows are stored. Each core takes
        half of the words.
        """
        true_N = (hidden_NP * self.weight[targets_N]).sum(dim=1) + self.bias[targets_N]
        tiles = _pieces(len(self.bias), size=WORDS_AT_ONCE)
        halves = tiles[: len(tiles) // 2], tiles[len(tiles) // 2 :]
        calls = [(self, hidden_NP, true_N, half) for half in halves]
        (top_N, total_N), (other_top_N, other_total_N) = run_both(core_threads(hidden_NP.device), _sum_powers, *calls)
        most_N = torch.maximum(top_N, other_top_N)
        total_N = total_N * (top_N - most_N).exp_() + other_total_N * (other_top_N - most_N).exp_()
        return (total_N.log_() + most_N - true_N).clamp_(min=0.0)  # of rounding


@torch.no_grad()  # here, because the setting is per thread
def _sum_powers(softmax: Softmax, hidden_NP: Tensor, floor_N: Tensor, tiles: Sequence[slice]) -> tuple[Tensor, Tensor]:
    """Return each position's largest logit among some words, at least ``floor_N``, and the sum of its powers."""
    make = exact_product if len(hidden_NP) >= FEWEST_PACKED else TorchProduct
    top_N, total_N = floor_N.clone(), torch.zeros_like(floor_N)
    for words in tiles:
        product, bias_v = make(softmax.weight[words]), softmax.bias[words]
        for piece in _pieces(len(hidden_NP), size=POSITIONS_AT_ONCE):
            hidden_nP, lower_n = hidden_NP[piece], top_N[piece].clone()
            logits_nv = bias_v.repeat(len(hidden_nP), 1)
            product.add_to(logits_nv, hidden_nP)
            _, top_N[piece], sum_n = _powers(logits_nv, lower_n)
            total_N[piece] = total_N[piece] * (lower_n - top_N[piece]).exp_() + sum_n
    return top_N, total_N


@dataclass(frozen=True)
class Candidates:
    """Sampled words, with the logarithm of their expected counts in the sample."""

    ids_K: Tensor
    log_expected_K: Tensor
    log_expected_targets_N: Tensor


@dataclass(frozen=True)
class LossGrads:
    """A loss summed over positions, and its gradients; the softmax's are given for the words it touched."""

    loss: Tensor
    hidden_NP: Tensor
    rows_R: Tensor  # ids of those words, rising
    weight_RP: Tensor
    bias_R: Tensor


@uncompiled
@torch.no_grad()
def full_loss(softmax: Softmax, hidden_NP: Tensor, targets_N: Tensor, *, mixed: bool = False) -> LossGrads:
    """Return the cross-entropy over the whole vocabulary."""
    every_V = torch.arange(len(softmax.bias), device=hidden_NP.device)
    candidates = every_V, softmax.bias, softmax.weight, softmax.bias[targets_N]
    return _cross_entropy(softmax, hidden_NP, targets_N, *candidates, mixed=mixed)


@uncompiled
@torch.no_grad()
def sampled_loss(
    softmax: Softmax, hidden_NP: Tensor, targets_N: Tensor, candidates: Candidates, *, mixed: bool = False
) -> LossGrads:
    """Return the cross-entropy against sampled words, each logit minus ln of its expected count, as in TensorFlow.

    A candidate that is the position's own target does not count against it. With ``mixed``, products are in bfloat16
    where the kernels compute them; logits and their sums are float32.
    """
    ids_K = candidates.ids_K
    offset_K = softmax.bias[ids_K] - candidates.log_expected_K
    true_offset_N = softmax.bias[targets_N] - candidates.log_expected_targets_N
    parts = ids_K, offset_K, softmax.weight[ids_K], true_offset_N
    return _cross_entropy(softmax, hidden_NP, targets_N, *parts, mixed=mixed)


# Position n has hidden state h, target y with its logit t = h . w_y + o_y, and candidates k with logits
# l_k = h . w_k + o_k, where o is the bias, less ln of the expected count if sampled; k = y is left out.
#   Z = e^t + sum_k e^(l_k)        loss = ln Z - t
# Backward, with p_k = e^(l_k) / Z and p_y = e^t / Z:
#   dL/dl_k = p_k                  dL/dt = p_y - 1
#   dL/dh   = sum_k p_k w_k + (p_y - 1) w_y
#   dL/dw_k = sum_n p_k h          dL/do_k = sum_n p_k          (and with p_y - 1 for the targets)
# All powers are taken of logits minus their largest, which cancels.
def _cross_entropy(
    softmax: Softmax,
    hidden_NP: Tensor,
    targets_N: Tensor,
    ids_K: Tensor,
    offset_K: Tensor,
    weight_KP: Tensor,
    true_offset_N: Tensor,
    *,
    mixed: bool,
) -> LossGrads:
    column_V = torch.full((len(softmax.bias),), -1, dtype=torch.long, device=hidden_NP.device)
    column_V[ids_K] = torch.arange(len(ids_K), device=hidden_NP.device)
    own_column_N = column_V[targets_N]  # where a target stands among the candidates, -1 if it does not
    true_weight_NP = softmax.weight[targets_N]
    true_N = (hidden_NP * true_weight_NP).sum(dim=1) + true_offset_N

    parts = hidden_NP, weight_KP, offset_K, own_column_N, true_N
    kernels = kernels_for(hidden_NP)
    if kernels is not None and weight_KP.numel() <= MOST_PACKED:
        found = cross_entropy(kernels, *parts, items=BF16 if mixed else FP32)
    else:
        found = _compare_in_pieces(*parts)
    true_grad_N = found.target_N
    hidden_grad_NP = found.hidden_NP.addcmul_(true_grad_N[:, None], true_weight_NP)
    rows_R, place = torch.cat([ids_K, targets_N]).unique(return_inverse=True)
    true_weight_grad_NP = true_grad_N[:, None] * hidden_NP
    weight_RP = weight_KP.new_zeros(len(rows_R), weight_KP.shape[1])
    weight_RP.index_add_(0, place, torch.cat([found.weight_KP, true_weight_grad_NP]))
    bias_R = offset_K.new_zeros(len(rows_R)).index_add_(0, place, torch.cat([found.offset_K, true_grad_N]))
    return LossGrads(found.loss, hidden_grad_NP, rows_R, weight_RP, bias_R)


def _compare_in_pieces(
    hidden_NP: Tensor, weight_KP: Tensor, offset_K: Tensor, own_column_N: Tensor, true_N: Tensor
) -> EntropyGrads:
    """Do the same as `cross_entropy` on any device and type, and with vocabularies too large to pack."""
    loss = hidden_NP.new_zeros((), dtype=torch.double)
    hidden_grad_NP = torch.empty_like(hidden_NP)
    weight_grad_KP = torch.zeros_like(weight_KP)
    bias_grad_K = torch.zeros_like(offset_K)
    true_grad_N = torch.empty_like(true_N)
    for piece in _pieces(len(hidden_NP), size=max(FEWEST_ROWS, PIECE_BYTES // (4 * max(1, len(weight_KP))))):
        logits_nK = torch.addmm(offset_K, hidden_NP[piece], weight_KP.t())
        hit_n = (own_column_N[piece] >= 0).nonzero().squeeze(1)
        logits_nK[hit_n, own_column_N[piece][hit_n]] = -torch.inf
        # The target's own logit is apart, so the shift and the sum take it in by hand.
        powers_nK, top_n, total_n = _powers(logits_nK, true_N[piece])
        true_power_n = (true_N[piece] - top_n).exp_()
        total_n += true_power_n
        loss += (total_n.log() + top_n - true_N[piece]).sum(dtype=torch.double)
        # Probabilities are powers divided by their total; the smaller factors of each product are divided instead.
        share_n = total_n.reciprocal()
        true_grad_N[piece] = true_power_n * share_n - 1
        torch.mm(powers_nK, weight_KP, out=hidden_grad_NP[piece]).mul_(share_n[:, None])
        weight_grad_KP.addmm_(powers_nK.t(), hidden_NP[piece] * share_n[:, None])
        bias_grad_K.addmv_(powers_nK.t(), share_n)
    return EntropyGrads(loss, hidden_grad_NP, weight_grad_KP, bias_grad_K, true_grad_N)


def _powers(logits_nK: Tensor, apart_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp(logit - largest of its row), in place; the largest, ``apart_n`` included; and the sums of rows."""
    kernels = kernels_for(logits_nK)
    if kernels is not None:
        top_n = apart_n.clone()
        return logits_nK, top_n, kernels.powers(logits_nK, top_n)
    top_n = torch.maximum(logits_nK.amax(dim=1), apart_n)
    powers_nK = logits_nK.sub_(top_n[:, None]).exp_()
    return powers_nK, top_n, powers_nK.sum(dim=1)


def _pieces(count: int, *, size: int) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
