"""The biLSTM against torch's own, and its gradients against differences."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.errors import InputError
from elmokit.nn.lstm import BiLSTM
from tests.support.packed_rnn import read_packed

LENGTHS = (5, 3, 1, 4)
MASK = torch.arange(5)[None] < torch.tensor(LENGTHS)[:, None]


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def junk(inputs: Tensor, value: float) -> Tensor:
    """The same inputs with another value on padding."""
    return inputs.masked_fill(~MASK[:, :, None], value)


@pytest.mark.parametrize("lengths", [(5, 3, 7, 1), (1,), (1, 1, 1), (4, 4), (2, 9), (6, 6, 1, 1, 9)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_and_gradients_are_those_of_torch(lengths: tuple[int, ...], dtype: torch.dtype, tolerance: float):
    torch.manual_seed(1)
    layer, mask_BT = BiLSTM(4, 6).to(dtype), mask_of(*lengths)
    weights_BTD = torch.randn(*mask_BT.shape, 12, dtype=dtype)
    inputs = torch.randn(*mask_BT.shape, 4, dtype=dtype, requires_grad=True)
    outputs = layer(inputs, mask_BT), read_packed(layer.rnn, inputs, mask_BT)
    torch.testing.assert_close(*outputs, atol=tolerance, rtol=0)
    wanted = [inputs, *layer.parameters()]
    ours, theirs = (torch.autograd.grad((one * weights_BTD).sum(), wanted) for one in outputs)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def test_the_gradients_are_those_of_differences():
    torch.manual_seed(2)
    layer = BiLSTM(3, 2).double()
    inputs = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda inputs, *_: layer(inputs, MASK), (inputs, *layer.parameters()))


def test_frozen_weights_and_inputs_get_no_gradients():
    layer, inputs = BiLSTM(3, 2), torch.randn(4, 5, 3, requires_grad=True)
    layer.requires_grad_(False)
    layer(inputs, MASK).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad[~MASK].abs().sum() == 0
    assert all(parameter.grad is None for parameter in layer.parameters())


def by_hand(rnn: nn.LSTM, inputs_TD: Tensor) -> Tensor:
    """One sequence without padding."""
    outputs: Tensor = rnn(inputs_TD[None])[0][0]
    return outputs


def test_every_sequence_is_read_as_if_alone_in_its_place() -> None:
    torch.manual_seed(3)
    layer = BiLSTM(3, 2).double()
    inputs = torch.randn(4, 5, 3, dtype=torch.float64)
    found = layer(inputs, MASK)
    assert found.shape == (4, 5, 4)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(found[row, :length], by_hand(layer.rnn, inputs[row, :length]))
        assert not found[row, length:].any()
    for value in (1e30, math.nan):
        assert torch.equal(layer(junk(inputs, value), MASK), found)
    wider = layer(functional.pad(inputs, (0, 0, 0, 2)), functional.pad(MASK, (0, 2)))
    torch.testing.assert_close(wider[:, :5], found)
    assert wider.shape == (4, 7, 4)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(layer(inputs[order], MASK[order]), found[order])


def test_bilstm_rejects_empty_sequences_gaps_and_other_shapes() -> None:
    layer, inputs = BiLSTM(3, 2), torch.zeros(2, 2, 3)
    for mask, message in (
        ([[True, True], [False, False]], r"empty sequences at rows \[1\]"),
        ([[False, True], [True, True]], "pad on the right"),
        ([[True], [True]], r"\(2, 2, 3\) with a mask of \(2, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            layer(inputs, torch.tensor(mask))
