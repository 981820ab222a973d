"""The grid of spans against every span made by itself, and the choice of the best against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from elmokit.tasks.coref_spans import LEAST_KEPT, KeptSpans, SpanScorer, keep_best

LENGTHS = [3, 1, 7, 4]
LEFT = torch.tensor([left for length in LENGTHS for left in range(length, 0, -1)])
T, W, E, C = sum(LENGTHS), 4, 5, 6
SPANS = [
    (start, last) for start in range(T) for last in range(start, T) if last - start < min(W, int(LEFT[start]))
]  # all that lie inside a sentence, by position


def make_scorer(*, dropout: float = 0.0) -> SpanScorer:
    scorer = SpanScorer(E, C, max_width=W, feature_dim=3, hidden_dims=(8, 7), dropout=dropout).double()
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.normal_()
    return scorer


def make_tokens(seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return (
        torch.randn(T, E, dtype=torch.float64, requires_grad=True),
        torch.randn(T, C, dtype=torch.float64, requires_grad=True),
    )


def plain_vector(scorer: SpanScorer, inputs: Tensor, contexts: Tensor, start: int, last: int) -> Tensor:
    """A span's vector by its definition."""
    inside = slice(start, last + 1)
    attention = (contexts[inside] @ scorer.attention.weight[0]).softmax(dim=0)
    parts = [contexts[start], contexts[last], scorer.widths.weight[last - start], attention @ inputs[inside]]
    return torch.cat(parts)


def plain_score(scorer: SpanScorer, vector: Tensor) -> Tensor:
    hidden = vector
    for layer in scorer.scorer.layers:
        hidden = functional.relu(functional.linear(hidden, layer.weight, layer.bias))
    return functional.linear(hidden, scorer.scorer.score.weight, scorer.scorer.score.bias)[0]


def all_places(kept: KeptSpans) -> list[tuple[int, int]]:
    return list(zip(kept.starts_M.tolist(), kept.lasts_M.tolist(), strict=True))


def test_vectors_scores_and_gradients_equal_spans_made_one_by_one() -> None:
    inputs, contexts = make_tokens()
    scorer = make_scorer()
    kept = scorer(inputs, contexts, LEFT, per_token=1.0)
    vectors = torch.stack([plain_vector(scorer, inputs, contexts, *place) for place in all_places(kept)])
    scores = torch.stack([plain_score(scorer, vector) for vector in vectors])
    torch.testing.assert_close(kept.vectors_MD, vectors)
    torch.testing.assert_close(kept.scores_M, scores)
    weighting = torch.randn_like(vectors)
    learned = [inputs, contexts, *scorer.parameters()]
    losses = [
        (v * weighting).sum() + s.square().sum() for v, s in ((kept.vectors_MD, kept.scores_M), (vectors, scores))
    ]
    for left, right in zip(*(torch.autograd.grad(loss, learned) for loss in losses), strict=True):
        torch.testing.assert_close(left, right)


def test_every_span_inside_a_sentence_is_a_candidate_and_no_other() -> None:
    inputs, contexts = make_tokens()
    scorer = make_scorer()
    with torch.no_grad():
        scorer.scorer.score.weight.zero_()  # all alike: then spans are kept from the left, as far as they do not cross
    kept = scorer(inputs, contexts, LEFT, per_token=100.0)
    starts, lasts = np.array(SPANS).T
    expected = keep_best(np.zeros(len(SPANS), dtype=np.float32), starts, lasts, 10**6)
    assert all_places(kept) == [SPANS[place] for place in expected]


@pytest.mark.parametrize(("per_token", "num_kept"), [(0.1, LEAST_KEPT), (1.2, 18), (1.3, 19)])
def test_a_share_of_the_tokens_is_kept_but_never_too_few(per_token: float, num_kept: int) -> None:
    inputs, contexts = make_tokens()
    assert T == 15
    assert len(make_scorer()(inputs, contexts, LEFT, per_token=per_token).starts_M) <= num_kept
    singles = SpanScorer(E, C, max_width=1, feature_dim=3, hidden_dims=(8,), dropout=0.0).double()
    assert len(singles(inputs, contexts, LEFT, per_token=per_token).starts_M) == min(num_kept, T)


def test_the_kept_are_the_best_that_do_not_cross() -> None:
    inputs, contexts = make_tokens(seed=3)
    scorer = make_scorer()
    kept = scorer(inputs, contexts, LEFT, per_token=1.2)
    scores = [plain_score(scorer, plain_vector(scorer, inputs, contexts, *place)).item() for place in SPANS]
    assert all_places(kept) == [SPANS[place] for place in brute_force(scores, SPANS, 18)]


def test_a_last_sentence_of_one_token_and_a_document_of_one_token() -> None:
    inputs, contexts = make_tokens()
    scorer = make_scorer()
    kept = scorer(inputs[:1], contexts[:1], LEFT[2:3], per_token=0.4)
    assert all_places(kept) == [(0, 0)]
    torch.testing.assert_close(kept.vectors_MD[0], plain_vector(scorer, inputs, contexts, 0, 0))


def test_dropout_is_on_widths_and_hidden_layers_in_training_only() -> None:
    inputs, contexts = make_tokens()
    scorer = make_scorer(dropout=0.5)
    torch.manual_seed(1)
    kept = scorer(inputs, contexts, LEFT, per_token=1.0)
    widths = kept.vectors_MD[:, 2 * C : 2 * C + 3]
    whole = scorer.widths.weight[kept.lasts_M - kept.starts_M]
    assert ((widths == 0) | torch.isclose(widths, 2 * whole)).all()
    assert (widths == 0).any()
    scorer.eval()
    one, two = (scorer(inputs, contexts, LEFT, per_token=1.0) for _ in range(2))
    assert torch.equal(one.scores_M, two.scores_M)
    torch.testing.assert_close(one.vectors_MD[0], plain_vector(scorer, inputs, contexts, *all_places(one)[0]))


@pytest.mark.parametrize(
    ("inner", "crossing"), [((2, 3), (1, 3)), ((4, 5), (3, 6))], ids=["that begins as it does", "that ends as it does"]
)
def test_a_span_inside_of_a_kept_one_does_not_hide_it(inner: tuple[int, int], crossing: tuple[int, int]) -> None:
    spans = [(2, 5), inner, crossing]
    starts, lasts = np.array(spans).T
    assert keep_best(np.array([3, 2, 1], dtype=np.float32), starts, lasts, 3).tolist() == [0, 1]


def brute_force(scores: list[float], spans: list[tuple[int, int]], num_kept: int) -> list[int]:
    """Spans as sets of tokens."""
    kept: list[int] = []
    tokens = [set(range(start, last + 1)) for start, last in spans]
    for place in sorted(range(len(spans)), key=lambda place: -scores[place]):
        crossing = any(
            tokens[place] & tokens[other] and tokens[place] - tokens[other] and tokens[other] - tokens[place]
            for other in kept
        )
        if not crossing and len(kept) < num_kept:
            kept.append(place)
    return sorted(kept)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=25, unique=True),
    st.lists(st.integers(-3, 3), min_size=25, max_size=25),
    st.integers(0, 25),
)
def test_keeping_the_best_equals_brute_force(places: list[tuple[int, int]], scores: list[int], num_kept: int) -> None:
    spans = sorted((start, start + width) for start, width in places)
    starts, lasts = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    found = keep_best(np.array(scores[: len(spans)], dtype=np.float32), starts, lasts, num_kept)
    assert found.tolist() == brute_force([float(score) for score in scores], spans, num_kept)
