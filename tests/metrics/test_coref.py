"""Coreference metrics against brute force, and the examples of the papers that define them."""

import sys
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError, MissingExtraError
from elmokit.metrics.coref import CorefScores, score_coref
from elmokit.metrics.spans import F1Scores

pytest.importorskip("scipy")

Clusters = list[frozenset[str]]
Fractions = tuple[float, float, float, float]  # parts and wholes: of precision, of recall

NO_SCORE = F1Scores(0.0, 0.0, 0.0)


@st.composite
def clusters(draw: st.DrawFn) -> Clusters:
    """Some of six mentions, in up to five clusters."""
    numbers = draw(st.lists(st.none() | st.integers(0, 4), min_size=6, max_size=6))
    groups = [
        frozenset(mention for mention, number in zip("abcdef", numbers, strict=True) if number == wanted)
        for wanted in range(5)
    ]
    return [group for group in groups if group]


documents = st.lists(st.tuples(clusters(), clusters()), max_size=3)


# Each metric as its paper defines it


def links_by_parts(cluster: frozenset[str], others: Clusters) -> int:
    """Vilain et al.: the size less the number of parts that the other side cuts the cluster into."""
    parts = {next((other & cluster for other in others if mention in other), frozenset(mention)) for mention in cluster}
    return len(cluster) - len(parts)


def muc_by_parts(gold: Clusters, predicted: Clusters) -> Fractions:
    return (
        sum(links_by_parts(cluster, gold) for cluster in predicted),
        sum(len(cluster) - 1 for cluster in predicted),
        sum(links_by_parts(cluster, predicted) for cluster in gold),
        sum(len(cluster) - 1 for cluster in gold),
    )


def b_cubed_by_mention(gold: Clusters, predicted: Clusters) -> Fractions:
    """Bagga and Baldwin: for each mention of a side, the share of its cluster that is with it on the other side."""

    def of_side(side: Clusters, others: Clusters) -> tuple[float, int]:
        shares = []
        for cluster in side:
            for mention in cluster:
                other = next((other for other in others if mention in other), frozenset())
                shares.append(len(cluster & other) / len(cluster))
        return sum(shares), len(shares)

    return *of_side(predicted, gold), *of_side(gold, predicted)


def ceaf_by_permutations(gold: Clusters, predicted: Clusters) -> Fractions:
    """Luo: try every one-to-one alignment of the fewer clusters with some of the others."""
    fewer, more = sorted((gold, predicted), key=len)
    best = max(
        sum(2 * len(one & two) / (len(one) + len(two)) for one, two in zip(fewer, chosen, strict=True))
        for chosen in permutations(more, len(fewer))
    )
    return best, len(predicted), best, len(gold)


def scores_of(fractions: list[Fractions]) -> F1Scores:
    """Add up the documents, then divide; nothing of nothing is 0."""
    sums = [sum(column) for column in zip(*fractions, strict=True)] or [0, 0, 0, 0]
    precision, recall = (sums[at] / sums[at + 1] if sums[at + 1] else 0 for at in (0, 2))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    return F1Scores(*(pytest.approx(value, abs=1e-12) for value in (precision, recall, f1)))


def without_singletons(side: Clusters) -> Clusters:
    return [cluster for cluster in side if len(cluster) > 1]


def score(gold: str, predicted: str, *, keep_singletons: bool = True) -> CorefScores:
    """Score one document, written as words of one-letter mentions: ``ab cde``."""
    return score_coref([gold.split()], [predicted.split()], keep_singletons=keep_singletons)


@pytest.mark.long
@given(documents)
def test_every_metric_is_its_definition_where_singletons_count(pairs: list[tuple[Clusters, Clusters]]) -> None:
    scores = score_coref([gold for gold, _ in pairs], [predicted for _, predicted in pairs], keep_singletons=True)
    assert scores.muc == scores_of([muc_by_parts(*pair) for pair in pairs])
    assert scores.b_cubed == scores_of([b_cubed_by_mention(*pair) for pair in pairs])
    assert scores.ceaf_e == scores_of([ceaf_by_permutations(*pair) for pair in pairs])
    assert scores.mean_f1 == pytest.approx((scores.muc.f1 + scores.b_cubed.f1 + scores.ceaf_e.f1) / 3)


@pytest.mark.long
@given(documents)
def test_without_singletons_b_cubed_loses_those_of_both_sides_and_ceaf_the_predicted(
    pairs: list[tuple[Clusters, Clusters]],
) -> None:
    scores = score_coref([gold for gold, _ in pairs], [predicted for _, predicted in pairs], keep_singletons=False)
    assert scores.muc == scores_of([muc_by_parts(*pair) for pair in pairs])
    assert scores.b_cubed == scores_of([b_cubed_by_mention(*map(without_singletons, pair)) for pair in pairs])
    assert scores.ceaf_e == scores_of(
        [ceaf_by_permutations(gold, without_singletons(predicted)) for gold, predicted in pairs]
    )


@given(documents)
def test_changing_sides_changes_precision_and_recall(pairs: list[tuple[Clusters, Clusters]]) -> None:
    gold, predicted = [gold for gold, _ in pairs], [predicted for _, predicted in pairs]
    there = score_coref(gold, predicted, keep_singletons=True)
    back = score_coref(predicted, gold, keep_singletons=True)
    for one, other in [(there.muc, back.muc), (there.b_cubed, back.b_cubed), (there.ceaf_e, back.ceaf_e)]:
        assert (one.precision, one.recall) == pytest.approx((other.recall, other.precision))


# Examples of the papers


@pytest.mark.parametrize(
    ("gold", "predicted", "precision", "recall"),
    [
        # Vilain et al. 1995. ABCD takes 3 links; cut into AB and CD it keeps 2.
        ("ABCD", "AB CD", 1, 2 / 3),
        ("AB CD", "ABCD", 2 / 3, 1),
        ("ABCD", "ABCD", 1, 1),
        # A mention that the other side lacks is a part of its own: A B C with AC is cut into AC and B.
        ("ABC", "AC", 1, 1 / 2),
        ("ABC", "ADE", 0, 0),
    ],
)
def test_muc_of_the_examples_of_its_paper(gold: str, predicted: str, precision: float, recall: float) -> None:
    scores = score(gold, predicted)
    assert (scores.muc.precision, scores.muc.recall) == pytest.approx((precision, recall))


@pytest.mark.parametrize(
    ("predicted", "muc_f1", "b_cubed_f1", "ceaf_f1"),
    [
        # Luo 2005, after Bagga and Baldwin 1998: gold 12345 67 89ABC, twelve mentions, nine links.
        #
        # 67 joined to 89ABC. MUC: 9 of 10 links, R = 1. B-cubed: R = 1, P = (5 + 2 x 2/7 + 5 x 5/7) / 12 = 16/21.
        # CEAF: 12345 with itself 1, 89ABC with the seven 10/12; 11/6 of 2 and of 3.
        ("12345 6789ABC", 18 / 19, 32 / 37, 11 / 15),
        # 12345 joined to 89ABC. B-cubed: P = (10 x 1/2 + 2) / 12 = 7/12. CEAF: 10/15 + 1 = 5/3 of 2 and of 3.
        ("1234589ABC 67", 18 / 19, 14 / 19, 2 / 3),
        # All in one. MUC: 9 of 11. B-cubed: P = (25 + 4 + 25) / 12 / 12 = 3/8. CEAF: 10/17 of 1 and of 3.
        ("123456789ABC", 18 / 20, 6 / 11, 5 / 17),
        # Each alone. No links. B-cubed: P = 1, R = 3/12. CEAF: 2/6 + 2/3 + 2/6 = 4/3 of 12 and of 3.
        ("1 2 3 4 5 6 7 8 9 A B C", 0, 2 / 5, 8 / 45),
    ],
)
def test_all_metrics_of_the_example_of_the_ceaf_paper(
    predicted: str, muc_f1: float, b_cubed_f1: float, ceaf_f1: float
) -> None:
    scores = score("12345 67 89ABC", predicted)
    assert (scores.muc.f1, scores.b_cubed.f1, scores.ceaf_e.f1) == pytest.approx((muc_f1, b_cubed_f1, ceaf_f1))
    assert scores.mean_f1 == pytest.approx((muc_f1 + b_cubed_f1 + ceaf_f1) / 3)


@pytest.mark.parametrize(
    ("predicted", "recall", "precision", "f1"),
    [
        # The official scorer's own cases and figures; its gold clusters are a bc def.
        ("a bc def", 1, 1, 1),
        ("a de", 0.6, 0.9, 0.72),  # 1 + 4/5 of 3 and of 2
        ("a bcx defy z", 0.88571, 0.66429, 0.75918),  # 1 + 4/5 + 6/7 of 3 and of 4
        ("a bcx dy z", 0.73333, 0.55, 0.62857),  # 1 + 4/5 + 2/5
        ("a bcxB dy z", 0.68889, 0.51667, 0.59048),  # 1 + 4/6 + 2/5
        ("a bcx dy Bz", 0.73333, 0.55, 0.62857),
    ],
)
def test_ceaf_of_the_official_scorers_cases(predicted: str, recall: float, precision: float, f1: float) -> None:
    scores = score("a bc def", predicted).ceaf_e
    assert (scores.recall, scores.precision, scores.f1) == pytest.approx((recall, precision, f1), abs=1e-5)


# Singletons, documents, edges


def test_what_singletons_change_worked_by_hand() -> None:
    gold, predicted = "ab c", "ab c d"
    kept = score(gold, predicted, keep_singletons=True)
    assert kept.b_cubed == F1Scores(precision=0.75, recall=1.0, f1=pytest.approx(6 / 7))  # d is wrong, of four
    assert kept.ceaf_e == F1Scores(precision=pytest.approx(2 / 3), recall=1.0, f1=pytest.approx(0.8))
    left_out = score(gold, predicted, keep_singletons=False)
    assert left_out.b_cubed == F1Scores(1.0, 1.0, 1.0)  # ab alone is left on both sides
    assert left_out.ceaf_e == F1Scores(precision=1.0, recall=0.5, f1=pytest.approx(2 / 3))  # gold c waits in vain
    assert kept.muc == left_out.muc == F1Scores(1.0, 1.0, 1.0)


def test_a_singleton_is_no_counterpart_of_a_larger_cluster_where_they_are_left_out() -> None:
    # b's cluster on the other side is b alone.
    assert score("ab", "b", keep_singletons=True).b_cubed.recall == 0.25
    assert score("ab", "b", keep_singletons=False).b_cubed.recall == 0


def test_documents_are_added_up_before_the_division() -> None:
    # MUC recall: 1 of 1 link and 1 of 3; their mean would be 2/3.
    scores = score_coref([["ab"], ["abcd"]], [["ab"], ["ab", "c", "d"]], keep_singletons=True)
    assert scores.muc.recall == 0.5
    # B-cubed recall: (2 + (2 x 2/4 + 2 x 1/4)) / 6. CEAF: 1 + 4/6 over 2 gold and 4 predicted clusters.
    assert scores.b_cubed.recall == pytest.approx(3.5 / 6)
    assert (scores.ceaf_e.recall, scores.ceaf_e.precision) == pytest.approx((5 / 6, 5 / 12))


def test_a_mention_of_one_document_is_none_of_another() -> None:
    scores = score_coref([["ab"], []], [[], ["ab"]], keep_singletons=True)
    assert scores == CorefScores(NO_SCORE, NO_SCORE, NO_SCORE, 0.0)


def test_any_hashable_value_is_a_mention() -> None:
    gold = [[[(0, 1), (4, 6)], [("sentence 2", 0, 1)]]]
    scores = score_coref(gold, gold, keep_singletons=True)
    assert scores.mean_f1 == 1


@pytest.mark.parametrize("keep_singletons", [True, False])
@pytest.mark.parametrize(("gold", "predicted"), [([], []), ([[]], [[]]), ([["ab"]], [[]]), ([[]], [["ab"]])])
def test_with_nothing_on_a_side_every_score_is_zero(gold: list, predicted: list, keep_singletons: bool) -> None:
    scores = score_coref(gold, predicted, keep_singletons=keep_singletons)
    assert scores == CorefScores(NO_SCORE, NO_SCORE, NO_SCORE, 0.0)


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["ab"]], [], "gold clusters of 1 documents but predicted ones of 0; give both for every document"),
        ([["ab"], ["ab", "cb"]], [[], []], "document 1, gold: mention 'b' is in cluster 0 and again in cluster 1"),
        ([["ab"]], [["aa"]], "document 0, predicted: mention 'a' is in cluster 0 and again in cluster 0"),
        ([["ab"]], [["ab", ""]], "document 0, predicted: cluster 1 is empty"),
    ],
)
def test_impossible_clusters_are_rejected_with_their_place(gold: list, predicted: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_coref(gold, predicted, keep_singletons=True)


def test_missing_scipy_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtraError, match=r"^scipy is not installed.*pip install 'elmokit\[tasks\]'"):
        score_coref([], [], keep_singletons=True)
