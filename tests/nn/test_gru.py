"""The biGRU against torch's own, and its gradients against differences."""

import pytest
import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.nn.gru import BiGRU
from tests.support.packed_rnn import read_packed

NAMES = {
    "input_weight": "weight_ih",
    "recurrent_weight": "weight_hh",
    "input_bias": "bias_ih",
    "recurrent_bias": "bias_hh",
}


def twins(input_dim: int, hidden_dim: int, dtype: torch.dtype = torch.float32) -> tuple[BiGRU, nn.GRU]:
    """Ours and torch's, with the same weights; the biases are no zeros."""
    torch.manual_seed(1)
    ours = BiGRU(input_dim, hidden_dim).to(dtype)
    theirs = nn.GRU(input_dim, hidden_dim, batch_first=True, bidirectional=True).to(dtype)
    for (_, parameter), (_, other) in paired_parameters(ours, theirs):
        parameter.data.copy_(other.data)
    return ours, theirs


def paired_parameters(ours: BiGRU, theirs: nn.GRU) -> list[tuple[tuple[str, Tensor], tuple[str, Tensor]]]:
    rnn = dict(theirs.named_parameters())
    return [
        ((f"{side}.{name}", getattr(layer, name)), (f"{other}_l0{suffix}", rnn[f"{other}_l0{suffix}"]))
        for side, layer, suffix in (("forward", ours.forward_layer, ""), ("backward", ours.backward_layer, "_reverse"))
        for name, other in NAMES.items()
    ]


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("lengths", [(5, 3, 7, 1), (1,), (1, 1, 1), (4, 4), (2, 9)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_and_gradients_are_those_of_torch(lengths: tuple[int, ...], dtype: torch.dtype, tolerance: float):
    ours, theirs = twins(4, 6, dtype)
    mask_BT = mask_of(*lengths)
    weights_BTD = torch.randn(*mask_BT.shape, 12, dtype=dtype)
    inputs = [torch.randn(*mask_BT.shape, 4, dtype=dtype, requires_grad=True)]
    inputs.append(inputs[0].detach().clone().requires_grad_())
    outputs = [ours(inputs[0], mask_BT), read_packed(theirs, inputs[1], mask_BT)]
    torch.testing.assert_close(*outputs, atol=tolerance, rtol=0)
    for output in outputs:
        (output * weights_BTD).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, atol=tolerance, rtol=0)
    for (name, parameter), (_, other) in paired_parameters(ours, theirs):
        torch.testing.assert_close(parameter.grad, other.grad, atol=tolerance, rtol=tolerance, msg=name)


def test_the_gradients_are_those_of_differences():
    ours, _ = twins(2, 3, torch.float64)
    mask_BT = mask_of(3, 1, 4)
    inputs_BTD = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda inputs: ours(inputs, mask_BT), (inputs_BTD,))


def test_neither_padding_nor_the_order_of_a_batch_changes_an_output():
    ours, _ = twins(4, 6)
    lengths, inputs_BTD = (3, 6, 1), torch.randn(3, 8, 4)
    mask_BT = torch.arange(8)[None] < torch.tensor(lengths)[:, None]
    together_BTD = ours(inputs_BTD, mask_BT)
    turned_BTD = ours(inputs_BTD.flip(0), mask_BT.flip(0)).flip(0)
    torch.testing.assert_close(together_BTD, turned_BTD, atol=1e-6, rtol=0)
    assert not together_BTD[~mask_BT].any()
    for row, length in enumerate(lengths):
        alone_BTD = ours(inputs_BTD[row : row + 1, :length], mask_of(length))
        torch.testing.assert_close(together_BTD[row, :length], alone_BTD[0], atol=1e-6, rtol=0)


def test_weights_begin_small_and_biases_at_zero():
    layer = BiGRU(300, 50).backward_layer
    for weight in (layer.input_weight, layer.recurrent_weight):
        assert weight.abs().max() <= 0.1
        # A normal distribution cut at two deviations has 0.88 of its deviation.
        assert weight.std().item() == pytest.approx(0.044, abs=0.002)
    assert not layer.input_bias.any()
    assert not layer.recurrent_bias.any()


def test_a_mask_of_another_shape_is_rejected():
    with pytest.raises(InputError, match=r"sequences of shape \(2, 3, 4\) with a mask of \(2, 4\)"):
        BiGRU(4, 6)(torch.zeros(2, 3, 4), mask_of(4, 2))
