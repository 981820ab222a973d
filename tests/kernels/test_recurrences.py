"""All steps of a biLSTM and of a biGRU in one call, against the loops in torch in float64."""

import pytest
import torch

from elmokit.errors import InputError
from elmokit.kernels.library import Kernels
from elmokit.kernels.recurrences import gru_gradients, gru_steps, lstm_gradients, lstm_steps
from elmokit.nn import gru, lstm

SIZES = [[1], [3], [2, 2, 2], [5, 4, 4, 1], [1] * 7, [40, 33, 2]]


@pytest.mark.parametrize("num_cells", [1, 5, 16, 24])
@pytest.mark.parametrize("batch_sizes", SIZES)
def test_steps_and_gradients_of_an_lstm_are_those_of_the_loop(
    compiled: Kernels, batch_sizes: list[int], num_cells: int
) -> None:
    torch.manual_seed(len(batch_sizes) + num_cells)
    num_rows = 2 * sum(batch_sizes)
    gates_MG, grad_MH = torch.randn(num_rows, 4 * num_cells), torch.randn(num_rows, num_cells)
    recurrent_SGH = torch.randn(2, 4 * num_cells, num_cells)
    exact_MG = gates_MG.double()
    cells_MH, outputs_MH = lstm_steps(compiled, gates_MG, recurrent_SGH, batch_sizes)
    expected = lstm._run_steps(exact_MG, recurrent_SGH.double(), batch_sizes)
    for found, wanted in zip((cells_MH, outputs_MH, gates_MG), (*expected, exact_MG), strict=True):
        torch.testing.assert_close(found.double(), wanted, atol=2e-5, rtol=1e-5)
    found_MG = lstm_gradients(compiled, grad_MH.clone(), gates_MG, cells_MH, recurrent_SGH, batch_sizes)
    wanted_MG = lstm._step_gradients(grad_MH.double(), exact_MG, expected[0], recurrent_SGH.double(), batch_sizes)
    torch.testing.assert_close(found_MG.double(), wanted_MG, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("width", [1, 5, 16, 24])
@pytest.mark.parametrize("batch_sizes", SIZES)
def test_steps_and_gradients_of_a_gru_are_those_of_the_loop(
    compiled: Kernels, batch_sizes: list[int], width: int
) -> None:
    torch.manual_seed(len(batch_sizes) + width)
    shape = 2, sum(batch_sizes)
    gates_SNR, factors_SNR, grad_SNH = (
        torch.randn(*shape, 3 * width),
        torch.randn(*shape, 3 * width),
        torch.randn(*shape, width),
    )
    recurrent_SRH, bias_SR = torch.randn(2, 3 * width, width), torch.randn(2, 3 * width)
    exact_SNR, exact_grad_SNH = gates_SNR.double(), grad_SNH.double()
    found = gru_steps(compiled, gates_SNR, recurrent_SRH, bias_SR, batch_sizes)
    wanted = gru._run_steps(exact_SNR, recurrent_SRH.double(), bias_SR.double(), batch_sizes)
    for name in ("read_SNH", "heard_SNH", "outputs_SNH"):
        torch.testing.assert_close(getattr(found, name).double(), getattr(wanted, name), atol=5e-5, rtol=1e-5)
    torch.testing.assert_close(gates_SNR.double(), exact_SNR, atol=5e-5, rtol=1e-5)
    weights = recurrent_SRH / width  # gradients stay of one size over the steps
    found_SNR = gru_gradients(compiled, grad_SNH, exact_SNR.float(), factors_SNR, weights, batch_sizes)
    wanted_SNR = gru._step_gradients(exact_grad_SNH, exact_SNR, factors_SNR.double(), weights.double(), batch_sizes)
    for ours, theirs in ((found_SNR, wanted_SNR), (grad_SNH, exact_grad_SNH)):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-3, rtol=1e-3)


def test_wrong_shapes_are_rejected(compiled: Kernels) -> None:
    recurrent_SGH = torch.zeros(2, 12, 3)
    with pytest.raises(
        InputError, match=r"of shape \(5, 12\) on cpu; expected contiguous torch.float32 of shape \(6, 12\)"
    ):
        lstm_steps(compiled, torch.zeros(5, 12), recurrent_SGH, [2, 1])
    with pytest.raises(InputError, match=r"batch sizes are \[1, 2\]; expected falling numbers"):
        lstm_steps(compiled, torch.zeros(6, 12), recurrent_SGH, [1, 2])
    with pytest.raises(
        InputError, match=r"of shape \(2, 9, 3\) on cpu; expected contiguous torch.float32 of shape \(2, 12, 3\)"
    ):
        lstm_steps(compiled, torch.zeros(6, 12), torch.zeros(2, 9, 3), [2, 1])
