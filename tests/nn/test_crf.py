"""The CRF against sums and maxima over every path."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.metrics.tags import ViterbiRules, bio_rules, bioul_rules
from elmokit.nn.crf import LinearChainCRF, decode_batch, rule_scores, viterbi_decode

INF = float("inf")
LENGTHS = [5, 1, 3, 4, 1, 2]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def best_paths(crf: LinearChainCRF, emissions: Tensor, mask: Tensor, rules: ViterbiRules) -> list[list[int]]:
    """The best tags of every sentence among those that the rules allow."""
    scores = rule_scores(rules, crf.transitions)
    return decode_batch(emissions, mask, crf.transitions + scores.transitions_KK, scores.start_K, scores.end_K)


def make_crf(num_tags: int, dtype: torch.dtype) -> LinearChainCRF:
    crf = LinearChainCRF(num_tags).to(dtype)
    with torch.no_grad():
        crf.transitions.normal_()
    return crf


def draw(num_tags: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    emissions = torch.randn(len(LENGTHS), max(LENGTHS), num_tags, dtype=dtype)
    tags = torch.randint(num_tags, emissions.shape[:2])
    return emissions, tags, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


def path_score(emissions_TK: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    moves = [transitions[pair] for pair in pairwise(path)]
    return torch.stack([emissions_TK[t, k] for t, k in enumerate(path)] + moves).sum()


def brute_log_likelihood(emissions_TK: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    paths = product(range(len(transitions)), repeat=len(path))
    total = torch.stack([path_score(emissions_TK, transitions, other) for other in paths])
    return path_score(emissions_TK, transitions, path) - torch.logsumexp(total, dim=0)


def brute_best(
    scores: np.ndarray, transitions: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[float, tuple[int, ...]]:
    def score(path: tuple[int, ...]) -> float:
        inside = sum(scores[t, k] for t, k in enumerate(path)) + sum(transitions[pair] for pair in pairwise(path))
        return float(start[path[0]] + inside + end[path[-1]])

    return max((score(path), path) for path in product(range(scores.shape[1]), repeat=len(scores)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_tags", [1, 2, 4])
def test_likelihoods_and_gradients_equal_sums_over_every_path(num_tags: int, dtype: torch.dtype) -> None:
    torch.manual_seed(num_tags)
    crf = make_crf(num_tags, dtype)
    emissions, tags, mask = draw(num_tags, dtype)
    emissions.requires_grad_()
    found = crf.log_likelihood(emissions, tags, mask)
    exact, exact_transitions = emissions.double(), crf.transitions.double()
    rows = zip(exact, tags, LENGTHS, strict=True)
    expected = [brute_log_likelihood(row[:n], exact_transitions, tuple(path[:n].tolist())) for row, path, n in rows]
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(found.double(), torch.stack(expected), **tolerance)
    weighting = torch.randn(len(LENGTHS), dtype=torch.float64)
    inputs = [emissions, crf.transitions]
    wanted = torch.autograd.grad((torch.stack(expected) * weighting).sum(), inputs)
    for left, right in zip(torch.autograd.grad((found * weighting).sum(), inputs), wanted, strict=True):
        torch.testing.assert_close(left, right, **tolerance)


def test_likelihood_gradients_equal_finite_differences() -> None:
    torch.manual_seed(0)
    crf = make_crf(3, torch.float64)
    emissions, tags, mask = draw(3)

    def likelihood(emissions: Tensor, _: Tensor) -> Tensor:
        return crf.log_likelihood(emissions, tags, mask)

    assert torch.autograd.gradcheck(likelihood, (emissions.requires_grad_(), crf.transitions))


def test_probabilities_of_all_paths_add_up_to_one() -> None:
    crf = make_crf(3, torch.float64)
    paths = torch.tensor(list(product(range(3), repeat=4)))
    emissions = torch.randn(1, 4, 3, dtype=torch.float64).expand(len(paths), -1, -1)
    total = crf.log_likelihood(emissions, paths, torch.ones_like(paths, dtype=torch.bool)).exp().sum()
    assert total.item() == pytest.approx(1.0, abs=1e-12)


def test_padding_never_changes_a_likelihood_a_gradient_or_a_path() -> None:
    torch.manual_seed(1)
    crf, rules = make_crf(3, torch.float64), bio_rules(["O", "B-X", "I-X"])
    emissions, tags, mask = draw(3)
    emissions.requires_grad_()
    found = crf.log_likelihood(emissions, tags, mask)
    grads = torch.autograd.grad(found.sum(), [emissions, crf.transitions])
    for junk in (1e30, -INF, math.nan):
        junked = emissions.detach().masked_fill(~mask[:, :, None], junk).requires_grad_()
        again = crf.log_likelihood(junked, tags.masked_fill(~mask, -100), mask)
        assert torch.equal(again, found)
        for left, right in zip(torch.autograd.grad(again.sum(), [junked, crf.transitions]), grads, strict=True):
            assert torch.equal(left, right)
        assert best_paths(crf, junked, mask, rules) == best_paths(crf, emissions, mask, rules)
    paths = best_paths(crf, emissions, mask, rules)
    for row, length in enumerate(LENGTHS):
        short, full = emissions[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool)
        alone = crf.log_likelihood(short, tags[row : row + 1, :length], full)
        torch.testing.assert_close(alone[0], found[row], rtol=1e-14, atol=1e-14)
        assert best_paths(crf, short, full, rules) == [paths[row]]
        assert len(paths[row]) == length


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_tags_and_transitions_give_numbers_never_nan(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    crf = make_crf(3, dtype)
    with torch.no_grad():
        crf.transitions[:, 2] = -INF  # nothing leads to tag 2: every score of that column is -inf
        crf.transitions[0, 1] = -INF
    emissions = torch.randn(3, 4, 3, dtype=dtype)
    emissions[:, 1, 0] = -INF
    emissions[2, 3] = -INF  # and no path at all is possible here
    tags = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]])  # possible, impossible, impossible
    emissions.requires_grad_()
    found = crf.log_likelihood(emissions, tags, torch.ones_like(tags, dtype=torch.bool))
    expected = brute_log_likelihood(emissions[0].double(), crf.transitions.double(), (1, 1, 0, 0))
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-6, atol=1e-6)
    assert found[1:].tolist() == [-INF, -INF]
    for grad in torch.autograd.grad(found[0], [emissions, crf.transitions], retain_graph=True):
        assert grad.isfinite().all()
        assert grad.abs().sum() > 0
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), [emissions, crf.transitions]))


def test_very_large_scores_do_not_overflow() -> None:
    crf = make_crf(2, torch.float32)
    emissions = torch.tensor([[[3e4, -3e4], [-3e4, 3e4]]])
    found = crf.log_likelihood(emissions, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist() == [0.0]


@pytest.mark.parametrize("seed", range(10))
def test_best_paths_equal_the_maximum_over_every_path(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_tags, num_tokens = int(random.integers(1, 5)), int(random.integers(1, 6))
    scores = random.normal(size=(num_tokens, num_tags))
    transitions = random.normal(size=(num_tags, num_tags))
    transitions[random.random(transitions.shape) < 0.3] = -INF
    start, end = random.normal(size=(2, num_tags))
    best, path = brute_best(scores, transitions, start, end)
    for dtype in (torch.float32, torch.float64):
        given = [torch.from_numpy(part).to(dtype) for part in (scores, transitions, start, end)]
        if best == -INF:
            with pytest.raises(InputError, match="no possible tags"):
                viterbi_decode(*given)
        else:
            assert viterbi_decode(*given) == list(path)


def test_a_sentence_without_a_possible_path_is_rejected_by_its_row() -> None:
    scores, free, walls = torch.zeros(3, 2), torch.zeros(2), torch.full((2, 2), -INF)
    assert viterbi_decode(scores[:1], walls, free, free) == [0]
    with pytest.raises(InputError, match=r"sentence 0 .* -inf"):
        viterbi_decode(scores, walls, free, free)


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
def test_decoded_tags_obey_the_rules_and_are_the_best_that_do(scheme: str) -> None:
    torch.manual_seed(3)
    tags = ["O", "B-X", "I-X", "I-Y"] if scheme == "BIO" else ["O", "B-X", "L-X", "U-X"]
    rules = bio_rules(tags) if scheme == "BIO" else bioul_rules(tags)
    crf = make_crf(4, torch.float64)
    emissions, _, mask = draw(4)
    emissions[..., 2] += 2  # what rules forbid would win without them
    scores = rule_scores(rules, emissions)
    for row, (path, length) in enumerate(zip(best_paths(crf, emissions, mask, rules), LENGTHS, strict=True)):
        parts = (emissions[row, :length], crf.transitions + scores.transitions_KK, scores.start_K, scores.end_K)
        assert path == list(brute_best(*[part.detach().numpy() for part in parts])[1])
    free = ViterbiRules(np.ones((4, 4), dtype=bool), np.ones(4, dtype=bool), np.ones(4, dtype=bool))
    assert best_paths(crf, emissions, mask, free) != best_paths(crf, emissions, mask, rules)


def test_a_batch_decodes_as_its_sentences_alone() -> None:
    torch.manual_seed(4)
    scores, _, mask = draw(4)
    transitions, start, end = torch.randn(4, 4).double(), torch.randn(4).double(), torch.randn(4).double()
    alone = [viterbi_decode(row[:n], transitions, start, end) for row, n in zip(scores, LENGTHS, strict=True)]
    assert decode_batch(scores, mask, transitions, start, end) == alone


def test_what_is_not_a_right_padded_batch_is_rejected() -> None:
    crf, emissions, tags = LinearChainCRF(2), torch.zeros(2, 3, 2), torch.zeros(2, 3, dtype=torch.long)
    gap = torch.tensor([[True, True, True], [True, False, True]])
    empty = torch.tensor([[True, True, True], [False, False, False]])
    for mask, message in ((gap, "pad on the right"), (empty, r"rows \[1\]"), (gap.long(), "torch.bool")):
        with pytest.raises(InputError, match=message):
            crf.log_likelihood(emissions, tags, mask)
    with pytest.raises(InputError, match="3 tags"):
        LinearChainCRF(3).log_likelihood(emissions, tags, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"sentence 1 .* nan"):
        decode_batch(
            torch.tensor([[[0.0]], [[math.nan]]]),
            torch.ones(2, 1, dtype=torch.bool),
            torch.zeros(1, 1),
            torch.zeros(1),
            torch.zeros(1),
        )
