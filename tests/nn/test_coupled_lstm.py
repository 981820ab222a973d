"""The fast coupled LSTM against a plain one, step by step, one sequence at a time."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ConfigError, InputError
from elmokit.nn.coupled_lstm import CoupledBiLSTM, CoupledLSTMLayer

LENGTHS = [2, 5, 1, 5, 3]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
BATCH_SIZES = [4, 3, 3, 1]  # of sequences of lengths 4, 3, 3 and 1


def make_bilstm(*, dropout: float = 0.0) -> CoupledBiLSTM:
    """Sizes that are no multiple of a vector register, and every part different from zero."""
    bilstm = CoupledBiLSTM(3, 5, dropout=dropout).double()
    with torch.no_grad():
        for parameter in bilstm.parameters():
            parameter.normal_()
    return bilstm


def read_sequence(layer: CoupledLSTMLayer, inputs_TP: Tensor, drop_H: Tensor | None = None) -> Tensor:
    """The layer's definition, as the paper has it: with an input gate, which is the other half of what is kept."""
    hidden, cell = layer.initial_hidden, layer.initial_cell
    outputs = []
    for inputs_P in inputs_TP:
        if drop_H is not None:
            hidden = hidden * drop_H
        gates = layer.input_weight @ inputs_P + layer.recurrent_weight @ hidden + layer.bias
        keep, let_out, candidate = gates.chunk(3)
        let_in = torch.sigmoid(-keep)
        cell = (1 - let_in) * cell + let_in * torch.tanh(candidate)
        hidden = torch.sigmoid(let_out) * torch.tanh(cell)
        outputs.append(hidden)
    return torch.stack(outputs)


def read_both(bilstm: CoupledBiLSTM, inputs_TD: Tensor) -> Tensor:
    backward = read_sequence(bilstm.backward_layer, inputs_TD.flip(0)).flip(0)
    return torch.cat([read_sequence(bilstm.forward_layer, inputs_TD), backward], dim=1)


def unpack(packed_ND: Tensor, batch_sizes: list[int]) -> list[Tensor]:
    """The sequences of packed rows, the longest first."""
    steps = packed_ND.split(batch_sizes)
    return [torch.stack([step[row] for step in steps if len(step) > row]) for row in range(batch_sizes[0])]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_layers_values_and_gradients_equal_plain_autograd(dropped: bool) -> None:
    torch.manual_seed(0)
    layer = make_bilstm().forward_layer
    inputs = torch.randn(sum(BATCH_SIZES), 3, dtype=torch.float64, requires_grad=True)
    drop = torch.randint(2, (4, 5)).double() / 0.7 if dropped else None
    found = unpack(layer(inputs, BATCH_SIZES, drop), BATCH_SIZES)
    masks = [None] * 4 if drop is None else list(drop)
    expected = [read_sequence(layer, rows, mask) for rows, mask in zip(unpack(inputs, BATCH_SIZES), masks, strict=True)]
    weighting = [torch.randn_like(rows) for rows in expected]
    grads = []
    for outputs in (found, expected):
        loss = sum((rows * weights).sum() for rows, weights in zip(outputs, weighting, strict=True))
        grads.append(torch.autograd.grad(loss, [inputs, *layer.parameters()]))
    for left, right in zip([*found, *grads[0]], [*expected, *grads[1]], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_both_directions_lie_side_by_side() -> None:
    torch.manual_seed(1)
    bilstm = make_bilstm()
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    found = bilstm(inputs, MASK)
    expected = torch.zeros_like(found)
    for row, length in enumerate(LENGTHS):
        expected[row, :length] = read_both(bilstm, inputs[row, :length])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not found[~MASK].any()
    weighting = torch.randn_like(found)
    wanted = torch.autograd.grad((expected * weighting).sum(), [inputs, *bilstm.parameters()])
    given = torch.autograd.grad((found * weighting).sum(), [inputs, *bilstm.parameters()])
    for left, right in zip(given, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10)


def test_gradients_equal_finite_differences() -> None:
    torch.manual_seed(2)
    bilstm = make_bilstm(dropout=0.3)
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(3)  # the same masks at every call
        result: Tensor = bilstm(inputs, MASK)
        return result

    assert torch.autograd.gradcheck(outputs, (inputs, *bilstm.parameters()), fast_mode=True)


def test_float32_equals_float64() -> None:
    torch.manual_seed(4)
    exact = CoupledBiLSTM(7, 37, dropout=0.0).double()
    bilstm = CoupledBiLSTM(7, 37, dropout=0.0)
    bilstm.load_state_dict(exact.state_dict())
    inputs = torch.randn(5, 5, 7, dtype=torch.float64, requires_grad=True)
    short = inputs.detach().float().requires_grad_()
    wanted, found = exact(inputs, MASK), bilstm(short, MASK)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    weighting = torch.randn_like(wanted)
    expected = torch.autograd.grad((wanted * weighting).sum(), [inputs, *exact.parameters()])
    given = torch.autograd.grad((found * weighting.float()).sum(), [short, *bilstm.parameters()])
    for left, right in zip(given, expected, strict=True):
        torch.testing.assert_close(left.double(), right, rtol=1e-4, atol=1e-4)


def test_padding_and_batch_order_never_change_a_result() -> None:
    torch.manual_seed(5)
    bilstm = make_bilstm().eval()
    inputs = torch.randn(5, 5, 3, dtype=torch.float64)
    found = bilstm(inputs, MASK)
    junked = inputs.masked_fill(~MASK[:, :, None], math.nan).requires_grad_()
    again = bilstm(junked, MASK)
    assert torch.equal(again, found)
    again.sum().backward()
    assert junked.grad is not None
    assert not junked.grad[~MASK].any()
    assert all(parameter.grad.isfinite().all() for parameter in bilstm.parameters())
    wider = bilstm(functional.pad(inputs, (0, 0, 0, 3), value=9.0), functional.pad(MASK, (0, 3)))
    torch.testing.assert_close(wider[:, :5], found, rtol=1e-12, atol=1e-12)
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(bilstm(inputs[order], MASK[order]), found[order], rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS):
        alone = bilstm(inputs[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(alone[0], found[row, :length], rtol=1e-12, atol=1e-12)


def test_dropout_is_between_steps_and_for_training_only() -> None:
    torch.manual_seed(6)
    bilstm = CoupledBiLSTM(3, 40, dropout=0.5)
    inputs = torch.randn(4, 6, 3)
    mask = torch.ones(4, 6, dtype=torch.bool)
    trained = bilstm(inputs, mask)
    assert trained.all()  # what goes up is whole
    assert not torch.equal(trained, bilstm(inputs, mask))
    bilstm.eval()
    assert torch.equal(bilstm(inputs, mask), bilstm(inputs, mask))


def test_every_sequence_has_a_mask_of_its_own() -> None:
    torch.manual_seed(7)
    bilstm = CoupledBiLSTM(3, 40, dropout=0.5)
    first, second = bilstm(torch.ones(2, 1, 3), torch.ones(2, 1, dtype=torch.bool))  # both drop of one initial state
    assert not torch.equal(first, second)


def test_weights_begin_as_the_original_program_begins() -> None:
    torch.manual_seed(8)
    layer = CoupledLSTMLayer(9, 4).requires_grad_(False)
    blocks = list(torch.cat([layer.input_weight, layer.recurrent_weight], dim=1).split(4))
    assert len(blocks) == 3
    for block in blocks:
        torch.testing.assert_close(block @ block.t(), torch.eye(4), rtol=1e-5, atol=1e-5)
    wide = CoupledLSTMLayer(3, 400).requires_grad_(False)
    for values, limit in (
        (wide.bias, (3 / 1200) ** 0.5),
        (wide.initial_hidden, (6 / 401) ** 0.5),
        (wide.initial_cell, (6 / 401) ** 0.5),
    ):
        assert 0.95 * limit < float(values.abs().max()) <= limit


def test_impossible_batches_and_settings_are_rejected() -> None:
    bilstm = CoupledBiLSTM(3, 4, dropout=0.1)
    inputs = torch.zeros(2, 2, 3)
    with pytest.raises(InputError, match="empty sequences at rows"):
        bilstm(inputs, torch.tensor([[True, True], [False, False]]))
    with pytest.raises(InputError, match="mask"):
        bilstm(inputs, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ConfigError, match="dropout"):
        CoupledBiLSTM(3, 4, dropout=-0.1)
