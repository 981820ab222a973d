"""Roles against a second way to count them, and cases worked by hand."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.metrics.spans import F1Scores, find_spans
from elmokit.metrics.srl import fold_continuations, score_role_spans, score_roles

ROLES = ["A0", "A1", "C-A0", "C-A1", "R-A1", "V", "C-V"]
tag = st.sampled_from(["O", *(f"{prefix}-{role}" for prefix in "BI" for role in ROLES)])


@st.composite
def predicates(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Gold tags, and predictions that are often right."""
    gold = draw(st.lists(st.lists(tag, max_size=9), max_size=3))
    return gold, [[draw(st.one_of(st.just(right), st.just(right), tag)) for right in one] for one in gold]


def arguments_by_looking_back(tags: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    """A ``C-X`` belongs to the last ``X`` before it; if there is none, to the first ``C-X`` of all."""
    spans = find_spans(tags)
    heads: list[int] = []
    for place, (role, _) in enumerate(spans):
        before = [other for other in range(place) if spans[other][0] == role[2:]]
        first = next(other for other in range(place + 1) if spans[other][0] == role)
        heads.append(place if not role.startswith("C-") else before[-1] if before else first)
    return [
        (spans[head][0].removeprefix("C-"), [spans[place][1] for place in range(len(spans)) if heads[place] == head])
        for head in sorted(set(heads))
    ]


def counts_by_matching(gold: list[str], predicted: list[str]) -> Counter[str]:
    """Look for the gold argument with the same ends, then compare role and phrases, as srl-eval.pl is built."""
    waiting = {(phrases[0][0], phrases[-1][1]): (role, phrases) for role, phrases in arguments_by_looking_back(gold)}
    counts: Counter[str] = Counter()
    for role, phrases in arguments_by_looking_back(predicted):
        ends = phrases[0][0], phrases[-1][1]
        right = waiting.get(ends) == (role, phrases)
        if right:
            del waiting[ends]
        if role != "V":
            counts["correct" if right else "excess"] += 1
    counts["missed"] = sum(role != "V" for role, _ in waiting.values())
    return counts


@given(predicates())
def test_arguments_are_counted_as_by_matching_their_ends_and_phrases(
    sequences: tuple[list[list[str]], list[list[str]]],
) -> None:
    counts = sum((counts_by_matching(*pair) for pair in zip(*sequences, strict=True)), Counter())
    correct, excess, missed = (counts[name] for name in ("correct", "excess", "missed"))
    scores = score_roles(*sequences)
    assert scores.precision == (correct / (correct + excess) if correct + excess else 0)
    assert scores.recall == (correct / (correct + missed) if correct + missed else 0)
    assert not [role for role in scores.by_type if role.startswith("C-") or role == "V"]


@pytest.mark.parametrize(
    ("tags", "arguments"),
    [
        ("B-A1 O B-C-A1", [("A1", ((0, 1), (2, 3)))]),
        ("B-A1 B-A0 B-C-A1 B-C-A1", [("A1", ((0, 1), (2, 3), (3, 4))), ("A0", ((1, 2),))]),
        ("B-A1 B-A1 B-C-A1", [("A1", ((0, 1),)), ("A1", ((1, 2), (2, 3)))]),  # to the latest
        ("B-C-A1 B-C-A1 B-A1", [("A1", ((0, 1), (1, 2))), ("A1", ((2, 3),))]),  # without an A1 it is one
        ("B-A0 O B-C-A1", [("A0", ((0, 1),)), ("A1", ((2, 3),))]),  # another role's argument does not count
        ("B-R-A1 O B-C-A1", [("R-A1", ((0, 1),)), ("A1", ((2, 3),))]),
    ],
)
def test_a_continuation_joins_the_latest_argument_of_its_role(tags: str, arguments: list) -> None:
    assert fold_continuations(find_spans(tags.split())) == arguments


def test_an_argument_in_two_phrases_counts_once_and_as_a_whole() -> None:
    gold = "B-A1 O B-V B-C-A1 B-A0".split()
    predicted = "B-A1 O B-V O B-A0".split()
    # Folded: gold A1{0-1,3-4} A0{4-5}; predicted A1{0-1} A0{4-5}. One of two is right on both sides.
    scores = score_roles([gold], [predicted])
    assert (scores.precision, scores.recall, scores.f1) == (0.5, 0.5, 0.5)
    assert scores.by_type == {"A0": F1Scores(1.0, 1.0, 1.0), "A1": F1Scores(0.0, 0.0, 0.0)}
    # Each for itself: gold A1 C-A1 A0; predicted A1 A0, both right.
    scores = score_role_spans([gold], [predicted])
    assert (scores.precision, scores.recall, scores.f1) == (1.0, pytest.approx(2 / 3), pytest.approx(0.8))
    assert list(scores.by_type) == ["A0", "A1", "C-A1"]


def test_the_same_ends_are_not_enough() -> None:
    in_two_phrases, in_one, in_touching_phrases = "B-A1 O B-C-A1", "B-A1 I-A1 I-A1", "B-A1 I-A1 B-C-A1"
    for gold, predicted in [
        (in_two_phrases, in_one),
        (in_one, in_two_phrases),
        (in_one, in_touching_phrases),
        (in_touching_phrases, in_two_phrases),
    ]:
        assert score_roles([gold.split()], [predicted.split()]).f1 == 0
        assert score_roles([gold.split()], [gold.split()]).f1 == 1


def test_a_continuation_without_its_head_is_right_where_a_plain_argument_is() -> None:
    gold, predicted = [["B-A1", "I-A1", "O"]], [["B-C-A1", "I-C-A1", "O"]]
    assert score_roles(gold, predicted).f1 == 1
    assert score_role_spans(gold, predicted).f1 == 0


@pytest.mark.parametrize("score", [score_roles, score_role_spans])
def test_the_verb_and_its_continuation_never_count(score) -> None:
    gold = ["B-V", "B-C-V", "B-A0", "O"]
    wrong_verb = score([gold], [["O", "B-V", "B-A0", "B-C-V"]])
    assert (wrong_verb.f1, list(wrong_verb.by_type)) == (1, ["A0"])
    only_verb = score([["B-V", "O"]], [["B-V", "O"]])
    assert (only_verb.precision, only_verb.recall, only_verb.f1, only_verb.by_type) == (0, 0, 0, {})


@pytest.mark.parametrize("score", [score_roles, score_role_spans])
def test_predicates_are_scored_apart(score) -> None:
    # The second predicate's A0 is where the first one's was: one right of two.
    scores = score([["B-A0", "O"], ["O", "B-A0"]], [["B-A0", "O"], ["B-A0", "O"]])
    assert (scores.precision, scores.recall) == (0.5, 0.5)


@pytest.mark.parametrize("score", [score_roles, score_role_spans])
def test_sequences_that_do_not_match_are_rejected(score) -> None:
    with pytest.raises(
        InputError, match="1 gold tag sequences but 2 predicted ones; give one of each for every predic"
    ):
        score([["O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="predicate 0: 1 gold tags but 2 predicted ones"):
        score([["O"]], [["O", "O"]])
