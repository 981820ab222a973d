"""The cross-entropy kernel against autograd in float64; in bfloat16, with rounded operands.

Shapes as in elmokit.kernels.cross_entropy.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.kernels.cross_entropy import cross_entropy
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import BF16, FP32, Items

LARGEST_ERROR = {FP32: 1e-5, BF16: 1e-2}  # relative, of a tensor's norm


@pytest.fixture(params=[FP32, BF16], ids=["fp32", "bf16"])
def items(request: pytest.FixtureRequest) -> Items:
    return request.param


def draw(positions: int, width: int, candidates: int, *, scale: float = 1.0) -> list[Tensor]:
    own = torch.randint(-1, candidates, (positions,))
    hidden, weight = torch.randn(positions, width) * scale, torch.randn(candidates, width)
    return [hidden, weight, torch.randn(candidates), own, torch.randn(positions) * scale]


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 19, 37), (150, 16, 48), (130, 300, 5), (7, 64, 1000)])
def test_loss_and_gradients_equal_those_of_autograd(compiled: Kernels, items: Items, shape, scale: float) -> None:
    hidden, weight, offset, own, target = draw(*shape, scale=scale)
    rounded = hidden.to(items.dtype), weight.to(items.dtype), offset, target
    leaves = [part.double().requires_grad_() for part in rounded]
    logits = leaves[0] @ leaves[1].t() + leaves[2]
    hits = functional.one_hot(own + 1, shape[2] + 1)[:, 1:].bool()
    together = torch.cat([leaves[3][:, None], logits.masked_fill(hits, -torch.inf)], dim=1)
    loss = functional.cross_entropy(together, torch.zeros_like(own), reduction="sum")
    loss.backward()
    found = cross_entropy(compiled, hidden, weight, offset, own, target, items=items)
    torch.testing.assert_close(found.loss, loss.detach(), rtol=1e-5, atol=1e-4)
    for part, leaf in zip((found.hidden_NP, found.weight_KP, found.offset_K, found.target_N), leaves, strict=True):
        assert float((part - leaf.grad).norm()) <= LARGEST_ERROR[items] * float(leaf.grad.norm()) + 1e-6


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_position_of_nan_harms_no_other_position(compiled: Kernels, items: Items, broken: float) -> None:
    parts = draw(140, 19, 37)
    sound = cross_entropy(compiled, *parts, items=items)
    parts[0][5, 3] = broken
    found = cross_entropy(compiled, *parts, items=items)
    assert found.loss.isnan()
    assert found.hidden_NP[5].isnan().all()
    others = torch.arange(140) != 5
    assert torch.equal(found.hidden_NP[others], sound.hidden_NP[others])


def test_no_positions_have_no_gradient(compiled: Kernels, items: Items) -> None:
    found = cross_entropy(compiled, *draw(0, 19, 37), items=items)
    assert found.loss == 0
    assert not found.weight_KP.any()
    assert not found.offset_K.any()


def test_wrong_shapes_types_and_targets_never_reach_the_kernel(compiled: Kernels) -> None:
    for index, wrong in (
        (0, torch.zeros(3, 18)),
        (1, torch.zeros(37, 19, dtype=torch.double)),
        (2, torch.zeros(36)),
        (3, torch.full((3,), 37)),
        (3, torch.zeros(3, dtype=torch.int32)),
        (4, torch.zeros(2)),
    ):
        parts = draw(3, 19, 37)
        parts[index] = wrong
        with pytest.raises(InputError):
            cross_entropy(compiled, *parts)
