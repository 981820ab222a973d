"""The hand-written loss against autograd on the formula, term by term."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.model import softmax as softmax_module
from elmokit.model.softmax import Candidates, LossGrads, Softmax, full_loss, sampled_loss


def make(num_words: int = 11, dim: int = 4) -> tuple[Softmax, Tensor, Tensor]:
    torch.manual_seed(0)
    softmax = Softmax(num_words, dim).double()
    with torch.no_grad():
        softmax.bias.normal_()
    return softmax, 2 * torch.randn(7, dim, dtype=torch.double), torch.tensor([0, 3, 3, 10, 1, 5, 0])


def densify(rows: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).index_copy_(0, rows, values)


def check_against_autograd(softmax: Softmax, found: LossGrads, loss: Tensor, leaf: Tensor) -> None:
    wanted = torch.autograd.grad(loss, [leaf, softmax.weight, softmax.bias])
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.hidden_NP, wanted[0])
    torch.testing.assert_close(densify(found.rows_R, found.weight_RP, softmax.weight), wanted[1])
    torch.testing.assert_close(densify(found.rows_R, found.bias_R, softmax.bias), wanted[2])


@pytest.fixture(params=[2**25, 1, 3 * 8 * 8], ids=["whole", "row by row", "few rows"])
def _piece_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_module, "PIECE_BYTES", request.param)
    monkeypatch.setattr(softmax_module, "FEWEST_ROWS", 1)


@pytest.mark.usefixtures("_piece_bytes")
def test_full_loss_and_gradients_equal_autograd() -> None:
    softmax, hidden, targets = make()
    leaf = hidden.clone().requires_grad_()
    loss = functional.cross_entropy(leaf @ softmax.weight.t() + softmax.bias, targets, reduction="sum")
    check_against_autograd(softmax, full_loss(softmax, hidden, targets), loss, leaf)


@pytest.mark.usefixtures("_piece_bytes")
@pytest.mark.parametrize("ids", [[3, 7, 0], [2, 4], list(range(11))])
def test_sampled_loss_and_gradients_equal_autograd_term_by_term(ids: list[int]) -> None:
    softmax, hidden, targets = make()
    log_expected = torch.log(torch.linspace(0.05, 0.9, 11, dtype=torch.double))
    leaf = hidden.clone().requires_grad_()
    losses = []
    for row, target in enumerate(targets.tolist()):
        words = [target, *(word for word in ids if word != target)]  # a drawn target does not count twice
        offsets = softmax.bias - log_expected
        logits = torch.stack([leaf[row] @ softmax.weight[word] + offsets[word] for word in words])
        losses.append(-logits.log_softmax(dim=0)[0])
    candidates = Candidates(torch.tensor(ids), log_expected[ids], log_expected[targets])
    found = sampled_loss(softmax, hidden, targets, candidates)
    check_against_autograd(softmax, found, torch.stack(losses).sum(), leaf)
    assert found.rows_R.tolist() == sorted({*ids, *targets.tolist()})


def test_every_word_as_a_candidate_is_the_full_softmax() -> None:
    softmax, hidden, targets = make()
    nothing = torch.zeros(11, dtype=torch.double)
    sampled = sampled_loss(softmax, hidden, targets, Candidates(torch.arange(11), nothing, nothing[targets]))
    full = full_loss(softmax, hidden, targets)
    torch.testing.assert_close(sampled.loss, full.loss)
    torch.testing.assert_close(sampled.weight_RP, full.weight_RP)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("words", "positions", "fewest_packed"), [(1024, 256, 1), (1, 1, 1), (3, 2, 99), (4, 3, 1)])
def test_negative_log_probs_are_the_full_softmaxs(
    words: int, positions: int, fewest_packed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_module, "WORDS_AT_ONCE", words)
    monkeypatch.setattr(softmax_module, "POSITIONS_AT_ONCE", positions)
    monkeypatch.setattr(softmax_module, "FEWEST_PACKED", fewest_packed)
    softmax, hidden, targets = make()
    expected = functional.cross_entropy(hidden @ softmax.weight.t() + softmax.bias, targets, reduction="none")
    found = softmax.to(dtype).negative_log_probs(hidden.to(dtype), targets)
    torch.testing.assert_close(found, expected.detach().to(dtype), rtol=1e-5, atol=1e-5)


def test_no_word_is_less_surprising_than_not_at_all_and_nan_stays() -> None:
    torch.manual_seed(1)
    softmax, hidden = Softmax(50, 128), torch.randn(50, 128)
    with torch.no_grad():
        softmax.weight.copy_(10 * hidden)  # every word is certain, and its logit so large that it is rounded
    assert (softmax.negative_log_probs(hidden, torch.arange(50)) >= 0).all()
    assert softmax.negative_log_probs(torch.full((2, 128), torch.nan), torch.arange(2)).isnan().all()


def test_huge_logits_do_not_overflow() -> None:
    softmax, hidden, targets = make()
    found = full_loss(softmax, 1e4 * hidden, targets)
    assert torch.isfinite(found.loss)
    assert torch.isfinite(found.hidden_NP).all()
