"""A linear layer's products in bfloat16 against the same in float64 with rounded operands."""

import pytest
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.linear import add_input_gradient, multiply, weight_gradient


def rounded(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().double()


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (13, 21, 5), (70, 300, 37), (300, 40, 530)])
def test_products_are_those_of_rounded_operands(compiled: Kernels, rows: int, inputs: int, outputs: int) -> None:
    inputs_nK, weight_GK, bias_G = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    grad_nG, to_nK = torch.randn(rows, outputs), torch.randn(rows, inputs)
    expected = (
        rounded(inputs_nK) @ rounded(weight_GK).t() + bias_G,
        rounded(grad_nG) @ rounded(weight_GK) + to_nK,
        rounded(grad_nG).t() @ rounded(inputs_nK),
    )
    found = (
        multiply(compiled, inputs_nK, weight_GK, bias_G),
        add_input_gradient(compiled, grad_nG, weight_GK, to_nK.clone()),
        weight_gradient(compiled, grad_nG, inputs_nK),
    )
    for part, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(part.double(), wanted, rtol=1e-5, atol=1e-4)


def test_rounding_is_to_even_and_keeps_what_is_not_finite(compiled: Kernels) -> None:
    halfway = [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.3e38, torch.inf, -torch.inf, torch.nan, -0.0, 1e-30]
    odd_nans = torch.tensor([0x7F800001, 0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)
    values_n1 = torch.cat([torch.tensor(halfway), odd_nans])[:, None]
    found_n1 = multiply(compiled, torch.ones(1, 1), values_n1, torch.zeros(len(values_n1))).t()
    torch.testing.assert_close(found_n1, values_n1.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


def test_no_rows_have_no_gradient(compiled: Kernels) -> None:
    assert multiply(compiled, torch.empty(0, 5), torch.ones(3, 5), torch.ones(3)).shape == (0, 3)
    assert not weight_gradient(compiled, torch.empty(0, 3), torch.empty(0, 5)).any()


def test_wrong_shapes_and_types_never_reach_the_kernel(compiled: Kernels) -> None:
    weight_GK = torch.ones(3, 5)
    for wrong in (torch.ones(2, 4), torch.ones(2, 5, dtype=torch.double), torch.ones(5, 2).t()):
        with pytest.raises(InputError):
            multiply(compiled, wrong, weight_GK, torch.ones(3))
    with pytest.raises(InputError):
        add_input_gradient(compiled, torch.ones(2, 4), weight_GK, torch.ones(2, 5))
    with pytest.raises(InputError):
        weight_gradient(compiled, torch.ones(2, 4), torch.ones(3, 5))
