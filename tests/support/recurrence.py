"""Checks that every fast recurrent module of task models must pass, against a plain one written apart."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

LENGTHS = [2, 5, 1, 5, 3]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
BATCH_SIZES = [4, 3, 3, 1]  # of sequences of lengths 4, 3, 3 and 1

ReadSequence = Callable[[Tensor, Tensor | None], Tensor]
"""The definition of a layer: the inputs of one sequence, (T, P), and its dropout mask, (H), to outputs (T, H)."""


def unpack(packed_ND: Tensor, batch_sizes: list[int]) -> list[Tensor]:
    """Return the sequences of packed rows, the longest first."""
    steps = packed_ND.split(batch_sizes)
    return [torch.stack([step[row] for step in steps if len(step) > row]) for row in range(batch_sizes[0])]


def assert_layer_equals(layer: nn.Module, read_sequence: ReadSequence, *, dropped: bool) -> None:
    """Compare values and gradients of a layer of 3 inputs and 5 cells with plain autograd."""
    inputs = torch.randn(sum(BATCH_SIZES), 3, dtype=torch.float64, requires_grad=True)
    drop = torch.randint(2, (4, 5)).double() / 0.7 if dropped else None
    found = unpack(layer(inputs, BATCH_SIZES, drop), BATCH_SIZES)
    masks = [None] * 4 if drop is None else list(drop)
    expected = [read_sequence(rows, mask) for rows, mask in zip(unpack(inputs, BATCH_SIZES), masks, strict=True)]
    weighting = [torch.randn_like(rows) for rows in expected]
    grads = []
    for outputs in (found, expected):
        loss = sum((rows * weights).sum() for rows, weights in zip(outputs, weighting, strict=True))
        grads.append(torch.autograd.grad(loss, [inputs, *layer.parameters()]))
    for left, right in zip([*found, *grads[0]], [*expected, *grads[1]], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def assert_batch_equals(module: nn.Module, read_alone: Callable[[Tensor], Tensor]) -> None:
    """Compare values and gradients of a padded batch with its sequences, each read alone by the definition."""
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    found = module(inputs, MASK)
    expected = torch.zeros_like(found)
    for row, length in enumerate(LENGTHS):
        expected[row, :length] = read_alone(inputs[row, :length])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not found[~MASK].any()
    weighting = torch.randn_like(found)
    wanted = torch.autograd.grad((expected * weighting).sum(), [inputs, *module.parameters()])
    given = torch.autograd.grad((found * weighting).sum(), [inputs, *module.parameters()])
    for left, right in zip(given, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10)


def assert_gradients_equal_finite_differences(module: nn.Module) -> None:
    """Check all gradients of a module in float64."""
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)  # the same masks at every call
        result: Tensor = module(inputs, MASK)
        return result

    assert torch.autograd.gradcheck(outputs, (inputs, *module.parameters()), fast_mode=True)


def assert_float32_equals_float64(make: Callable[[], nn.Module]) -> None:
    """Compare values and gradients in both types; ``make`` builds a module of 7 inputs."""
    exact, module = make().double(), make()
    module.load_state_dict(exact.state_dict())
    inputs = torch.randn(5, 5, 7, dtype=torch.float64, requires_grad=True)
    short = inputs.detach().float().requires_grad_()
    wanted, found = exact(inputs, MASK), module(short, MASK)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    weighting = torch.randn_like(wanted)
    expected = torch.autograd.grad((wanted * weighting).sum(), [inputs, *exact.parameters()])
    given = torch.autograd.grad((found * weighting.float()).sum(), [short, *module.parameters()])
    for left, right in zip(given, expected, strict=True):
        torch.testing.assert_close(left.double(), right, rtol=1e-4, atol=1e-4)


def assert_padding_and_order_change_nothing(module: nn.Module) -> None:
    """Check that a sequence's result depends on nothing else of its batch."""
    module.eval()
    inputs = torch.randn(5, 5, 3, dtype=torch.float64)
    found = module(inputs, MASK)
    junked = inputs.masked_fill(~MASK[:, :, None], math.nan).requires_grad_()
    again = module(junked, MASK)
    assert torch.equal(again, found)
    again.sum().backward()
    assert junked.grad is not None
    assert not junked.grad[~MASK].any()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    wider = module(functional.pad(inputs, (0, 0, 0, 3), value=9.0), functional.pad(MASK, (0, 3)))
    torch.testing.assert_close(wider[:, :5], found, rtol=1e-12, atol=1e-12)
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(module(inputs[order], MASK[order]), found[order], rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS):
        alone = module(inputs[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(alone[0], found[row, :length], rtol=1e-12, atol=1e-12)
