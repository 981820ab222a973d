"""The fast coupled LSTM against a plain one, step by step, one sequence at a time."""

from functools import partial

import pytest
import torch
from recurrence import (
    assert_batch_equals,
    assert_float32_equals_float64,
    assert_gradients_equal_finite_differences,
    assert_layer_equals,
    assert_padding_and_order_change_nothing,
)
from torch import Tensor

from elmokit.errors import ConfigError, InputError
from elmokit.nn.coupled_lstm import CoupledBiLSTM, CoupledLSTMLayer


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


@pytest.mark.parametrize("dropped", [False, True])
def test_a_layers_values_and_gradients_equal_plain_autograd(dropped: bool) -> None:
    torch.manual_seed(0)
    layer = make_bilstm().forward_layer
    assert_layer_equals(layer, partial(read_sequence, layer), dropped=dropped)


def test_both_directions_lie_side_by_side() -> None:
    torch.manual_seed(1)
    bilstm = make_bilstm()
    assert_batch_equals(bilstm, partial(read_both, bilstm))


def test_gradients_equal_finite_differences() -> None:
    torch.manual_seed(2)
    assert_gradients_equal_finite_differences(make_bilstm(dropout=0.3))


def test_float32_equals_float64() -> None:
    torch.manual_seed(4)
    assert_float32_equals_float64(lambda: CoupledBiLSTM(7, 37, dropout=0.0))


def test_padding_and_batch_order_never_change_a_result() -> None:
    torch.manual_seed(5)
    assert_padding_and_order_change_nothing(make_bilstm())


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
