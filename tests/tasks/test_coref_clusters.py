"""From pairs' probabilities to clusters, of one model and of several."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.readers.conll2012 import Mention
from elmokit.tasks.coref_documents import Clusters, CorefOutput, link_mentions, mean_output

A, B, C, D = (0, 0, 1), (0, 2, 4), (1, 0, 1), (2, 1, 2)
Place = tuple[int, int, int]


def output(mentions: list[Place], pairs: dict[tuple[Place, Place], float]) -> CorefOutput:
    places = [[mentions.index(later), mentions.index(earlier)] for later, earlier in pairs]
    return CorefOutput(
        np.array(mentions, dtype=np.int64).reshape(-1, 3),
        np.array(places, dtype=np.int64).reshape(-1, 2),
        np.array(list(pairs.values()), dtype=np.float64),
    )


def clusters(of: CorefOutput) -> Clusters:
    return link_mentions(of)


def test_links_are_followed_to_whole_clusters() -> None:
    found = clusters(output([A, B, C, D], {(C, A): 0.9, (D, C): 0.8, (D, B): 0.1, (B, A): 0.2}))
    assert found == ((Mention(*A), Mention(*C), Mention(*D)),)


def test_none_wins_where_it_is_as_likely_as_the_best() -> None:
    assert clusters(output([A, B], {(B, A): 0.5})) == ()
    assert clusters(output([A, B], {(B, A): 0.51})) == ((Mention(*A), Mention(*B)),)
    assert clusters(output([A, B, C], {(C, A): 0.3, (C, B): 0.35})) == ()  # 0.35 is left for none
    assert clusters(output([A, B, C], {(C, A): 0.3, (C, B): 0.4})) == ((Mention(*B), Mention(*C)),)


def test_a_output_without_pairs_or_mentions_has_no_clusters() -> None:
    assert clusters(output([A, B], {})) == ()
    assert clusters(output([], {})) == ()
    assert clusters(mean_output([output([], {}), output([], {})])) == ()


def test_a_span_that_a_model_dropped_has_no_antecedent_for_it() -> None:
    one = output([A, B, C], {(C, A): 0.9, (B, A): 0.4})
    two = output([A, C, D], {(C, A): 0.5, (D, C): 0.8})
    both = mean_output([one, two])
    assert both.mentions_M3.tolist() == [list(place) for place in (A, B, C, D)]
    found = dict(zip(map(tuple, both.pairs_N2.tolist()), both.probabilities_N.tolist(), strict=True))
    assert {pair: round(value, 12) for pair, value in found.items()} == {(2, 0): 0.7, (1, 0): 0.2, (3, 2): 0.4}


def test_several_models_can_decide_what_none_of_them_did() -> None:
    one = output([A, B, C], {(C, A): 0.55, (C, B): 0.4})
    two = output([A, B, C], {(C, A): 0.0, (C, B): 0.45})
    assert clusters(one) == ((Mention(*A), Mention(*C)),)
    assert clusters(two) == ()
    assert clusters(mean_output([one, two])) == ((Mention(*B), Mention(*C)),)


@st.composite
def outputs(draw: st.DrawFn) -> CorefOutput:
    size = draw(st.integers(1, 6))
    mentions = sorted(draw(st.lists(st.sampled_from([(0, n, n + 1) for n in range(9)]), min_size=size, unique=True)))
    pairs = {}
    for place, later in enumerate(mentions):
        shares = draw(st.lists(st.integers(0, 9), min_size=place + 1, max_size=place + 1))
        for earlier, share in zip(mentions, shares[1:], strict=False):
            if share:
                pairs[later, earlier] = share / sum(shares)
    return output(mentions, pairs)


def brute_force(of: CorefOutput) -> set[frozenset[int]]:
    """Join sets of mentions until nothing more can be joined."""
    sets = [{place} for place in range(len(of.mentions_M3))]
    for place in range(len(sets)):
        options = {int(j): p for (i, j), p in zip(of.pairs_N2, of.probabilities_N, strict=True) if i == place}
        none = 1 - sum(options.values())
        if options and max(options.values()) > none + 1e-9:
            best = max(options, key=lambda j: (round(options[j], 9), j))
            linked = sets[best] | sets[place]
            for member in linked:
                sets[member] = linked
    return {frozenset(one) for one in sets if len(one) > 1}


@given(outputs())
def test_clusters_equal_those_of_brute_force(of: CorefOutput) -> None:
    places = {Mention(*row): place for place, row in enumerate(of.mentions_M3.tolist())}
    options = {}
    for (place, _), probability in zip(of.pairs_N2.tolist(), of.probabilities_N.tolist(), strict=True):
        options.setdefault(place, []).append(probability)
    if any(abs(max(found) - (1 - sum(found))) < 1e-9 for found in options.values()):
        return  # a draw, which rounding decides
    assert {frozenset(places[mention] for mention in cluster) for cluster in clusters(of)} == brute_force(of)


@given(outputs())
def test_a_model_with_itself_predicts_the_same(of: CorefOutput) -> None:
    for several in (mean_output([of]), mean_output([of, of, of])):
        assert np.array_equal(several.mentions_M3, of.mentions_M3)
        order = np.lexsort((of.pairs_N2[:, 1], of.pairs_N2[:, 0]))
        assert np.array_equal(several.pairs_N2, of.pairs_N2[order])
        np.testing.assert_allclose(several.probabilities_N, of.probabilities_N[order])
