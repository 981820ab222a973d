"""The fast highway LSTM against a plain one, step by step, one sequence at a time."""

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
from elmokit.nn.highway_lstm import HighwayLSTM, HighwayLSTMLayer


def make_stack(*, num_layers: int, dropout: float = 0.0) -> HighwayLSTM:
    """Sizes that are no multiple of a vector register, and biases that matter."""
    stack = HighwayLSTM(3, 5, num_layers=num_layers, dropout=dropout).double()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.normal_()
    return stack


def read_sequence(layer: HighwayLSTMLayer, inputs_TP: Tensor, drop_H: Tensor | None = None) -> Tensor:
    """The layer's definition."""
    hidden = cell = inputs_TP.new_zeros(layer.hidden_dim)
    outputs = []
    for inputs_P in inputs_TP:
        from_input = layer.input_weight @ inputs_P + layer.bias
        let_in, forget, let_out, candidate, highway, linear = from_input.chunk(6)
        h_in, h_forget, h_out, h_candidate, h_highway = (layer.recurrent_weight @ hidden).chunk(5)
        new_memory = torch.sigmoid(let_in + h_in) * torch.tanh(candidate + h_candidate)
        cell = torch.sigmoid(forget + h_forget + 1) * cell + new_memory
        from_lstm = torch.sigmoid(let_out + h_out) * torch.tanh(cell)
        gate = torch.sigmoid(highway + h_highway)
        hidden = gate * from_lstm + (1 - gate) * linear
        if drop_H is not None:
            hidden = hidden * drop_H
        outputs.append(hidden)
    return torch.stack(outputs)


def read_stack(stack: HighwayLSTM, inputs_TD: Tensor) -> Tensor:
    for index, layer in enumerate(stack.layers):
        turned = [0] if index % 2 else []
        inputs_TD = read_sequence(layer, inputs_TD.flip(turned)).flip(turned)
    return inputs_TD


@pytest.mark.parametrize("dropped", [False, True])
def test_a_layers_values_and_gradients_equal_plain_autograd(dropped: bool) -> None:
    torch.manual_seed(0)
    (layer,) = make_stack(num_layers=1).layers
    assert_layer_equals(layer, partial(read_sequence, layer), dropped=dropped)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_layers_read_in_turning_directions(num_layers: int) -> None:
    torch.manual_seed(num_layers)
    stack = make_stack(num_layers=num_layers)
    assert_batch_equals(stack, partial(read_stack, stack))


def test_gradients_equal_finite_differences() -> None:
    torch.manual_seed(1)
    assert_gradients_equal_finite_differences(make_stack(num_layers=2, dropout=0.3))


def test_float32_equals_float64() -> None:
    torch.manual_seed(3)
    assert_float32_equals_float64(lambda: HighwayLSTM(7, 37, num_layers=4, dropout=0.0))


def test_padding_and_batch_order_never_change_a_result() -> None:
    torch.manual_seed(4)
    assert_padding_and_order_change_nothing(make_stack(num_layers=2))


def test_dropout_drops_the_same_part_of_what_comes_out_for_a_whole_sequence() -> None:
    torch.manual_seed(5)
    stack = HighwayLSTM(3, 40, num_layers=2, dropout=0.4)
    inputs = torch.randn(20, 6, 3)
    mask = torch.ones(20, 6, dtype=torch.bool)
    dropped = stack(inputs, mask) == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert abs(dropped[:, 0].float().mean() - 0.4) < 0.06
    assert not torch.equal(dropped[0], dropped[1])
    stack.eval()
    assert torch.equal(stack(inputs, mask), stack(inputs, mask))
    assert stack(inputs, mask).all()


def test_weights_begin_orthogonal_block_by_block_and_biases_zero() -> None:
    torch.manual_seed(6)
    for layer in HighwayLSTM(9, 4, num_layers=2, dropout=0.1).requires_grad_(False).layers:
        blocks = [*layer.input_weight.split(4), *layer.recurrent_weight.split(4)]
        assert len(blocks) == 11
        for block in blocks:
            torch.testing.assert_close(block @ block.t(), torch.eye(4), rtol=1e-5, atol=1e-5)
        assert not layer.bias.any()


def test_impossible_batches_and_settings_are_rejected() -> None:
    stack = HighwayLSTM(3, 4, num_layers=1, dropout=0.1)
    inputs = torch.zeros(2, 2, 3)
    with pytest.raises(InputError, match="empty sequences at rows"):
        stack(inputs, torch.tensor([[True, True], [False, False]]))
    with pytest.raises(InputError, match="mask"):
        stack(inputs, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ConfigError, match="dropout"):
        HighwayLSTM(3, 4, num_layers=1, dropout=1.0)
