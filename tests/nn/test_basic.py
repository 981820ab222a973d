"""Shared layers against plain loops; what stands on padding never counts."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ConfigError
from elmokit.nn import basic
from elmokit.nn.basic import CharCNN, Dropout, VariationalDropout, masked_max, masked_mean, masked_softmax

LENGTHS = [2, 5, 1, 3]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def junk(inputs: Tensor, value: float) -> Tensor:
    return inputs.masked_fill(~MASK[:, :, None], value)


def test_dropout_has_one_mask_a_sequence_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    layer = VariationalDropout(0.25)
    inputs = torch.rand(50, 7, 40) + 1
    factors = layer(inputs) / inputs
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
    kept = factors[factors > 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.75))
    assert abs((factors[:, 0] == 0).float().mean() - 0.25) < 0.03
    assert not torch.equal(factors[0], factors[1])
    assert layer.eval()(inputs) is inputs


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5])
def test_dropout_leaves_a_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    layer = Dropout(p)
    inputs = torch.randn(301, 33, requires_grad=True)
    outputs = layer(inputs)
    dropped = outputs == 0
    assert abs(dropped.float().mean() - p) < 0.02
    torch.testing.assert_close(outputs[~dropped], inputs[~dropped] / (1 - p))
    (outputs * torch.arange(33)).sum().backward()
    torch.testing.assert_close(inputs.grad, torch.where(dropped, 0.0, torch.arange(33) / (1 - p)))
    assert not torch.equal(layer(inputs) == 0, dropped)
    assert layer.eval()(inputs) is inputs
    assert Dropout(0.0)(inputs) is inputs


def test_dropout_drops_the_same_values_with_and_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for has_kernels in (True, False):
        if not has_kernels:
            monkeypatch.setattr(basic, "kernels_for", lambda _: None)
        torch.manual_seed(0)
        inputs = torch.randn(7, 5, 3).transpose(0, 1).requires_grad_()
        outputs = Dropout(0.3)(inputs)
        outputs.square().sum().backward()
        found.append((outputs, inputs.grad, Dropout(0.3)(inputs[:0])))
    for with_kernels, without in zip(*found, strict=True):
        torch.testing.assert_close(with_kernels, without)


def test_values_drawn_together_are_dropped_independently() -> None:
    torch.manual_seed(0)
    dropped = (Dropout(0.5)(torch.ones(20_000, 8)) == 0).double()
    torch.testing.assert_close(torch.corrcoef(dropped.T), torch.eye(8, dtype=torch.float64), atol=0.03, rtol=0)
    both = dropped.flatten()
    assert abs(torch.corrcoef(torch.stack([both[:-1], both[1:]]))[0, 1]) < 0.01


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
@pytest.mark.parametrize("kind", [Dropout, VariationalDropout])
def test_a_dropout_that_is_no_share_is_rejected(kind: type[Dropout | VariationalDropout], p: float) -> None:
    with pytest.raises(ConfigError, match="dropout"):
        kind(p)


def test_masked_softmax_is_the_softmax_of_what_is_left() -> None:
    torch.manual_seed(1)
    scores = torch.randn(4, 6, 5, dtype=torch.float64)
    found = masked_softmax(scores, MASK[:, None, :])
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(found[row, :, :length], scores[row, :, :length].softmax(dim=-1))
        assert not found[row, :, length:].any()
    for value in (1e30, math.inf, math.nan):
        assert torch.equal(masked_softmax(scores.masked_fill(~MASK[:, None, :], value), MASK[:, None, :]), found)


def test_masked_softmax_of_nothing_is_zero_and_has_a_gradient() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    found = masked_softmax(scores, torch.tensor([[False, False], [True, False]]))
    assert found.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    found.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("pool", "plain"),
    [(masked_max, lambda rows: rows.amax(dim=0)), (masked_mean, lambda rows: rows.mean(dim=0))],
)
def test_pools_are_those_of_the_positions_that_are_there(
    pool: Callable[[Tensor, Tensor], Tensor], plain: Callable[[Tensor], Tensor]
) -> None:
    torch.manual_seed(2)
    inputs = torch.randn(4, 5, 3, dtype=torch.float64) - 2  # mostly below zero, which padding is not
    expected = torch.stack([plain(row[:length]) for row, length in zip(inputs, LENGTHS, strict=True)])
    for value in (0.0, 1e30, math.nan):
        torch.testing.assert_close(pool(junk(inputs, value), MASK), expected)
    nothing = junk(inputs, math.nan)[2:3, 1:].requires_grad_()
    pooled = pool(nothing, MASK[2:3, 1:])
    assert pooled.tolist() == [[0.0, 0.0, 0.0]]
    (grad,) = torch.autograd.grad(pooled.sum(), nothing)
    assert not grad.any()


def convolve_by_hand(layer: CharCNN, word: list[int]) -> Tensor:
    answers = []
    for conv in layer.convs:
        width = conv.kernel_size[0]
        vectors = torch.cat([layer.embedding.weight[word], torch.zeros(width - 1, layer.embedding.embedding_dim)])
        windows = [vectors[first : first + width].t() for first in range(len(word))]
        products = torch.stack([(conv.weight * window).sum(dim=(1, 2)) + conv.bias for window in windows])
        answers.append(products.amax(dim=0).clamp(min=0))
    return torch.cat(answers)


def make_char_cnn(*filters: tuple[int, int], dropout: float = 0.0) -> CharCNN:
    layer = CharCNN(9, 4, filters, dropout=dropout)
    with torch.no_grad():
        for conv in layer.convs:
            conv.bias.normal_()
    return layer


def test_characters_are_convolved_word_by_word() -> None:
    torch.manual_seed(4)
    layer = make_char_cnn((1, 2), (3, 5), (4, 3))
    spelled = [[3, 4, 5, 6, 7], [8], [1, 2], [1, 1, 1]]
    chars = torch.tensor([word + [0] * (5 - len(word)) for word in spelled])
    found = layer(chars)
    assert found.shape == (4, 10)
    torch.testing.assert_close(found, torch.stack([convolve_by_hand(layer, word) for word in spelled]))
    torch.testing.assert_close(layer(functional.pad(chars, (0, 4))), found)
    torch.testing.assert_close(layer(chars[1:2, :1]), found[1:2])  # shorter than a window


def test_a_word_without_characters_is_zero_and_padding_never_learns() -> None:
    torch.manual_seed(5)
    layer = make_char_cnn((3, 5))
    vectors = layer(torch.tensor([[1, 2, 0], [0, 0, 0]]))
    assert not vectors[1].any()
    assert vectors[0].any()
    vectors.sum().backward()
    assert not layer.embedding.weight[0].any()
    assert not layer.embedding.weight.grad[0].any()
    assert layer.embedding.weight.grad[1:3].any()


def test_character_dropout_is_for_training_only() -> None:
    torch.manual_seed(6)
    layer = make_char_cnn((3, 50), dropout=0.5)
    chars = torch.tensor([[1, 2, 3]])
    assert not torch.equal(layer(chars), layer(chars))
    layer.eval()
    assert torch.equal(layer(chars), layer(chars))
