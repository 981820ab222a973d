"""The whole-stack LSTM kernel against NumPy in float64.

Shapes as in elmokit.kernels.stack.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Thread

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.errors import ConfigError, InputError
from elmokit.kernels.library import Kernels, round_to_int8
from elmokit.kernels.stack import StackLayer, choose_form, pack_stack, run_stack
from elmokit.model.packing import plan_packing

CPU = torch.device("cpu")
SHAPES = [  # cells, width (None: no projection), layers, lengths
    (16, 16, 1, [1]),
    (37, 19, 2, [5, 1, 4, 4]),  # a last block and a last panel that are not whole
    (5, 3, 3, [4, 3, 3, 1]),
    (24, None, 2, [6, 2]),
    (64, 32, 2, [3] * 70 + [9]),  # steps with many rows, then steps with one
    (40, 24, 2, [2] * 140),  # more than one group of rows
    (600, 530, 1, [3, 2, 2]),  # more than one slice, and sums in more than one part
]
PRECISIONS = ["fp32", "int8", "bf16", "bytes"]  # the forms of products


@dataclass(frozen=True)
class Case:
    """The layers of one direction, and ragged sentences."""

    layers: list[StackLayer]
    lengths: list[int]
    tokens_NP: Tensor
    hidden_LBP: Tensor
    cell_LBC: Tensor

    def run(self, kernels: Kernels, *, precision: str, has_skip: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs in sentence order, and the final states of sentences by falling length."""
        packing = plan_packing(self.lengths, CPU)
        state = self.hidden_LBP[:, packing.rows_B].contiguous(), self.cell_LBC[:, packing.rows_B].contiguous()
        outputs_LNP = torch.full((len(self.layers), *self.tokens_NP.shape), torch.nan)
        stack = pack_stack(kernels, self.layers, has_skip=has_skip, form=precision)
        run_stack(kernels, stack, self.tokens_NP, packing.forward_N, packing.batch_sizes, state, outputs_LNP)
        return outputs_LNP, *state

    def only(self, index: int) -> "Case":
        """Return the case with one of its sentences."""
        first = sum(self.lengths[:index])
        tokens_NP = self.tokens_NP[first : first + self.lengths[index]]
        one = slice(index, index + 1)
        return Case(self.layers, [self.lengths[index]], tokens_NP, self.hidden_LBP[:, one], self.cell_LBC[:, one])


def draw(cells: int, width: int | None, num_layers: int, lengths: Sequence[int], *, clip: float = math.nan) -> Case:
    has_projection, width = width is not None, width or cells
    layers = [
        StackLayer(
            torch.randn(4 * cells, width) / width**0.5,
            torch.randn(4 * cells, width) / width**0.5,
            torch.randn(4 * cells),
            torch.randn(width, cells) / cells**0.5 if has_projection else None,
            clip,
            clip / 2,
        )
        for _ in range(num_layers)
    ]
    hidden, cell = torch.randn(num_layers, len(lengths), width), torch.randn(num_layers, len(lengths), cells) / 2
    return Case(layers, list(lengths), torch.randn(sum(lengths), width), hidden, cell)


def oracle(case: Case, precision: str = "fp32", *, has_skip: bool = True) -> np.ndarray:
    """Return the outputs, (L, N, P), sentence by sentence and step by step in float64."""

    def numbers(tensor: Tensor) -> np.ndarray:
        if tensor.ndim == 2 and precision != "fp32":
            tensor = tensor.bfloat16() if precision == "bf16" else round_to_int8(tensor)
        return tensor.double().numpy()

    def sigmoid(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    below, found = case.tokens_NP.double().numpy(), []
    for index, layer in enumerate(case.layers):
        weight, recurrent, bias = numbers(layer.input_GP), numbers(layer.recurrent_GP), numbers(layer.bias_G)
        above, position = np.empty_like(below), 0
        for row, length in enumerate(case.lengths):
            h, c = case.hidden_LBP[index, row].double().numpy(), case.cell_LBC[index, row].double().numpy()
            for _ in range(length):
                i, f, o, j = np.split(weight @ below[position] + recurrent @ h + bias, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
                c = c if math.isnan(layer.cell_clip) else np.clip(c, -layer.cell_clip, layer.cell_clip)
                h = sigmoid(o) * np.tanh(c)
                h = h if layer.projection_PC is None else numbers(layer.projection_PC) @ h
                h = h if math.isnan(layer.proj_clip) else np.clip(h, -layer.proj_clip, layer.proj_clip)
                above[position] = h + below[position] if index and has_skip else h
                position += 1
        found.append(above)
        below = above
    return np.stack(found)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("int8", 1e-3), ("bf16", 3e-2), ("bytes", 3e-2)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_are_those_of_the_equations(compiled: Kernels, shape: tuple, precision: str, tolerance: float):
    case = draw(*shape)
    outputs_LNP, _, _ = case.run(compiled, precision=precision)
    expected = oracle(case, precision)
    np.testing.assert_allclose(outputs_LNP.numpy(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("has_skip", [True, False])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_clips_and_skips(compiled: Kernels, precision: str, has_skip: bool):
    case = draw(37, 19, 2, [5, 3], clip=0.3)
    outputs_LNP, _, cell_LBC = case.run(compiled, precision=precision, has_skip=has_skip)
    expected = oracle(case, precision, has_skip=has_skip)
    np.testing.assert_allclose(outputs_LNP.numpy(), expected, atol=1e-2 if precision in ("bf16", "bytes") else 1e-3)
    assert outputs_LNP[0].abs().max() == pytest.approx(0.15)
    assert cell_LBC.abs().max() == pytest.approx(0.3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sentence_has_the_same_bits_alone_and_in_any_batch(compiled: Kernels, precision: str):
    lengths = [7, 3, 12, 1, *[6] * 90]
    case = draw(70, 40, 2, lengths, clip=3.0)
    together_LNP, _, _ = case.run(compiled, precision=precision)
    for index in (0, 1, 2, 3, 50, 93):
        alone_LNP, _, _ = case.only(index).run(compiled, precision=precision)
        first = sum(lengths[:index])
        assert torch.equal(alone_LNP, together_LNP[:, first : first + lengths[index]])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_state_continues_where_it_ended(compiled: Kernels, precision: str):
    whole = draw(37, 19, 1, [8, 8])
    first_half = torch.cat([whole.tokens_NP[:4], whole.tokens_NP[8:12]])
    second_half = torch.cat([whole.tokens_NP[4:8], whole.tokens_NP[12:]])
    expected_LNP, *expected_state = whole.run(compiled, precision=precision)
    _, hidden, cell = replace(whole, lengths=[4, 4], tokens_NP=first_half).run(compiled, precision=precision)
    rest = replace(whole, lengths=[4, 4], tokens_NP=second_half, hidden_LBP=hidden, cell_LBC=cell)
    found_LNP, *found_state = rest.run(compiled, precision=precision)
    assert torch.equal(found_LNP[0], torch.cat([expected_LNP[0, 4:8], expected_LNP[0, 12:]]))
    assert all(map(torch.equal, found_state, expected_state))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_nan_and_infinity_stay_in_their_row(compiled: Kernels, precision: str, bad: float):
    case = draw(37, 19, 2, [5, 5, 5])
    expected_LNP, _, _ = case.run(compiled, precision=precision)
    case.tokens_NP[7, 3] = bad  # in the second sentence
    found_LNP, _, _ = case.run(compiled, precision=precision)
    assert torch.equal(found_LNP[:, :5], expected_LNP[:, :5])
    assert torch.equal(found_LNP[:, 10:], expected_LNP[:, 10:])
    assert torch.equal(found_LNP[0, 5:7], expected_LNP[0, 5:7])
    if math.isnan(bad) or precision in ("int8", "bytes"):
        assert found_LNP[:, 7].isnan().all()


@pytest.mark.parametrize("precision", ["int8", "bytes"])
def test_int8_sums_do_not_overflow(compiled: Kernels, precision: str):
    ones = StackLayer(torch.ones(64, 16), torch.zeros(64, 16), torch.zeros(64), torch.ones(16, 16), math.nan, math.nan)
    wide = replace(
        ones, input_GP=torch.ones(4 * 512, 512), recurrent_GP=-torch.ones(4 * 512, 512), bias_G=torch.zeros(2048)
    )
    wide = replace(wide, projection_PC=torch.ones(512, 512) / 512)
    case = Case([wide], [2], torch.full((2, 512), 1e-3), torch.full((1, 1, 512), 1e-3), torch.zeros(1, 1, 512))
    found_LNP, _, _ = case.run(compiled, precision=precision)
    np.testing.assert_allclose(found_LNP.numpy(), oracle(case, "int8"), atol=1e-4)


def test_products_of_bytes_round_inputs_and_weights_to_eight_bits(compiled: Kernels):
    """One step from a zero state, against whole numbers: the sums of bytes are exact on every instruction set."""
    case = draw(37, 530, 1, [1])  # more than one slice, and a last quad that is not whole
    layer = replace(case.layers[0], bias_G=torch.zeros(4 * 37))
    case = replace(case, layers=[layer], hidden_LBP=torch.zeros(1, 1, 530), cell_LBC=torch.zeros(1, 1, 37))
    _, _, cell_LBC = case.run(compiled, precision="bytes")
    gates_G = np.zeros(4 * 37)
    for first in (0, 512):
        weight_Gp, inputs_p = (part[:, first : first + 512].numpy() for part in (layer.input_GP, case.tokens_NP))
        weight_scale, scale = np.abs(weight_Gp).max(axis=1, keepdims=True) / 127, np.abs(inputs_p).max() / 127
        sums_G = np.rint(weight_Gp / weight_scale).astype(int) @ np.rint(inputs_p[0] / scale).astype(int)
        gates_G += sums_G * (weight_scale[:, 0].astype(np.float64) * scale)
    i, _, _, j = np.split(gates_G, 4)
    np.testing.assert_allclose(cell_LBC[0, 0].numpy(), np.tanh(j) / (1 + np.exp(-i)), atol=2e-6)


def test_the_form_of_int8_follows_the_machine_and_the_environment(compiled: Kernels, monkeypatch: pytest.MonkeyPatch):
    assert choose_form(compiled, "int8") == ("bytes" if compiled.has_vnni else "int8")
    monkeypatch.setenv("ELMOKIT_INT8_INPUTS", "8")
    assert choose_form(compiled, "int8") == "bytes"
    assert choose_form(compiled, "fp32") == "fp32"
    monkeypatch.setenv("ELMOKIT_INT8_INPUTS", "16")
    assert choose_form(compiled, "int8") == "int8"
    monkeypatch.setenv("ELMOKIT_INT8_INPUTS", "4")
    with pytest.raises(ConfigError, match=re.escape("ELMOKIT_INT8_INPUTS is '4'; expected '8', '16' or nothing")):
        choose_form(compiled, "int8")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_ten_threads_at_once_find_the_same(compiled: Kernels, precision: str):
    case = draw(64, 32, 2, [9, 4, 4])
    expected_LNP, _, _ = case.run(compiled, precision=precision)
    found: list[Tensor] = []
    threads = [Thread(target=lambda: found.append(case.run(compiled, precision=precision)[0])) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    assert all(torch.equal(one, expected_LNP) for one in found)


def test_rows_may_be_parts_of_wider_rows_at_any_address(compiled: Kernels):
    case = draw(37, 19, 2, [5, 3])
    expected_LNP, _, _ = case.run(compiled, precision="fp32")
    wide_N = torch.full((8, 40), torch.nan)
    wide_N[:, 3:22] = case.tokens_NP
    outputs = torch.full((2, 8, 45), 7.0)
    packing = plan_packing(case.lengths, CPU)
    state = case.hidden_LBP.clone(), case.cell_LBC.clone()
    stack = pack_stack(compiled, case.layers, has_skip=True, form="fp32")
    run_stack(compiled, stack, wide_N[:, 3:22], packing.forward_N, packing.batch_sizes, state, outputs[:, :, 5:24])
    assert torch.equal(outputs[:, :, 5:24], expected_LNP)
    assert (outputs[:, :, :5] == 7).all()
    assert (outputs[:, :, 24:] == 7).all()


def test_no_sentences(compiled: Kernels):
    outputs_LNP, _, _ = draw(16, 16, 2, []).run(compiled, precision="int8")
    assert outputs_LNP.shape == (2, 0, 16)


def test_wrong_shapes_are_rejected(compiled: Kernels):
    case = draw(37, 19, 2, [5, 3])
    with pytest.raises(InputError, match=re.escape("expected torch.float32 of shape (8, 19)")):
        replace(case, tokens_NP=case.tokens_NP[:, :18]).run(compiled, precision="fp32")
    with pytest.raises(InputError, match=re.escape("expected torch.float32 of shape (2, 2, 37)")):
        replace(case, cell_LBC=case.cell_LBC[:, :, 1:]).run(compiled, precision="fp32")
    layers = [replace(layer, projection_PC=None) for layer in case.layers]
    with pytest.raises(InputError, match="without a projection"):
        replace(case, layers=layers).run(compiled, precision="fp32")
    stack = pack_stack(compiled, case.layers, has_skip=True, form="fp32")
    state, outputs = (case.hidden_LBP, case.cell_LBC), torch.empty(2, 8, 19)
    with pytest.raises(InputError, match="the order goes from 1 to 8; expected 0 to 7"):
        run_stack(compiled, stack, case.tokens_NP, torch.arange(1, 9), [2, 2, 2, 1, 1], state, outputs)
    with pytest.raises(InputError, match="batch sizes"):
        run_stack(compiled, stack, case.tokens_NP, torch.arange(8), [1, 2, 2, 2, 1], state, outputs)
