"""Pairs scored in blocks against every pair made by itself."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from elmokit.tasks.coref_pairs import BLOCK, PairScorer, lay_out_pairs

D, F = 5, 3
SPEAKERS = torch.arange(40) % 3
BINS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7, 31: 7, 32: 8, 63: 8, 64: 9, 900: 9}


def make_scorer(
    *, max_antecedents: int = 6, dropout: float = 0.0, num_genres: int = 3, has_speakers: bool = True
) -> PairScorer:
    scorer = PairScorer(
        D,
        max_antecedents=max_antecedents,
        feature_dim=F,
        hidden_dims=(7, 6),
        dropout=dropout,
        num_genres=num_genres,
        has_speakers=has_speakers,
    ).double()
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.normal_()
    return scorer


def make_spans(num_spans: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return (
        torch.randn(num_spans, D, dtype=torch.float64, requires_grad=True),
        torch.randn(num_spans, dtype=torch.float64, requires_grad=True),
    )


def bin_of(distance: int) -> int:
    return distance if distance < 5 else min(9, 3 + int(math.log2(distance)))


def plain_scores(scorer: PairScorer, vectors: Tensor, scores: Tensor, genre: int) -> Tensor:
    """The scores by their definition, a pair at a time."""
    rows = []
    num_columns = max(0, min(scorer.max_antecedents, len(vectors) - 1))
    for span in range(len(vectors)):
        row = [torch.tensor(-math.inf, dtype=torch.float64)] * num_columns
        for column in range(min(num_columns, span)):
            other = span - 1 - column
            features = [scorer.distances.weight[bin_of(span - other)]]
            if scorer.same_speaker is not None:
                features.append(scorer.same_speaker.weight[int(SPEAKERS[span] == SPEAKERS[other])])
            if scorer.genres is not None:
                features.append(scorer.genres.weight[genre])
            hidden = torch.cat([vectors[span], vectors[other], vectors[span] * vectors[other], *features])
            for layer in scorer.scorer.layers:
                hidden = functional.relu(functional.linear(hidden, layer.weight, layer.bias))
            pair = functional.linear(hidden, scorer.scorer.score.weight, scorer.scorer.score.bias)[0]
            row[column] = pair + scores[span] + scores[other]
        rows.append(torch.stack(row) if row else torch.empty(0, dtype=torch.float64))
    return torch.stack(rows)


@pytest.mark.parametrize("num_spans", [2, 3, BLOCK, BLOCK + 1, 2 * BLOCK + 2, 40])
@pytest.mark.parametrize("max_antecedents", [1, 6, 100])
def test_scores_and_gradients_equal_pairs_made_one_by_one(num_spans: int, max_antecedents: int) -> None:
    scorer = make_scorer(max_antecedents=max_antecedents)
    vectors, scores = make_spans(num_spans)
    found = scorer(vectors, scores, speakers_M=SPEAKERS[:num_spans], genre=2)
    expected = plain_scores(scorer, vectors, scores, genre=2)
    torch.testing.assert_close(found, expected)
    real = ~found.isinf()
    weighting = torch.randn_like(found)[real]
    learned = [vectors, scores, *scorer.parameters()]
    grads = [
        torch.autograd.grad((result[real] * weighting).sum(), learned, allow_unused=True, materialize_grads=True)
        for result in (found, expected)
    ]
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize(("num_genres", "has_speakers"), [(0, False), (0, True), (3, False)])
def test_features_that_the_data_lacks_cost_nothing(num_genres: int, has_speakers: bool) -> None:
    scorer = make_scorer(num_genres=num_genres, has_speakers=has_speakers)
    vectors, scores = make_spans(12)
    found = scorer(vectors, scores, speakers_M=SPEAKERS[:12], genre=1)
    torch.testing.assert_close(found, plain_scores(scorer, vectors, scores, genre=1))
    num_features = 1 + bool(num_genres) + has_speakers
    assert scorer.scorer.layers[0].weight.shape == (7, 3 * D + num_features * F)


@pytest.mark.parametrize("num_spans", [0, 1])
def test_less_than_two_spans_have_no_pairs(num_spans: int) -> None:
    vectors, scores = make_spans(num_spans)
    found = make_scorer()(vectors, scores, speakers_M=SPEAKERS[:num_spans], genre=0)
    assert found.shape == (num_spans, 0)
    found.sum().backward()  # a document of a few words is no reason to stop a run


def test_gradients_equal_finite_differences() -> None:
    scorer = make_scorer(max_antecedents=4)
    vectors, scores = make_spans(11)

    def sums(vectors: Tensor, scores: Tensor, *_: Tensor) -> Tensor:
        found = scorer(vectors, scores, speakers_M=SPEAKERS[:11], genre=1)
        return found[~found.isinf()]

    assert torch.autograd.gradcheck(sums, (vectors, scores, *scorer.parameters()), fast_mode=True)


@given(st.integers(0, 60), st.integers(1, 30))
def test_every_pair_is_there_once(num_spans: int, max_antecedents: int) -> None:
    layout = lay_out_pairs(num_spans, max_antecedents)
    pairs = torch.stack([layout.spans_P, layout.antecedents_P], dim=1)[layout.real_P].tolist()
    expected = [[span, other] for span in range(num_spans) for other in range(max(0, span - max_antecedents), span)]
    assert sorted(pairs) == expected
    for block in layout.blocks:
        assert block.spans.stop - block.spans.start <= BLOCK
    num_idle = len(layout.real_P) - len(pairs)
    assert num_idle <= num_spans * (BLOCK - 1)


def test_distances_fall_into_the_ten_bins_of_the_original() -> None:
    assert {distance: bin_of(distance) for distance in BINS} == BINS
    scorer = make_scorer(max_antecedents=1000, num_genres=0, has_speakers=False).eval()
    vectors, scores = (tensor.detach() for tensor in make_spans(70))
    with torch.no_grad():
        found = scorer(vectors, scores, speakers_M=None, genre=0)
        torch.testing.assert_close(found, plain_scores(scorer, vectors, scores, genre=0))


def test_a_genre_that_is_unknown_adds_nothing_and_learns_nothing() -> None:
    scorer = PairScorer(
        D, max_antecedents=6, feature_dim=F, hidden_dims=(7,), dropout=0.0, num_genres=3, has_speakers=False
    ).double()
    assert scorer.genres is not None
    assert not scorer.genres.weight[0].any()
    assert scorer.genres.weight[1:].all()
    vectors, scores = make_spans(9)
    found = scorer(vectors, scores, speakers_M=None, genre=0)
    found[~found.isinf()].sum().backward()
    assert scorer.genres.weight.grad is not None
    assert not scorer.genres.weight.grad.any()


def test_dropout_is_on_features_and_hidden_layers_in_training_only() -> None:
    scorer = make_scorer(dropout=0.5)
    vectors, scores = make_spans(20)

    def run() -> Tensor:
        result: Tensor = scorer(vectors, scores, speakers_M=SPEAKERS[:20], genre=1)
        return result

    assert not torch.equal(run(), run())
    scorer.scorer.dropout = 0.0  # then features alone are dropped
    assert not torch.equal(run(), run())
    scorer.eval()
    assert torch.equal(run(), run())
    torch.testing.assert_close(run(), plain_scores(scorer, vectors, scores, genre=1))
