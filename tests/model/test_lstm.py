"""The hand-written LSTM against plain autograd and finite differences."""

from collections.abc import Iterator

import pytest
import torch
from kernel_paths import OFF, kernel_path
from torch import Tensor

from elmokit.config import LSTMConfig
from elmokit.model import gate_room, lstm
from elmokit.model.lstm import LSTMLayer, LSTMStack

BATCH_SIZES = [4, 3, 3, 1]  # rows of lengths 4, 3, 3 and 1


def make_layer(*, proj_dim: int, clip: float | None) -> LSTMLayer:
    config = LSTMConfig(cell_dim=5, proj_dim=proj_dim, num_layers=1, cell_clip=clip, proj_clip=clip and clip / 4)
    layer = LSTMLayer(config).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def run_by_autograd(layer: LSTMLayer, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs, first = [], 0
    for size in BATCH_SIZES:
        gates = inputs[first : first + size] @ layer.input_weight.t() + hidden[:size] @ layer.recurrent_weight.t()
        let_in, forget, let_out, candidate = (gates + layer.bias).chunk(4, dim=1)
        new_cell = torch.sigmoid(forget + 1) * cell[:size] + torch.sigmoid(let_in) * torch.tanh(candidate)
        if layer.cell_clip is not None:
            new_cell = new_cell.clamp(-layer.cell_clip, layer.cell_clip)
        new_hidden = torch.sigmoid(let_out) * torch.tanh(new_cell)
        if layer.projection is not None:
            new_hidden = new_hidden @ layer.projection.t()
        if layer.proj_clip is not None:
            new_hidden = new_hidden.clamp(-layer.proj_clip, layer.proj_clip)
        outputs.append(new_hidden)
        hidden = torch.cat([new_hidden, hidden[size:]])
        cell = torch.cat([new_cell, cell[size:]])
        first += size
    return torch.cat(outputs), hidden, cell


def draw(layer: LSTMLayer) -> tuple[Tensor, Tensor, Tensor]:
    width, cells = layer.input_weight.shape[1], layer.bias.shape[0] // 4
    inputs = torch.randn(sum(BATCH_SIZES), width, dtype=torch.double, requires_grad=True)
    return inputs, torch.randn(4, width, dtype=torch.double), torch.randn(4, cells, dtype=torch.double)


@pytest.mark.parametrize("proj_dim", [3, 5])
@pytest.mark.parametrize("clip", [None, 0.3, 1.0])
def test_outputs_states_and_gradients_equal_plain_autograd(proj_dim: int, clip: float | None) -> None:
    torch.manual_seed(0)
    layer = make_layer(proj_dim=proj_dim, clip=clip)
    inputs, hidden, cell = draw(layer)
    expected = run_by_autograd(layer, inputs, hidden, cell)
    found = layer(inputs, BATCH_SIZES, hidden, cell)
    with torch.no_grad():
        without_grad = layer(inputs, BATCH_SIZES, hidden, cell)
    for left, right, third in zip(expected, found, without_grad, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(third, left, rtol=1e-12, atol=1e-12)
    weighting = torch.randn_like(found[0])
    wanted = torch.autograd.grad((expected[0] * weighting).sum(), [inputs, *layer.parameters()])
    given = torch.autograd.grad((found[0] * weighting).sum(), [inputs, *layer.parameters()])
    for left, right in zip(wanted, given, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_float32_through_the_kernels_equals_float64(clip: float | None) -> None:
    torch.manual_seed(3)
    exact = make_layer(proj_dim=3, clip=clip)
    inputs, hidden, cell = draw(exact)
    layer = make_layer(proj_dim=3, clip=clip).float()
    layer.load_state_dict({name: value.float() for name, value in exact.state_dict().items()})
    short = inputs.detach().float().requires_grad_()
    wanted, found = exact(inputs, BATCH_SIZES, hidden, cell), layer(short, BATCH_SIZES, hidden.float(), cell.float())
    for left, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(left.double(), right, rtol=1e-5, atol=1e-5)
    weighting = torch.randn_like(wanted[0])
    given = torch.autograd.grad((found[0] * weighting.float()).sum(), [short, *layer.parameters()])
    for left, right in zip(
        given, torch.autograd.grad((wanted[0] * weighting).sum(), [inputs, *exact.parameters()]), strict=True
    ):
        torch.testing.assert_close(left.double(), right, rtol=1e-5, atol=1e-5 * right.abs().max().item())


@pytest.mark.long
@pytest.mark.parametrize("clip", [None, 0.3])
def test_gradients_equal_finite_differences(clip: float | None) -> None:
    torch.manual_seed(1)
    layer = make_layer(proj_dim=3, clip=clip)
    inputs, hidden, cell = draw(layer)

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        result: Tensor = layer(inputs, BATCH_SIZES, hidden, cell)[0]
        return result

    assert torch.autograd.gradcheck(outputs, (inputs, *layer.parameters()))


def test_the_clips_of_the_gradient_test_really_clip() -> None:
    torch.manual_seed(0)
    layer = make_layer(proj_dim=3, clip=0.3)
    outputs, _, cell = layer(*_with_sizes(draw(layer)))
    assert (outputs.abs() >= 0.075).any()
    assert (cell.abs() >= 0.3).any()


def _with_sizes(drawn: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, list[int], Tensor, Tensor]:
    inputs, hidden, cell = drawn
    return inputs, BATCH_SIZES, hidden, cell


def test_input_gradient_alone_when_the_weights_are_frozen() -> None:
    layer = make_layer(proj_dim=3, clip=1.0).requires_grad_(False)
    inputs, hidden, cell = draw(layer)
    layer(inputs, BATCH_SIZES, hidden, cell)[0].sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in layer.parameters())


@pytest.fixture
def _without_kernels() -> Iterator[None]:
    with kernel_path(OFF):
        yield


@pytest.mark.usefixtures("_without_kernels")
def test_mixed_precision_has_every_large_product_of_the_backward_pass_in_bfloat16() -> None:
    torch.manual_seed(4)
    layer = make_layer(proj_dim=3, clip=None).float()
    inputs, hidden, cell = (tensor.detach().float() for tensor in draw(layer))
    inputs.requires_grad_()
    gradients = {}
    for layer.mixed in (False, True):
        outputs = layer(inputs, BATCH_SIZES, hidden, cell)[0]
        gradients[layer.mixed] = torch.autograd.grad(outputs.sum(), [inputs, *layer.parameters()])
    for name, exact, mixed in zip(["inputs", *dict(layer.named_parameters())], *gradients.values(), strict=True):
        assert mixed.dtype == torch.float32
        assert torch.cosine_similarity(mixed.flatten(), exact.flatten(), dim=0) > 0.99, name
        if name != "bias":  # a sum, and no product
            assert torch.equal(mixed, mixed.bfloat16().float()), name


def test_long_sequences_in_small_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make_layer(proj_dim=3, clip=1.0)
    inputs, hidden, cell = draw(layer)
    with torch.no_grad():
        whole = layer(inputs, BATCH_SIZES, hidden, cell)
        for num_bytes in (1, 4 * 20 * 5):
            monkeypatch.setattr(gate_room, "CHUNK_BYTES", num_bytes)
            for left, right in zip(whole, layer(inputs, BATCH_SIZES, hidden, cell), strict=True):
                torch.testing.assert_close(right, left, rtol=1e-12, atol=1e-12)


def test_the_gates_room_is_kept_and_serves_inside_inference_mode_and_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "gate_room", room := gate_room.GateRoom())
    layer = make_layer(proj_dim=3, clip=1.0)
    inputs, hidden, cell = (tensor.detach() for tensor in draw(layer))
    expected = layer(inputs, BATCH_SIZES, hidden, cell)[0].detach()  # the path that learns has no such room
    with torch.inference_mode():
        inside = layer(inputs, BATCH_SIZES, hidden, cell)[0]
    place = room.of(inputs, 1).data_ptr()
    with torch.no_grad():
        outside = layer(inputs, BATCH_SIZES, hidden, cell)[0]
    assert room.of(inputs, 7).data_ptr() == place
    torch.testing.assert_close(inside, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(outside, expected, rtol=1e-12, atol=1e-12)


def test_given_states_are_not_written_to() -> None:
    layer = make_layer(proj_dim=3, clip=1.0)
    inputs, hidden, cell = draw(layer)
    before = hidden.clone(), cell.clone()
    layer(inputs, BATCH_SIZES, hidden, cell)
    with torch.no_grad():
        layer(inputs, BATCH_SIZES, hidden, cell)
    assert torch.equal(hidden, before[0])
    assert torch.equal(cell, before[1])


def test_what_is_dropped_is_every_layers_input_and_the_residual_adds_it_dropped() -> None:
    torch.manual_seed(0)
    stack = LSTMStack(LSTMConfig(cell_dim=4, proj_dim=2, num_layers=2))
    inputs, start = torch.randn(6, 2), stack.zero_state(3)
    run = stack(inputs, [3, 3], start, drop=lambda tensor: tensor * 0.5)
    first, _, _ = stack.layers[0](inputs * 0.5, [3, 3], start.hidden_LBP[0], start.cell_LBC[0])
    second, _, _ = stack.layers[1](first * 0.5, [3, 3], start.hidden_LBP[1], start.cell_LBC[1])
    torch.testing.assert_close(run.outputs[0], first)
    torch.testing.assert_close(run.outputs[1], second + first * 0.5)


def test_weights_begin_as_the_original_program_begins() -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(LSTMConfig(cell_dim=64, proj_dim=16)).requires_grad_(False)
    limit = (6 / (16 + 16 + 4 * 64)) ** 0.5  # Glorot over [inputs; recurrence] x gates
    for weight in (layer.input_weight, layer.recurrent_weight):
        assert 0.97 * limit < float(weight.abs().max()) <= limit
    assert float(layer.projection.abs().max()) <= (6 / (64 + 16)) ** 0.5
    assert float(layer.bias.abs().max()) == 0
