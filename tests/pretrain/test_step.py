"""One whole step against plain autograd on a loss that is written out here with torch's own operations."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy import toy_corpus, toy_model

from elmokit.model.bilm import BiLMState
from elmokit.model.language_model import LanguageModel
from elmokit.model.lstm import Drop, LSTMStack, LSTMState
from elmokit.model.softmax import Softmax
from elmokit.pretrain.batches import DirectionBatch, PretrainBatch, PretrainBatches
from elmokit.pretrain.dropout import RowDropout
from elmokit.pretrain.step import StepResult, compute_gradients
from elmokit.text.vocab import Vocab

NUM_ROWS, SCALE = 4, 0.125


def plain_stack(stack: LSTMStack, inputs: Tensor, start: LSTMState, drop: Drop) -> Tensor:
    below = inputs
    for index, layer in enumerate(stack.layers):
        below = drop(below)
        hidden, cell = start.hidden_LBP[index], start.cell_LBC[index]
        outputs = []
        for at_step in below.split(NUM_ROWS):
            gates = at_step @ layer.input_weight.t() + hidden @ layer.recurrent_weight.t() + layer.bias
            let_in, forget, let_out, candidate = gates.chunk(4, dim=1)
            cell = torch.sigmoid(forget + 1) * cell + torch.sigmoid(let_in) * torch.tanh(candidate)
            cell = cell.clamp(-layer.cell_clip, layer.cell_clip)
            hidden = (torch.sigmoid(let_out) * torch.tanh(cell)) @ layer.projection.t()
            hidden = hidden.clamp(-layer.proj_clip, layer.proj_clip)
            outputs.append(hidden)
        below = torch.cat(outputs) + (below if index else 0)
    return drop(below)


def plain_loss(softmax: Softmax, hidden: Tensor, batch: DirectionBatch) -> Tensor:
    logits = hidden @ softmax.weight.t() + softmax.bias
    if batch.candidates is None:
        return -logits.log_softmax(dim=1).gather(1, batch.targets_N[:, None]).sum()
    candidates = batch.candidates
    true = logits.gather(1, batch.targets_N[:, None]) - candidates.log_expected_targets_N[:, None]
    against = logits[:, candidates.ids_K] - candidates.log_expected_K
    against = against.masked_fill(batch.targets_N[:, None] == candidates.ids_K, -torch.inf)
    return -torch.cat([true, against], dim=1).log_softmax(dim=1)[:, 0].sum()


def make(folder: Path, negatives: int | None) -> tuple[LanguageModel, PretrainBatch, BiLMState]:
    corpus = toy_corpus(folder)
    vocab = Vocab.from_counts(corpus.word_counts())
    batches = PretrainBatches(
        corpus, vocab, num_rows=NUM_ROWS, unroll_steps=5, num_negatives=negatives, seed=1, rows=range(NUM_ROWS)
    )
    torch.manual_seed(0)
    model = LanguageModel.untrained(toy_model(cell_clip=0.4, proj_clip=0.1), len(vocab)).double()
    with torch.no_grad():
        model.softmax.bias.normal_()
    zero = model.bilm.zero_state(NUM_ROWS)
    start = BiLMState.from_parts({name: 0.1 * torch.randn_like(part) for name, part in zero.parts().items()})
    next(batches)
    return model, next(batches), start


def drops(rate: float) -> dict[str, Drop]:
    rows = range(NUM_ROWS)
    return {
        name: RowDropout(rate, num_rows=NUM_ROWS, rows=rows, key=(index,))
        for index, name in enumerate(("forward", "backward"))
    }


def found_gradients(model: LanguageModel, result: StepResult) -> dict[str, Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    if (rows := result.softmax_rows) is not None:
        found["softmax.weight"] = torch.zeros_like(model.softmax.weight).index_copy_(0, rows.rows_R, rows.weight_RP)
        found["softmax.bias"] = torch.zeros_like(model.softmax.bias).index_copy_(0, rows.rows_R, rows.bias_R)
    return found


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("negatives", [None, 17])
@pytest.mark.parametrize("threads", [False, True], ids=["one thread", "one thread per direction"])
def test_losses_and_every_gradient_of_a_step_equal_plain_autograd(
    tmp_path: Path, negatives: int | None, rate: float, threads: bool
) -> None:
    model, batch, start = make(tmp_path, negatives)
    with ThreadPoolExecutor(2) as executor:
        drop = drops(rate).__getitem__
        result = compute_gradients(model, batch, start, drop=drop, scale=SCALE, executor=executor if threads else None)
    found = found_gradients(model, result)

    model.zero_grad()
    same = drops(rate)
    tokens = model.bilm.encode_tokens(batch.char_ids_WC)
    losses = {}
    for name, stack, part, state in (
        ("forward", model.bilm.forward_lstm, batch.forward, start.forward),
        ("backward", model.bilm.backward_lstm, batch.backward, start.backward),
    ):
        losses[name] = plain_loss(model.softmax, plain_stack(stack, tokens[part.words_N], state, same[name]), part)
    wanted = torch.autograd.grad(SCALE * sum(losses.values()), list(model.parameters()))
    torch.testing.assert_close(result.forward_loss, losses["forward"].detach())
    torch.testing.assert_close(result.backward_loss, losses["backward"].detach())
    for (name, _), gradient in zip(model.named_parameters(), wanted, strict=True):
        distance = (found[name] - gradient).norm() / gradient.norm()
        assert distance < 1e-6, name  # the expected counts of negatives are float32


def test_the_state_after_a_step_is_the_state_before_the_next(tmp_path: Path) -> None:
    model, batch, start = make(tmp_path, None)
    result = compute_gradients(model, batch, start, drop=drops(0.0).__getitem__, scale=1.0, executor=None)
    with torch.no_grad():
        tokens = model.bilm.encode_tokens(batch.char_ids_WC)
        run = model.bilm.backward_lstm(tokens[batch.backward.words_N], [NUM_ROWS] * 5, start.backward)
    torch.testing.assert_close(result.final.backward.cell_LBC, run.final.cell_LBC)
    assert not any(part.requires_grad for part in result.final.parts().values())


def test_gradients_of_rows_add_up_to_that_of_the_whole_batch(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path)
    vocab = Vocab.from_counts(corpus.word_counts())
    torch.manual_seed(0)
    model = LanguageModel.untrained(toy_model(), len(vocab)).double()

    def run(rows: range) -> StepResult:
        batches = PretrainBatches(corpus, vocab, num_rows=NUM_ROWS, unroll_steps=5, num_negatives=9, seed=1, rows=rows)
        drop = {
            name: RowDropout(0.2, num_rows=NUM_ROWS, rows=rows, key=(7,)) for name in ("forward", "backward")
        }.__getitem__
        start = model.bilm.zero_state(len(rows))
        return compute_gradients(model, next(batches), start, drop=drop, scale=SCALE, executor=None)

    whole = found_gradients(model, run(range(NUM_ROWS)))
    halves = [found_gradients(model, run(rows)) for rows in (range(1), range(1, NUM_ROWS))]
    for name, gradient in whole.items():
        torch.testing.assert_close(halves[0][name] + halves[1][name], gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("threads", [False, True], ids=["one thread", "one thread per direction"])
@pytest.mark.parametrize("negatives", [None, 17])
def test_a_frozen_bilm_gets_no_gradient_and_the_softmax_the_same(
    tmp_path: Path, negatives: int | None, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch, start = make(tmp_path, negatives)
    with ThreadPoolExecutor(2) as threaded:
        executor = threaded if threads else None
        whole = compute_gradients(model, batch, start, drop=drops(0.3).__getitem__, scale=SCALE, executor=executor)
        wanted = {name: gradient.clone() for name, gradient in found_gradients(model, whole).items()}

        def no_backward(*_args: object, **_options: object) -> None:
            raise AssertionError("there is nothing to learn in the biLM")

        monkeypatch.setattr(Tensor, "backward", no_backward)
        frozen = compute_gradients(
            model, batch, start, drop=drops(0.3).__getitem__, scale=SCALE, executor=executor, frozen_bilm=True
        )
    found = found_gradients(model, frozen)
    assert found.keys() == {"softmax.weight", "softmax.bias"}
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name])
    torch.testing.assert_close(frozen.forward_loss, whole.forward_loss)
    torch.testing.assert_close(frozen.final.backward.cell_LBC, whole.final.backward.cell_LBC)


@pytest.mark.parametrize("negatives", [None, 8])
def test_products_in_bfloat16_lean_the_same_way(tmp_path: Path, negatives: int | None) -> None:
    model, batch, start = make(tmp_path, negatives)
    model = model.float()
    start = BiLMState.from_parts({name: part.float() for name, part in start.parts().items()})
    nothing = drops(0.0)
    exact = compute_gradients(model, batch, start, drop=nothing.__getitem__, scale=SCALE, executor=None)
    wanted = {name: gradient.clone() for name, gradient in found_gradients(model, exact).items()}
    model.bilm.mix_precision()
    mixed = compute_gradients(model, batch, start, drop=nothing.__getitem__, scale=SCALE, executor=None, mixed=True)
    assert mixed.forward_loss.item() == pytest.approx(exact.forward_loss.item(), rel=1e-2)
    assert mixed.forward_loss.item() != exact.forward_loss.item()
    for name, gradient in found_gradients(model, mixed).items():
        assert gradient.dtype == torch.float32
        assert torch.cosine_similarity(gradient.flatten(), wanted[name].flatten(), dim=0) > 0.98, name
