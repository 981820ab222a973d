"""Every attention against loops over examples and tokens in NumPy."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.nn.attention import BiAttention, SelfAttention, TrilinearScores, self_biattention, soft_align

DIM, MERGED = 4, 6
LEFT, RIGHT = [3, 5, 1], [2, 1, 4]  # lengths
LEFT_MASK = torch.arange(5) < torch.tensor(LEFT)[:, None]
RIGHT_MASK = torch.arange(4) < torch.tensor(RIGHT)[:, None]
Array = np.ndarray


def draw() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 5, DIM, dtype=torch.float64), torch.randn(3, 4, DIM, dtype=torch.float64)


def make(kind: type[nn.Module]) -> nn.Module:
    module = kind(DIM, MERGED) if kind is BiAttention else kind(DIM)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def score(scores: TrilinearScores, x: Array, key: Array) -> float:
    of_key, of_x, of_both = (
        weight.detach().numpy() for weight in (scores.key_weight, scores.input_weight, scores.dot_weight)
    )
    return (
        sum(of_key[d] * key[d] + of_x[d] * x[d] + of_both[d] * x[d] * key[d] for d in range(DIM)) + scores.bias.item()
    )


def weigh(scores: Sequence[float], vectors: Sequence[Array], extra: float = 0.0) -> Array:
    """The vectors' sum by softmax of the scores, with ``extra`` in its denominator."""
    powers = [math.exp(value) for value in scores]
    return sum((power * vector for power, vector in zip(powers, vectors, strict=True)), np.zeros(DIM)) / (
        sum(powers) + extra
    )


def bi_attend(module: BiAttention, context: Array, question: Array) -> Array:
    scores = [[score(module.scores, x, key) for key in question] for x in context]
    seen = [weigh(row, question) for row in scores]
    asked = weigh([max(row) for row in scores], context)
    weight, bias = (parameter.detach().numpy() for parameter in (module.merge.weight, module.merge.bias))
    parts = [np.concatenate([x, s, x * s, x * asked]) for x, s in zip(context, seen, strict=True)]
    return np.stack([weight @ part + bias for part in parts])


def self_attend(module: SelfAttention, tokens: Array) -> Array:
    rows = []
    for index, x in enumerate(tokens):
        others = [other for place, other in enumerate(tokens) if place != index]
        seen = weigh([score(module.scores, x, other) for other in others], others, math.exp(module.nothing.item()))
        rows.append(np.concatenate([seen, x, seen * x]))
    return np.stack(rows)


def align(looking: Array, seen: Array) -> Array:
    return np.stack([weigh([float(x @ other) for other in seen], seen) for x in looking])


def self_biattend(tokens: Array) -> Array:
    seen = align(tokens, tokens)
    return np.stack([np.concatenate([x, x - s, x * s]) for x, s in zip(tokens, seen, strict=True)])


def check(found: Tensor, lengths: list[int], expected: list[Array]) -> None:
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(found[row, :length].detach().numpy(), expected[row], rtol=1e-10, atol=1e-10)
        assert not found[row, length:].any()


def test_trilinear_scores_equal_a_loop() -> None:
    torch.manual_seed(0)
    scores, (left, right) = make(TrilinearScores), draw()
    expected = [[[score(scores, x, key) for key in right[b].numpy()] for x in left[b].numpy()] for b in range(3)]
    np.testing.assert_allclose(scores(left, right).detach().numpy(), expected, rtol=1e-10)


def test_bi_attention_equals_a_loop() -> None:
    torch.manual_seed(1)
    module, (left, right) = make(BiAttention), draw()
    low = right - 3 * module.scores.key_weight.detach().sign()  # scores below those that zeros on padding would have
    for question in (right, low):
        found = module(left, LEFT_MASK, question, RIGHT_MASK)
        assert found.shape == (3, 5, MERGED)
        texts = [(left[b, : LEFT[b]].numpy(), question[b, : RIGHT[b]].numpy()) for b in range(3)]
        check(found, LEFT, [bi_attend(module, *pair) for pair in texts])


def test_self_attention_equals_a_loop() -> None:
    torch.manual_seed(2)
    module, (left, _) = make(SelfAttention), draw()
    found = module(left, LEFT_MASK)
    assert found.shape == (3, 5, 3 * DIM)
    check(found, LEFT, [self_attend(module, left[b, : LEFT[b]].numpy()) for b in range(3)])


def test_soft_alignment_equals_a_loop() -> None:
    torch.manual_seed(3)
    left, right = draw()
    by_left, by_right = soft_align(left, LEFT_MASK, right, RIGHT_MASK)
    texts = [(left[b, : LEFT[b]].numpy(), right[b, : RIGHT[b]].numpy()) for b in range(3)]
    check(by_left, LEFT, [align(one, other) for one, other in texts])
    check(by_right, RIGHT, [align(other, one) for one, other in texts])


def test_self_biattention_equals_a_loop() -> None:
    torch.manual_seed(4)
    left, _ = draw()
    found = self_biattention(left, LEFT_MASK)
    assert found.shape == (3, 5, 3 * DIM)
    check(found, LEFT, [self_biattend(left[b, : LEFT[b]].numpy()) for b in range(3)])


Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def every_attention() -> dict[str, Attend]:
    """Each as a function of two texts and their masks, (B, T, anything)."""
    bi, own = make(BiAttention), make(SelfAttention)
    return {
        "bi": bi,
        "self": lambda left, left_mask, *_: own(left, left_mask),
        "left": lambda *texts: soft_align(*texts)[0],
        "right": lambda left, left_mask, right, right_mask: soft_align(right, right_mask, left, left_mask)[1],
        "self-bi": lambda left, left_mask, *_: self_biattention(left, left_mask),
    }


@pytest.mark.parametrize("name", ["bi", "self", "left", "right", "self-bi"])
def test_padding_never_changes_a_result_or_gets_a_gradient(name: str) -> None:
    torch.manual_seed(5)
    attend, (left, right) = every_attention()[name], draw()
    found = attend(left, LEFT_MASK, right, RIGHT_MASK)
    for junk in (1e30, math.inf, math.nan):
        texts = [
            text.masked_fill(~mask[:, :, None], junk).requires_grad_()
            for text, mask in ((left, LEFT_MASK), (right, RIGHT_MASK))
        ]
        again = attend(texts[0], LEFT_MASK, texts[1], RIGHT_MASK)
        assert torch.equal(again, found)
        again.square().sum().backward()
        assert texts[0].grad is not None
        assert texts[0].grad.isfinite().all()
        assert texts[0].grad.any()
        assert not texts[0].grad[~LEFT_MASK].any()
    wider = [functional.pad(text, (0, 0, 0, 2)) for text in (left, right)]
    masks = [functional.pad(mask, (0, 2)) for mask in (LEFT_MASK, RIGHT_MASK)]
    torch.testing.assert_close(attend(wider[0], masks[0], wider[1], masks[1])[:, :5], found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["bi", "self", "left", "self-bi"])
def test_gradients_equal_finite_differences(name: str) -> None:
    torch.manual_seed(6)
    attend, (left, right) = every_attention()[name], draw()

    def outputs(left: Tensor, right: Tensor) -> Tensor:
        return attend(left, LEFT_MASK, right, RIGHT_MASK)

    assert torch.autograd.gradcheck(outputs, (left.requires_grad_(), right.requires_grad_()), fast_mode=True)


def test_very_large_and_very_small_scores_are_numbers() -> None:
    module = SelfAttention(1)
    with torch.no_grad():
        for weight in (module.scores.key_weight, module.scores.input_weight):
            weight.zero_()
        module.scores.dot_weight.fill_(1.0)
    tokens, mask = torch.tensor([[[300.0], [300.0], [-300.0]]]), torch.ones(1, 3, dtype=torch.bool)
    # The first two see each other wholly. The third has scores of -90,000 only, so it sees nothing...
    torch.testing.assert_close(module(tokens, mask)[0, :, 0], torch.tensor([300.0, 300.0, 0.0]))
    with torch.no_grad():
        module.nothing.fill_(-1e5)
    # ... unless nothing has less.
    torch.testing.assert_close(module(tokens, mask)[0, :, 0], torch.tensor([300.0, 300.0, 300.0]))


def test_a_text_of_one_token_sees_nothing_of_itself_in_self_attention() -> None:
    module = SelfAttention(DIM)
    x = torch.randn(1, 1, DIM)
    zeros = torch.zeros(DIM)
    torch.testing.assert_close(module(x, torch.ones(1, 1, dtype=torch.bool))[0, 0], torch.cat([zeros, x[0, 0], zeros]))


def test_weights_begin_as_the_original_program_begins() -> None:
    torch.manual_seed(7)
    module = SelfAttention(500).requires_grad_(False)
    assert module.nothing.item() == -1.0
    assert module.scores.bias.item() == 0.0
    for weight in (module.scores.input_weight, module.scores.key_weight, module.scores.dot_weight):
        assert 0.95 * (3 / 500) ** 0.5 < weight.abs().max().item() <= (3 / 500) ** 0.5


def test_a_mask_that_does_not_fit_is_rejected() -> None:
    left, right = draw()
    with pytest.raises(InputError, match=r"\(3, 5, 4\) with a mask of torch.bool and shape \(3, 4\)"):
        soft_align(left, RIGHT_MASK, right, RIGHT_MASK)
    with pytest.raises(InputError, match=r"torch\.int64"):
        self_biattention(left, LEFT_MASK.long())
