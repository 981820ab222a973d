"""The fast highway LSTM against a plain one, step by step, one sequence at a time."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ConfigError, InputError
from elmokit.nn.highway_lstm import HighwayLSTM, HighwayLSTMLayer

LENGTHS = [2, 5, 1, 5, 3]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
BATCH_SIZES = [4, 3, 3, 1]  # of sequences of lengths 4, 3, 3 and 1


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


def unpack(packed_ND: Tensor, batch_sizes: list[int]) -> list[Tensor]:
    """The sequences of packed rows, the longest first."""
    steps = packed_ND.split(batch_sizes)
    return [torch.stack([step[row] for step in steps if len(step) > row]) for row in range(batch_sizes[0])]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_layers_values_and_gradients_equal_plain_autograd(dropped: bool) -> None:
    torch.manual_seed(0)
    (layer,) = make_stack(num_layers=1).layers
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


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_layers_read_in_turning_directions(num_layers: int) -> None:
    torch.manual_seed(num_layers)
    stack = make_stack(num_layers=num_layers)
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    found = stack(inputs, MASK)
    expected = torch.zeros_like(found)
    for row, length in enumerate(LENGTHS):
        expected[row, :length] = read_stack(stack, inputs[row, :length])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not found[~MASK].any()
    weighting = torch.randn_like(found)
    wanted = torch.autograd.grad((expected * weighting).sum(), [inputs, *stack.parameters()])
    given = torch.autograd.grad((found * weighting).sum(), [inputs, *stack.parameters()])
    for left, right in zip(given, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10)


def test_gradients_equal_finite_differences() -> None:
    torch.manual_seed(1)
    stack = make_stack(num_layers=2, dropout=0.3)
    inputs = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)  # the same masks at every call
        result: Tensor = stack(inputs, MASK)
        return result

    assert torch.autograd.gradcheck(outputs, (inputs, *stack.parameters()), fast_mode=True)


def test_float32_equals_float64() -> None:
    torch.manual_seed(3)
    exact = HighwayLSTM(7, 37, num_layers=4, dropout=0.0).double()
    stack = HighwayLSTM(7, 37, num_layers=4, dropout=0.0)
    stack.load_state_dict(exact.state_dict())
    inputs = torch.randn(5, 5, 7, dtype=torch.float64, requires_grad=True)
    short = inputs.detach().float().requires_grad_()
    wanted, found = exact(inputs, MASK), stack(short, MASK)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    weighting = torch.randn_like(wanted)
    expected = torch.autograd.grad((wanted * weighting).sum(), [inputs, *exact.parameters()])
    given = torch.autograd.grad((found * weighting.float()).sum(), [short, *stack.parameters()])
    for left, right in zip(given, expected, strict=True):
        torch.testing.assert_close(left.double(), right, rtol=1e-4, atol=1e-4)


def test_padding_and_batch_order_never_change_a_result() -> None:
    torch.manual_seed(4)
    stack = make_stack(num_layers=2).eval()
    inputs = torch.randn(5, 5, 3, dtype=torch.float64)
    found = stack(inputs, MASK)
    junked = inputs.masked_fill(~MASK[:, :, None], math.nan).requires_grad_()
    again = stack(junked, MASK)
    assert torch.equal(again, found)
    again.sum().backward()
    assert junked.grad is not None
    assert not junked.grad[~MASK].any()
    assert all(parameter.grad.isfinite().all() for parameter in stack.parameters())
    wider = stack(functional.pad(inputs, (0, 0, 0, 3), value=9.0), functional.pad(MASK, (0, 3)))
    torch.testing.assert_close(wider[:, :5], found, rtol=1e-12, atol=1e-12)
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(stack(inputs[order], MASK[order]), found[order], rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS):
        alone = stack(inputs[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(alone[0], found[row, :length], rtol=1e-12, atol=1e-12)


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
