"""Adam's kernel against its equations in float64; `tests/pretrain/test_optimizer.py` compares it with torch's."""

import pytest
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.adam import AdamPart, AdamSettings, halve, update
from elmokit.kernels.library import Kernels

SETTINGS = AdamSettings(learning_rate=0.01, scale=0.3, betas=(0.9, 0.999), eps=1e-8)


def expected(weight: Tensor, gradients: list[Tensor]) -> Tensor:
    exact, mean, square = weight.double(), torch.zeros(()), torch.zeros(())
    (first, second), rate = SETTINGS.betas, SETTINGS.learning_rate
    for step, gradient in enumerate(gradients, start=1):
        scaled = gradient.double() * SETTINGS.scale
        mean, square = first * mean + (1 - first) * scaled, second * square + (1 - second) * scaled**2
        exact = exact - rate * mean / (1 - first**step) / ((square / (1 - second**step)).sqrt() + SETTINGS.eps)
    return exact


def take_steps(compiled: Kernels, weight: Tensor, gradients: list[Tensor], rows: Tensor | None) -> Tensor:
    weight = weight.clone()
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, gradient in enumerate(gradients):
        for half in halve([AdamPart(weight, mean, square, gradient, step + 1, rows)]):
            update(compiled, half, SETTINGS)
    return weight


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (37, 16), (300, 21)])
def test_steps_follow_the_equations(compiled: Kernels, shape: tuple[int, int]) -> None:
    weight, gradients = torch.randn(shape), [torch.randn(shape) for _ in range(4)]
    found = take_steps(compiled, weight, gradients, None)
    torch.testing.assert_close(found.double(), expected(weight, gradients), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [[], [0], [5], [0, 1, 36], [2, 3, 17, 18, 19], list(range(37))])
def test_rows_without_a_gradient_move_by_their_means(compiled: Kernels, rows: list[int]) -> None:
    weight, first = torch.randn(37, 5), torch.randn(37, 5)
    listed = torch.tensor(rows, dtype=torch.int64)
    some = torch.randn(len(rows), 5)
    whole = torch.zeros(37, 5).index_copy_(0, listed, some)
    mean, square, found = torch.zeros(37, 5), torch.zeros(37, 5), weight.clone()
    update(compiled, [AdamPart(found, mean, square, first, 1)], SETTINGS)
    for half in halve([AdamPart(found, mean, square, some, 2, listed)]):
        update(compiled, half, SETTINGS)
    torch.testing.assert_close(found.double(), expected(weight, [first, whole]), rtol=1e-6, atol=1e-6)


def test_halves_are_equal_and_change_no_bit(compiled: Kernels) -> None:
    shapes = [(37, 5), (400, 1), (3, 64)]
    whole = [AdamPart(*(torch.rand(4, *shape) + 0.1), step=3) for shape in shapes]
    cut = [
        AdamPart(part.weight_RP.clone(), part.mean_RP.clone(), part.square_RP.clone(), part.grad, 3) for part in whole
    ]
    halves = halve(cut)
    sizes = [sum(part.weight_RP.numel() for part in half) for half in halves]
    assert sum(sizes) == 37 * 5 + 400 + 3 * 64
    assert abs(sizes[0] - sizes[1]) < 10
    update(compiled, whole, SETTINGS)
    for half in halves:
        update(compiled, half, SETTINGS)
    for left, right in zip(whole, cut, strict=True):
        assert torch.equal(left.weight_RP, right.weight_RP)
        assert torch.equal(left.square_RP, right.square_RP)


def test_nan_stays_in_its_place(compiled: Kernels) -> None:
    weight, gradient = torch.randn(3, 16), torch.randn(3, 16)
    gradient[1, 2] = torch.nan
    found = take_steps(compiled, weight, [gradient], None)
    assert found.isnan().sum() == 1
    assert found[1, 2].isnan()


def test_wrong_shapes_and_types_never_reach_the_kernel(compiled: Kernels) -> None:
    parts = [torch.zeros(3, 4) for _ in range(4)]
    for index, wrong in ((0, torch.zeros(3, 4).double()), (1, torch.zeros(4, 3).t()), (3, torch.zeros(2, 4))):
        broken = [*parts[:index], wrong, *parts[index + 1 :]]
        with pytest.raises(InputError):
            update(compiled, [AdamPart(*broken, step=1)], SETTINGS)
    with pytest.raises(InputError):
        update(compiled, [AdamPart(*parts, step=1, rows=torch.tensor([0, 1], dtype=torch.int32))], SETTINGS)
