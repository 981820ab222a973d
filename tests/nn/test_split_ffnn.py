"""A network on parts against the same network on the parts side by side."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ConfigError
from elmokit.nn.split_ffnn import SplitFFNN

PARTS = (3, 1, 4)


def make_ffnn(*, dropout: float = 0.0, hidden: tuple[int, ...] = (6, 5)) -> SplitFFNN:
    ffnn = SplitFFNN(PARTS, hidden, dropout=dropout).double()
    with torch.no_grad():
        for parameter in ffnn.parameters():
            parameter.normal_()
    return ffnn


def add_parts(ffnn: SplitFFNN, whole_ND: Tensor) -> Tensor:
    parts = whole_ND.split(PARTS, dim=1)
    return sum((part @ piece.t() for part, piece in zip(parts, ffnn.pieces, strict=True)), ffnn.bias)


def plain(ffnn: SplitFFNN, whole_ND: Tensor) -> Tensor:
    """The network's definition."""
    hidden = whole_ND
    for layer in ffnn.layers:
        hidden = functional.relu(functional.linear(hidden, layer.weight, layer.bias))
    return functional.linear(hidden, ffnn.score.weight, ffnn.score.bias)[:, 0]


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (6, 5, 4)])
def test_parts_added_up_equal_parts_side_by_side(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    ffnn = make_ffnn(hidden=hidden)
    whole = torch.randn(7, sum(PARTS), dtype=torch.float64, requires_grad=True)
    found, expected = ffnn(add_parts(ffnn, whole)), plain(ffnn, whole)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(scores.square().sum(), [whole, *ffnn.parameters()]) for scores in (found, expected)]
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.75])
def test_the_share_that_is_dropped_is_the_one_asked_for(rate: float) -> None:
    torch.manual_seed(1)
    ffnn = SplitFFNN((1,), (400,), dropout=rate)
    seen = []
    ffnn.score.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    sums = torch.ones(501, 400)
    ffnn(sums)
    (hidden,) = seen
    kept = hidden > 0
    assert abs(kept.float().mean().item() - (1 - rate)) < 0.005
    torch.testing.assert_close(hidden[kept], torch.full_like(hidden[kept], 1 / (1 - rate)))
    # No row, column or neighbor is dropped more often than the others.
    assert kept.float().mean(dim=0).sub(1 - rate).abs().max() < 0.1
    assert kept.float().mean(dim=1).sub(1 - rate).abs().max() < 0.12
    both = (kept[:, 1:] & kept[:, :-1]).float().mean().item()
    assert abs(both - (1 - rate) ** 2) < 0.01


def test_gradients_flow_through_what_is_kept_and_positive() -> None:
    torch.manual_seed(2)
    ffnn = make_ffnn(dropout=0.4, hidden=(50,))
    seen = []
    ffnn.score.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    sums = torch.randn(31, 50, dtype=torch.float64, requires_grad=True)
    before = sums.detach().clone()
    weighting = torch.randn(31, dtype=torch.float64)
    (ffnn(sums) * weighting).sum().backward()
    alive = seen[0] > 0
    assert 0 < alive.sum() < (before > 0).sum()
    expected = weighting[:, None] * ffnn.score.weight * alive / 0.6
    torch.testing.assert_close(sums.grad, expected)
    assert torch.equal(sums.detach(), before)


def test_nothing_is_dropped_but_in_training_and_masks_follow_the_seed() -> None:
    ffnn = make_ffnn(dropout=0.5)
    sums = torch.randn(9, 6, dtype=torch.float64)

    def scores(seed: int) -> Tensor:
        torch.manual_seed(seed)
        result: Tensor = ffnn(sums)
        return result

    assert torch.equal(scores(3), scores(3))
    assert not torch.equal(scores(3), scores(4))
    ffnn.eval()
    assert torch.equal(scores(3), scores(4))


def test_an_impossible_dropout_is_rejected() -> None:
    with pytest.raises(ConfigError, match="dropout of 1"):
        SplitFFNN((2,), (3,), dropout=1.0)
