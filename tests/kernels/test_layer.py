"""The whole-layer LSTM kernel against autograd in float64; in bfloat16, with operands rounded on the way forward.

Shapes as in elmokit.kernels.layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Thread

import pytest
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels import layer
from elmokit.kernels.layer import LayerGradients, LayerTape, LayerWeights, final_state, layer_gradients, run_layer
from elmokit.kernels.library import Kernels
from elmokit.kernels.panels import BF16, FP32, Items

WEIGHTS = "input_GP", "recurrent_GP", "bias_G", "projection_PC"
SHAPES = [  # cells, width, batch sizes, rows
    (16, 16, [1], 1),
    (37, 19, [7, 7, 5, 2, 1], 9),  # rows that take no step, and a last block that is not whole
    (5, 3, [4, 3, 3, 1], 4),
    (64, 32, [13, 13, 13], 13),
    (300, 150, [20, 6], 20),  # sums in more than one part
    (40, 24, [70, 33, 20], 70),  # more rows than a block of tiles has
]


LARGEST_ERROR = {FP32: 1e-5, BF16: 1e-2}  # relative, of a tensor's norm


@pytest.fixture(params=[FP32, BF16], ids=["fp32", "bf16"])
def items(request: pytest.FixtureRequest) -> Items:
    return request.param


@dataclass(frozen=True)
class Case:
    """A layer and what it reads."""

    weights: LayerWeights
    inputs_NP: Tensor
    sizes: Sequence[int]
    hidden_BP: Tensor
    cell_BC: Tensor
    grad_NP: Tensor

    def run(self, kernels: Kernels) -> LayerTape:
        return run_layer(kernels, self.inputs_NP, self.sizes, self.hidden_BP, self.cell_BC, self.weights)


def draw(
    cells: int, width: int, sizes: Sequence[int], rows: int, items: Items = FP32, *, clip: float = math.nan
) -> Case:
    count = sum(sizes)
    weights = LayerWeights(
        torch.randn(4 * cells, width) / width**0.5,
        torch.randn(4 * cells, width) / width**0.5,
        torch.randn(4 * cells),
        torch.randn(width, cells) / cells**0.5,
        clip,
        clip / 2,
        items,
    )
    hidden, cell = torch.randn(rows, width), torch.randn(rows, cells).clamp(-0.5, 0.5)
    return Case(weights, torch.randn(count, width), sizes, hidden, cell, torch.randn(count, width))


def by_autograd(case: Case) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Outputs, final hidden and cell state, and the gradients of inputs and weights, in float64."""
    leaves = [case.inputs_NP, *(getattr(case.weights, name) for name in WEIGHTS)]
    inputs, input_weight, recurrent, bias, projection = leaves = [leaf.double().requires_grad_() for leaf in leaves]
    hidden, cell, outputs, first = case.hidden_BP.double(), case.cell_BC.double(), [], 0

    def rounded(tensor: Tensor) -> Tensor:  # on the way forward, so that clips hold in the same places
        error = tensor.detach().to(case.weights.items.dtype).double() - tensor.detach()
        return tensor + error.nan_to_num(0.0)  # infinity and NaN stay as they are

    matrices = rounded(input_weight), rounded(recurrent), rounded(projection)
    for size in case.sizes:
        gates = (
            rounded(inputs[first : first + size]) @ matrices[0].t() + rounded(hidden[:size]) @ matrices[1].t() + bias
        )
        let_in, forget, let_out, candidate = gates.chunk(4, dim=1)
        new_cell = forget.sigmoid() * cell[:size] + let_in.sigmoid() * candidate.tanh()
        if not math.isnan(case.weights.cell_clip):
            new_cell = new_cell.clamp(-case.weights.cell_clip, case.weights.cell_clip)
        new_hidden = rounded(let_out.sigmoid() * new_cell.tanh()) @ matrices[2].t()
        if not math.isnan(case.weights.proj_clip):
            new_hidden = new_hidden.clamp(-case.weights.proj_clip, case.weights.proj_clip)
        outputs.append(new_hidden)
        hidden, cell = torch.cat([new_hidden, hidden[size:]]), torch.cat([new_cell, cell[size:]])
        first += size
    together = torch.cat(outputs)
    together.backward(case.grad_NP.double())
    return together.detach(), hidden.detach(), cell.detach(), [leaf.grad for leaf in leaves]


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def parts(found: LayerGradients) -> list[Tensor]:
    return [found.inputs_NP, *(getattr(found, name) for name in WEIGHTS)]


@pytest.mark.parametrize("clip", [math.nan, 0.4])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_states_and_gradients_equal_those_of_autograd(
    compiled: Kernels, items: Items, shape, clip: float
) -> None:
    case = draw(*shape, items, clip=clip)
    outputs, hidden, cell, gradients = by_autograd(case)
    tape = case.run(compiled)
    assert not math.isfinite(clip) or (outputs.abs() == clip / 2).any(), "no clip held, so it proves nothing"
    states = final_state(tape, case.hidden_BP, case.cell_BC)
    found = [tape.outputs_NP, *states, *parts(layer_gradients(compiled, tape, case.grad_NP, case.weights))]
    errors = [distance(*pair) for pair in zip(found, [outputs, hidden, cell, *gradients], strict=True)]
    assert max(errors) < LARGEST_ERROR[items], errors


def test_inputs_of_several_steps_multiplied_at_once_change_no_bit(
    compiled: Kernels, items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = draw(37, 256, [90, 40, 40, 7, 1, 1], 91, items, clip=0.4)
    answers = []
    for large in (layer.LARGE, 0):
        monkeypatch.setattr(layer, "LARGE", large)
        tape = case.run(compiled)
        answers.append([tape.outputs_NP, *parts(layer_gradients(compiled, tape, case.grad_NP, case.weights))])
    assert all(torch.equal(left, right) for left, right in zip(*answers, strict=True))


def test_in_bfloat16_cells_and_outputs_stay_in_float32(compiled: Kernels) -> None:
    tape = draw(37, 19, [7, 5], 7, BF16).run(compiled)
    assert tape.joined_NJ.dtype == tape.squashed_bNc.dtype == torch.bfloat16
    for part in (tape.outputs_NP, tape.cells_bNc, tape.gates_b4Nc):
        assert part.dtype == torch.float32
        assert not torch.equal(part, part.bfloat16().float())


def test_a_graph_that_is_used_twice_gives_the_same_gradients(compiled: Kernels, items: Items) -> None:
    case = draw(*SHAPES[1], items, clip=0.4)
    tape = case.run(compiled)
    once = parts(layer_gradients(compiled, tape, case.grad_NP, case.weights))
    again = tape.rerun(compiled, case.weights)
    twice = parts(layer_gradients(compiled, again, case.grad_NP, case.weights))
    assert all(torch.equal(left, right) for left, right in zip(once, twice, strict=True))


def test_inputs_and_weights_may_lie_anywhere(compiled: Kernels, items: Items) -> None:
    case = draw(37, 19, [5, 3], 5, items)
    shifted = torch.empty(case.inputs_NP.numel() + 1)[1:].view_as(case.inputs_NP).copy_(case.inputs_NP)
    wide = torch.empty(4 * 37, 40)
    wide[:, 3:22] = case.weights.input_GP
    elsewhere = replace(case, inputs_NP=shifted, weights=replace(case.weights, input_GP=wide[:, 3:22]))
    assert torch.equal(elsewhere.run(compiled).outputs_NP, case.run(compiled).outputs_NP)


def test_a_row_does_not_depend_on_the_rows_beside_it(compiled: Kernels, items: Items) -> None:
    case = draw(37, 19, [9, 9, 4], 9, items)
    alone = Case(
        case.weights, case.inputs_NP[[0, 9, 18]], [1, 1, 1], case.hidden_BP[:1], case.cell_BC[:1], case.grad_NP[:3]
    )
    assert torch.equal(alone.run(compiled).outputs_NP, case.run(compiled).outputs_NP[[0, 9, 18]])


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_stay_in_their_row_and_are_not_lost(compiled: Kernels, items: Items, broken: float) -> None:
    case = draw(37, 19, [4, 4], 4, items, clip=3.0)
    sound = case.run(compiled).outputs_NP
    case.inputs_NP[1, 2] = broken
    expected = by_autograd(case)[0]
    found = case.run(compiled).outputs_NP
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[[0, 2, 3, 4, 6, 7]], sound[[0, 2, 3, 4, 6, 7]])


def test_a_gradient_of_nan_reaches_its_inputs(compiled: Kernels, items: Items) -> None:
    case = draw(37, 19, [4, 4], 4, items)
    case.grad_NP[5, 0] = math.nan
    found = layer_gradients(compiled, case.run(compiled), case.grad_NP, case.weights)
    assert found.inputs_NP[[1, 5]].isnan().all()
    assert not found.inputs_NP[[0, 2, 3, 4, 6, 7]].isnan().any()
    assert found.recurrent_GP.isnan().any()


def test_no_positions_are_no_outputs_and_no_gradient(compiled: Kernels, items: Items) -> None:
    case = draw(37, 19, [], 3, items)
    tape = case.run(compiled)
    assert tape.outputs_NP.shape == (0, 19)
    assert torch.equal(final_state(tape, case.hidden_BP, case.cell_BC)[0], case.hidden_BP)
    assert all(not part.any() for part in parts(layer_gradients(compiled, tape, case.grad_NP, case.weights)))


def test_ten_threads_get_what_one_gets(compiled: Kernels, items: Items) -> None:
    case = draw(64, 32, [13] * 5, 13, items)
    expected = parts(layer_gradients(compiled, case.run(compiled), case.grad_NP, case.weights))
    equal: list[bool] = []

    def work() -> None:
        found = parts(layer_gradients(compiled, case.run(compiled), case.grad_NP, case.weights))
        equal.append(all(torch.equal(left, right) for left, right in zip(found, expected, strict=True)))

    threads = [Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 10


def test_wrong_shapes_types_and_sizes_never_reach_the_kernel(compiled: Kernels) -> None:
    case = draw(37, 19, [4, 4], 4)
    for wrong in (
        replace(case, sizes=[4, 3]),
        replace(case, sizes=[3, 5]),
        replace(case, sizes=[5, 3]),
        replace(case, inputs_NP=case.inputs_NP.double()),
        replace(case, hidden_BP=case.hidden_BP[:3]),
        replace(case, weights=replace(case.weights, projection_PC=case.weights.projection_PC.t())),
    ):
        with pytest.raises(InputError):
            wrong.run(compiled)
    with pytest.raises(InputError):
        layer_gradients(compiled, case.run(compiled), case.grad_NP[:5], case.weights)
