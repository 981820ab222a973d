"""A highway by the kernels against the same by plain torch.

Shapes: W words, F width.
"""

import pytest
import torch

from elmokit.model.highway import Highway


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


def copies(dim: int) -> tuple[Highway, Highway]:
    """One in float32, which the kernels run where there are any, and one in float64, which torch always runs."""
    torch.manual_seed(0)
    ours = Highway(dim)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(std=0.5)
    exact = Highway(dim).double()
    exact.load_state_dict(ours.state_dict())
    return ours, exact


def test_a_learning_highway_has_the_gradients_of_plain_torch() -> None:
    ours, exact = copies(21)
    inputs_WF, grad_WF = torch.randn(2, 13, 21)
    gradients = []
    for highway, dtype in ((ours, torch.float32), (exact, torch.float64)):
        leaf_WF = inputs_WF.to(dtype).requires_grad_()
        mixed_WF = highway(leaf_WF)
        found = torch.autograd.grad(mixed_WF, [leaf_WF, *highway.parameters()], grad_WF.to(dtype))
        gradients.append([mixed_WF.detach(), *found])
    for left, right in zip(*gradients, strict=True):
        same(left, right)


def test_in_bfloat16_a_highway_has_the_same_gradients_within_its_rounding() -> None:
    ours, exact = copies(37)
    ours.mixed = True
    inputs_WF, grad_WF = torch.randn(2, 13, 37)
    gradients = []
    for highway, dtype in ((ours, torch.float32), (exact, torch.float64)):
        leaf_WF = inputs_WF.to(dtype).requires_grad_()
        mixed_WF = highway(leaf_WF)
        found = torch.autograd.grad(mixed_WF, [leaf_WF, *highway.parameters()], grad_WF.to(dtype))
        gradients.append([mixed_WF.detach(), *found])
    for left, right in zip(*gradients, strict=True):
        assert left.dtype == torch.float32
        assert float((left - right).norm() / right.norm()) < 0.02


def test_reading_gives_what_learning_gives() -> None:
    ours, exact = copies(21)
    inputs_WF = torch.randn(13, 21)
    with torch.no_grad():
        same(ours(inputs_WF), exact(inputs_WF.double()))
        same(ours(inputs_WF.t().contiguous().t()), exact(inputs_WF.double()))
    same(ours(inputs_WF), exact(inputs_WF.double()))


@pytest.mark.parametrize("frozen", ["inputs", "gate.weight", "gate.bias", "transform.weight", "transform.bias"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: str) -> None:
    ours, _ = copies(8)
    inputs_WF = torch.randn(4, 8, requires_grad=True)
    named = {"inputs": inputs_WF, **dict(ours.named_parameters())}
    ours(inputs_WF).sum().backward()
    before = {name: tensor.grad for name, tensor in named.items()}
    for tensor in named.values():
        tensor.grad = None
    named[frozen].requires_grad_(False)
    ours(inputs_WF).sum().backward()
    for name, tensor in named.items():
        if name == frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, before[name])


def test_fewer_bits_where_they_are_asked_for() -> None:
    ours, exact = copies(16)
    inputs_WF = torch.randn(4, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed_WF = ours(inputs_WF)
    assert mixed_WF.dtype == torch.float32
    gap = (mixed_WF.double() - exact(inputs_WF.double())).abs().max().item()
    assert 1e-4 < gap < 0.2
