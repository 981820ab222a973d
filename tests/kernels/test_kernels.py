"""The compiled kernels against plain torch in float64.

Shapes as in elmokit.kernels.library.
"""

import shutil
from pathlib import Path

import pytest
import torch
from instruction_sets import LIBRARY, runnable
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import PAD_CHAR
from elmokit.errors import ConfigError, InputError
from elmokit.kernels import library as kernels
from elmokit.kernels.library import Kernels, build_char_tables, conv_gradients, open_library
from elmokit.kernels.panels import pack_panels
from elmokit.text.chars import encode_words

SIZES = [(0, 8), (1, 1), (1, 16), (3, 7), (3, 19), (5, 64)]  # rows, cells
EXTREMES = [1e4, -1e4, float("inf"), -float("inf"), 0.0, -0.0, 88.0, -88.0, 1e-30, 80.5, -104.0, 20.0]


def advance(gates_bG: Tensor, before_bC: Tensor, clip: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Squashed gates, new cells and what they let out, in float64."""
    let_in, forget, let_out, candidate = gates_bG.double().chunk(4, dim=1)
    let_in, forget, let_out, candidate = let_in.sigmoid(), forget.sigmoid(), let_out.sigmoid(), candidate.tanh()
    after_bC = forget * before_bC.double() + let_in * candidate
    after_bC = after_bC if clip is None else after_bC.clamp(-clip, clip)
    return torch.cat([let_in, forget, let_out, candidate], dim=1), after_bC, let_out * after_bC.tanh()


def near(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=0.0, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("clip", [None, 0.75])
@pytest.mark.parametrize(("num_rows", "num_cells"), SIZES)
def test_cell_forward_is_the_lstm_equations(compiled: Kernels, num_rows: int, num_cells: int, clip: float | None):
    gates_bG, before_bC = 3 * torch.randn(num_rows, 4 * num_cells), torch.randn(num_rows, num_cells)
    squashed_gates, expected_after, expected_squashed = advance(gates_bG, before_bC, clip)
    for keep_gates in (False, True):
        found_bG, after_bC, squashed_bC = gates_bG.clone(), torch.empty_like(before_bC), torch.empty_like(before_bC)
        compiled.cell_forward(found_bG, before_bC, after_bC, squashed_bC, clip=clip, keep_gates=keep_gates)
        near(after_bC, expected_after)
        near(squashed_bC, expected_squashed)
        near(found_bG, squashed_gates if keep_gates else gates_bG)


def test_cells_may_be_advanced_in_place(compiled: Kernels):
    gates_bG, cells_bC = torch.randn(3, 4 * 19), torch.randn(3, 19)
    _, expected, _ = advance(gates_bG, cells_bC, 3.0)
    compiled.cell_forward(gates_bG, cells_bC, cells_bC, torch.empty(3, 19), clip=3.0, keep_gates=False)
    near(cells_bC, expected)


def test_rows_of_gates_may_lie_apart(compiled: Kernels):
    wide = torch.randn(3, 100)
    untouched = wide[:, 76:].clone()
    before_bC, after_bC = torch.randn(3, 19), torch.empty(3, 19)
    _, expected, _ = advance(wide[:, :76], before_bC, None)
    compiled.cell_forward(wide[:, :76], before_bC, after_bC, torch.empty(3, 19), clip=None, keep_gates=True)
    near(after_bC, expected)
    assert torch.equal(wide[:, 76:], untouched)


def test_squashing_is_exact_to_two_parts_in_ten_million(compiled: Kernels):
    sweep = torch.cat([torch.linspace(-30, 30, 200_001), torch.tensor(EXTREMES)])
    gates_bG, zeros = sweep.repeat(1, 4), torch.zeros(1, len(sweep))
    compiled.cell_forward(gates_bG, zeros, torch.empty_like(zeros), torch.empty_like(zeros), clip=None, keep_gates=True)
    expected, _, _ = advance(sweep.repeat(1, 4), zeros, None)
    near(gates_bG, expected, tolerance=2e-7)


def test_tanh_keeps_its_digits_near_zero(compiled: Kernels):
    small = torch.logspace(-30, -1, 1000)
    gates_bG, zeros = small.repeat(1, 4), torch.zeros(1, 1000)
    compiled.cell_forward(gates_bG, zeros, torch.empty_like(zeros), torch.empty_like(zeros), clip=None, keep_gates=True)
    torch.testing.assert_close(gates_bG[0, 3000:].double(), small.double().tanh(), rtol=4e-7, atol=0.0)


@pytest.mark.parametrize("clip", [None, 3.0])
@pytest.mark.parametrize("broken", range(5))
def test_nan_stays_in_its_cell_and_is_not_lost(compiled: Kernels, broken: int, clip: float | None):
    gates_bG, before_bC, after_bC, squashed_bC = torch.randn(1, 40), torch.randn(1, 10), *torch.empty(2, 1, 10)
    (gates_bG[:, 10 * broken :] if broken < 4 else before_bC)[0, 6] = float("nan")
    _, expected_after, expected_squashed = advance(gates_bG, before_bC, clip)
    compiled.cell_forward(gates_bG, before_bC, after_bC, squashed_bC, clip=clip, keep_gates=False)
    near(after_bC, expected_after)
    near(squashed_bC, expected_squashed)
    assert squashed_bC.isnan().sum() == 1


@pytest.mark.parametrize("clip", [None, 0.75])
@pytest.mark.parametrize(("num_rows", "num_cells"), SIZES)
def test_cell_backward_is_the_gradient_that_autograd_finds(
    compiled: Kernels, num_rows: int, num_cells: int, clip: float | None
):
    raw_bG, before_bC = torch.randn(num_rows, 4 * num_cells), torch.randn(num_rows, num_cells)
    grad_bC, cell_grad_bC = torch.randn(2, num_rows, num_cells)
    raw, before = raw_bG.double().requires_grad_(), before_bC.double().requires_grad_()
    gates, after, squashed = advance(raw, before, clip)
    torch.autograd.backward([squashed, after], [grad_bC.double(), cell_grad_bC.double()])
    gates_grad_bG = torch.empty(num_rows, 4 * num_cells)
    compiled.cell_backward(grad_bC, gates.float(), after.float(), before_bC, cell_grad_bC, gates_grad_bG, clip=clip)
    near(gates_grad_bG, raw.grad)
    near(cell_grad_bC, before.grad)


def test_a_clipped_cell_passes_nothing_back(compiled: Kernels):
    after_bC = torch.tensor([[3.0, -3.0, 2.999]])
    ones, cell_grad_bC, gates_grad_bG = torch.ones(1, 3), torch.ones(1, 3), torch.empty(1, 12)
    compiled.cell_backward(ones, torch.full((1, 12), 0.5), after_bC, ones, cell_grad_bC, gates_grad_bG, clip=3.0)
    assert cell_grad_bC[0, :2].tolist() == [0.0, 0.0]
    assert gates_grad_bG[0, [0, 1, 3, 4, 9, 10]].tolist() == [0.0] * 6
    assert cell_grad_bC[0, 2] != 0
    assert (gates_grad_bG[0, 6:8] != 0).all()


def spell(lengths: list[int], num_chars: int) -> Tensor:
    ids_WK = torch.full((len(lengths), num_chars), PAD_CHAR)
    for word, length in enumerate(lengths):
        ids_WK[word, :length] = torch.randint(0, PAD_CHAR, (length,))
    return ids_WK


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_looking_up_is_the_same_as_convolving(compiled: Kernels, activation: str):
    convs = [nn.Conv1d(5, count, width) for width, count in [(1, 4), (2, 33), (3, 32), (7, 70)]]
    embedding = torch.randn(261, 5)
    tables = build_char_tables(embedding, [(conv.weight, conv.bias) for conv in convs], activation=activation)
    ids_WK = spell([0, 1, 2, 3, 8, 11, 12], num_chars=12)
    chars_WEK = torch.cat([torch.zeros(1, 5), embedding]).double()[ids_WK].transpose(1, 2)
    with torch.no_grad():
        expected = torch.cat([conv.double()(chars_WEK).amax(dim=2) for conv in convs], dim=1)
    near(compiled.char_pool(ids_WK, tables), getattr(torch, activation)(expected))


def test_no_words_are_no_rows(compiled: Kernels):
    tables = build_char_tables(torch.randn(261, 5), [(torch.randn(3, 5, 2), torch.randn(3))], activation="relu")
    assert compiled.char_pool(torch.empty(0, 9, dtype=torch.int64), tables).shape == (0, 3)


@pytest.mark.parametrize("wrong", [-1, 262, 2**40])
def test_an_id_outside_the_tables_is_refused(compiled: Kernels, wrong: int):
    tables = build_char_tables(torch.randn(261, 5), [(torch.randn(3, 5, 2), torch.randn(3))], activation="relu")
    ids_WK = spell([3, 4], num_chars=9)
    ids_WK[1, 8] = wrong
    with pytest.raises(InputError, match=f"{wrong}.*expected 0 to 261"):
        compiled.char_pool(ids_WK, tables)


@pytest.mark.long
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("num_rows", [*range(14), 25])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(1, 1), (13, 31), (16, 64), (37, 103)])
def test_panels_give_the_product(compiled: Kernels, num_rows: int, num_outputs: int, num_inputs: int, accumulate: bool):
    inputs_bP, weight_GP = (
        torch.randn(num_rows, num_inputs + 2)[:, :num_inputs],
        torch.randn(num_outputs, num_inputs) / 10,
    )
    wide = torch.randn(num_rows, num_outputs + 3)
    before, beside = wide[:, :num_outputs].double() * accumulate, wide[:, -3:].clone()
    compiled.matmul_panels(wide[:, :num_outputs], inputs_bP, pack_panels(compiled, weight_GP), accumulate=accumulate)
    near(wide[:, :num_outputs], before + inputs_bP.double() @ weight_GP.double().t(), tolerance=2e-6)
    assert torch.equal(wide[:, -3:], beside)


@pytest.mark.parametrize(("activation", "counts"), [("relu", (40, 3)), ("tanh", (5, 32))])
def test_char_gradients_equal_those_of_convolutions(compiled: Kernels, activation: str, counts: tuple[int, int]):
    """From the strongest answers back to filters and characters; the words have repeated letters, so there are ties."""
    embedding = torch.randn(261, 5, requires_grad=True)
    weights = [torch.randn(counts[0], 5, 1, requires_grad=True), torch.randn(counts[1], 5, 4, requires_grad=True)]
    tables = build_char_tables(
        embedding, [(weight, torch.zeros(len(weight))) for weight in weights], activation=activation
    )
    ids_WK = torch.from_numpy(encode_words(["aa", "banana", "", "abcabcabcabc"], max_chars=9).char_ids_WC)
    grad_WF = torch.randn(4, sum(counts))
    pooled_WF, winners_WF = compiled.char_pool_learning(ids_WK, tables)
    assert torch.equal(pooled_WF, compiled.char_pool(ids_WK, tables))
    table_grad = compiled.char_pool_backward(ids_WK, winners_WF, grad_WF, tables)
    found = conv_gradients(table_grad, embedding, weights)
    chars = functional.embedding(ids_WK, functional.pad(embedding, (0, 0, 1, 0))).transpose(1, 2)
    answers_WF = torch.cat([functional.conv1d(chars, weight).amax(dim=2) for weight in weights], dim=1)
    wanted = torch.autograd.grad(answers_WF, [embedding, *weights], grad_WF)
    for left, right in zip([found.char_embedding, *found.weights], wanted, strict=True):
        near(left, right, tolerance=1e-5)


def test_a_wrong_shape_type_or_layout_never_reaches_the_kernel(compiled: Kernels):
    good, weight = torch.zeros(2, 4), pack_panels(compiled, torch.zeros(3, 4))
    for out, inputs in [(torch.zeros(2, 4), good), (torch.zeros(2, 3).double(), good), (torch.zeros(3, 2).t(), good)]:
        with pytest.raises(InputError):
            compiled.matmul_panels(out, inputs, weight, accumulate=False)
    with pytest.raises(InputError, match="contiguous"):
        compiled.matmul_panels(torch.zeros(2, 3), torch.zeros(4, 2).t(), weight, accumulate=False)


@pytest.fixture
def fresh_load():
    kernels.load.cache_clear()
    yield
    kernels.load.cache_clear()


@pytest.mark.usefixtures("fresh_load")
def test_the_environment_switches_kernels_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELMOKIT_KERNELS", "off")
    assert not kernels.available()
    assert kernels.load() is None


@pytest.mark.usefixtures("fresh_load")
def test_a_misspelt_switch_is_an_error_not_a_guess(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELMOKIT_KERNELS", "of")
    with pytest.raises(ConfigError, match="'of'"):
        kernels.load()


@pytest.mark.usefixtures("fresh_load")
def test_the_best_instruction_set_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ELMOKIT_KERNELS", raising=False)
    assert (kernels.load().isa if kernels.available() else None) == (runnable() or [None])[-1]


def test_a_missing_or_foreign_library_is_no_library(tmp_path: Path):
    assert open_library(tmp_path) is None
    (tmp_path / "libelmokit_kernels.so").write_bytes(b"not a library")
    assert open_library(tmp_path) is None


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_a_machine_with_a_compiler_has_the_kernels():
    assert LIBRARY is not None, "reinstall the package: pip install --no-deps -e ."


@pytest.mark.parametrize(("num_rows", "num_words"), [(0, 8), (1, 1), (3, 7), (3, 16), (2, 19), (5, 1000)])
def test_powers_are_those_of_a_softmax(compiled: Kernels, num_rows: int, num_words: int):
    logits_nV, apart_n = 5 * torch.randn(num_rows, num_words), 5 * torch.randn(num_rows)
    expected_top_n = torch.cat([logits_nV, apart_n[:, None]], dim=1).double().amax(dim=1)
    expected_nV = (logits_nV.double() - expected_top_n[:, None]).exp()
    total_n = compiled.powers(logits_nV, apart_n)
    assert torch.equal(apart_n.double(), expected_top_n)
    near(logits_nV, expected_nV)
    torch.testing.assert_close(total_n.double(), expected_nV.sum(dim=1), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("num_rows", "width"), [(0, 4), (1, 1), (3, 19), (5, 64)])
def test_drop_keeps_and_scales_what_was_drawn_high(compiled: Kernels, num_rows: int, width: int):
    inputs_nD = torch.randn(num_rows, width)
    drawn_nD = torch.randint(-(2**15), 2**15, (num_rows, width), dtype=torch.int16)
    for least in (-(2**15), -100, 0, 2**15 - 1, 2**15):
        expected = torch.where(drawn_nD.long() >= least, 1.5 * inputs_nD.double(), torch.zeros((), dtype=torch.double))
        near(compiled.drop(inputs_nD, drawn_nD, least=least, scale=1.5), expected)
    with pytest.raises(InputError, match="int16"):
        compiled.drop(inputs_nD, drawn_nD.long(), least=0, scale=1.0)


def test_powers_of_far_and_of_no_logits(compiled: Kernels):
    logits_nV = torch.tensor([[3e4, -3e4, -torch.inf], [0.0, torch.nan, 1.0], [-3e4, -3e4, -torch.inf]]).repeat(1, 7)
    top_n = torch.tensor([-3e4, 0.0, 3e4])
    total_n = compiled.powers(logits_nV, top_n)
    near(logits_nV[0], torch.tensor([1.0, 0.0, 0.0]).repeat(7))
    near(logits_nV[2], torch.zeros(21))
    assert total_n[0] == 7
    assert total_n[1].isnan()
    assert total_n[2] < 1e-30


def test_powers_of_rows_that_lie_apart(compiled: Kernels):
    wide = torch.randn(3, 40)
    expected = wide.clone()
    part = expected[:, 5:24]
    part.copy_((part - part.amax(dim=1, keepdim=True)).exp())
    compiled.powers(wide[:, 5:24], torch.full((3,), -torch.inf))
    near(wide, expected)


def mix_highway(gate_WF: Tensor, transform_WF: Tensor, inputs_WF: Tensor) -> Tensor:
    """The equation, from what the products gave."""
    gate_WF = gate_WF.sigmoid()
    return gate_WF * transform_WF.relu() + (1 - gate_WF) * inputs_WF


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (3, 5), (2, 16), (7, 37)])
def test_highways_mix_and_find_the_gradients_that_autograd_finds(compiled: Kernels, shape: tuple[int, int]):
    gate_WF, transform_WF, inputs_WF, grad_WF = 2 * torch.randn(4, *shape)
    exact = [part.double().requires_grad_() for part in (gate_WF, transform_WF, inputs_WF)]
    expected_WF = mix_highway(*exact)
    wanted = torch.autograd.grad(expected_WF, exact, grad_WF.double())
    mixed_WF = compiled.highway_forward(gate_WF, transform_WF, inputs_WF)
    near(mixed_WF, expected_WF.detach())
    near(gate_WF, exact[0].detach().sigmoid())
    near(transform_WF, exact[1].detach().relu())
    found = compiled.highway_backward(grad_WF, gate_WF, transform_WF, inputs_WF)
    for left, right in zip((found.gate_WF, found.transform_WF, found.inputs_WF), wanted, strict=True):
        near(left, right)


def test_nan_stays_in_its_place_on_a_highway(compiled: Kernels):
    for broken in range(3):
        parts = torch.randn(3, 2, 9)
        parts[broken, 1, 4] = torch.nan
        mixed_WF = compiled.highway_forward(*parts)
        assert mixed_WF.isnan().nonzero().tolist() == [[1, 4]]
        assert compiled.highway_backward(torch.ones(2, 9), *parts).gate_WF.isnan().nonzero().tolist() == [[1, 4]]
