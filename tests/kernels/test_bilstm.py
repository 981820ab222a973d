"""All steps of a biLSTM in one call, against the loop in torch in float64."""

import pytest
import torch

from elmokit.errors import InputError
from elmokit.kernels.bilstm import run_steps, step_gradients
from elmokit.kernels.library import Kernels
from elmokit.nn import lstm

SIZES = [[1], [3], [2, 2, 2], [5, 4, 4, 1], [1] * 7, [40, 33, 2]]


@pytest.mark.parametrize("num_cells", [1, 5, 16, 24])
@pytest.mark.parametrize("batch_sizes", SIZES)
def test_steps_and_gradients_are_those_of_the_loop(compiled: Kernels, batch_sizes: list[int], num_cells: int) -> None:
    torch.manual_seed(len(batch_sizes) + num_cells)
    num_rows = 2 * sum(batch_sizes)
    gates_MG, grad_MH = torch.randn(num_rows, 4 * num_cells), torch.randn(num_rows, num_cells)
    recurrent_SGH = torch.randn(2, 4 * num_cells, num_cells)
    exact_MG = gates_MG.double()
    cells_MH, outputs_MH = run_steps(compiled, gates_MG, recurrent_SGH, batch_sizes)
    expected = lstm._run_steps(exact_MG, recurrent_SGH.double(), batch_sizes)
    for found, wanted in zip((cells_MH, outputs_MH, gates_MG), (*expected, exact_MG), strict=True):
        torch.testing.assert_close(found.double(), wanted, atol=2e-5, rtol=1e-5)
    found_MG = step_gradients(compiled, grad_MH.clone(), gates_MG, cells_MH, recurrent_SGH, batch_sizes)
    wanted_MG = lstm._step_gradients(grad_MH.double(), exact_MG, expected[0], recurrent_SGH.double(), batch_sizes)
    torch.testing.assert_close(found_MG.double(), wanted_MG, atol=1e-4, rtol=1e-4)


def test_wrong_shapes_are_rejected(compiled: Kernels) -> None:
    recurrent_SGH = torch.zeros(2, 12, 3)
    with pytest.raises(
        InputError, match=r"of shape \(5, 12\) on cpu; expected contiguous torch.float32 of shape \(6, 12\)"
    ):
        run_steps(compiled, torch.zeros(5, 12), recurrent_SGH, [2, 1])
    with pytest.raises(InputError, match=r"batch sizes are \[1, 2\]; expected falling numbers"):
        run_steps(compiled, torch.zeros(6, 12), recurrent_SGH, [1, 2])
    with pytest.raises(InputError, match=r"recurrent weights have shape \(2, 9, 3\); expected \(2, 4 H, H\)"):
        run_steps(compiled, torch.zeros(6, 12), torch.zeros(2, 9, 3), [2, 1])
