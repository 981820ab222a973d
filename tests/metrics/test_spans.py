"""Typed spans against their definition, and scores worked by hand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.metrics.spans import F1Scores, find_spans, score_spans

tag = st.sampled_from(["O", "B-X", "I-X", "B-Y-Z", "I-Y-Z"])


@st.composite
def tagged_sentences(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Gold tags, and predictions that are often right."""
    gold = draw(st.lists(st.lists(tag, max_size=9), max_size=4))
    return gold, [[draw(st.one_of(st.just(right), st.just(right), tag)) for right in one] for one in gold]


def spans_by_definition(sentence: list[str]) -> list[tuple[str, tuple[int, int]]]:
    """Try every pair of places: a span is of one type, begins and ends there, and has no beginning inside."""

    def type_at(index: int) -> str:
        return sentence[index][2:] if 0 <= index < len(sentence) else ""

    def begins(index: int) -> bool:
        return type_at(index) != "" and (sentence[index][0] == "B" or type_at(index - 1) != type_at(index))

    return [
        (type_at(start), (start, end))
        for start, end in combinations(range(len(sentence) + 1), 2)
        if begins(start)
        and len({type_at(index) for index in range(start, end)}) == 1
        and not any(begins(index) for index in range(start + 1, end))
        and (type_at(end) != type_at(start) or begins(end))
    ]


@given(st.lists(tag, max_size=9))
def test_spans_are_those_of_the_definition(sentence: list[str]) -> None:
    assert find_spans(sentence) == spans_by_definition(sentence)


@pytest.mark.parametrize(
    ("sentence", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-X", [("X", (0, 1))]),
        ("B-X I-X O", [("X", (0, 2))]),
        ("B-X B-X", [("X", (0, 1)), ("X", (1, 2))]),
        ("I-X I-X", [("X", (0, 2))]),  # an I- at the start begins a span
        ("O I-X", [("X", (1, 2))]),  # so does one after O
        ("B-X I-Y I-Y", [("X", (0, 1)), ("Y", (1, 3))]),  # and one after another type
        ("I-X B-X", [("X", (0, 1)), ("X", (1, 2))]),  # IOB1: B- only between neighbors of one type
        ("B-C-A1 I-C-A1", [("C-A1", (0, 2))]),  # the first hyphen alone ends the prefix
    ],
)
def test_tags_are_read_as_conlleval_reads_them(sentence: str, spans: list) -> None:
    assert find_spans(sentence.split()) == spans


def test_scores_of_a_case_worked_by_hand() -> None:
    gold = ["B-PER I-PER O B-LOC".split(), "B-ORG O".split(), "O B-LOC".split()]
    predicted = ["B-PER I-PER O B-ORG".split(), "B-ORG I-ORG".split(), "B-MISC I-LOC".split()]
    # Gold: PER(0,2) LOC(3,4) | ORG(0,1) | LOC(1,2). Predicted: PER(0,2) ORG(3,4) | ORG(0,2) | MISC(0,1) LOC(1,2).
    # Correct: PER(0,2) and the last LOC. P = 2/5, R = 2/4, F1 = 2 x 2 / (5 + 4).
    scores = score_spans(gold, predicted)
    assert (scores.precision, scores.recall, scores.f1) == (0.4, 0.5, pytest.approx(4 / 9))
    assert list(scores.by_type.items()) == [
        ("LOC", F1Scores(precision=1.0, recall=0.5, f1=pytest.approx(2 / 3))),  # 1 of 1, 1 of 2
        ("MISC", F1Scores(0.0, 0.0, 0.0)),  # 0 of 1, and no gold
        ("ORG", F1Scores(0.0, 0.0, 0.0)),  # 0 of 2, 0 of 1
        ("PER", F1Scores(1.0, 1.0, 1.0)),
    ]


def test_precision_is_of_the_predicted_and_recall_of_the_gold() -> None:
    scores = score_spans([["B-X", "B-X", "B-X", "B-X"]], [["B-X", "O", "O", "O"]])
    assert (scores.precision, scores.recall, scores.f1) == (1.0, 0.25, pytest.approx(0.4))


def test_overall_scores_count_spans_not_types() -> None:
    scores = score_spans([["B-X", "B-X", "B-X", "B-Y"]], [["B-X", "B-X", "B-X", "B-X"]])
    assert scores.precision == scores.recall == 0.75  # 3 of 4; the mean over types would be 3/8 and 1/2


def test_a_span_does_not_reach_into_the_next_sentence() -> None:
    assert score_spans([["B-X"], ["I-X"]], [["B-X"], ["O"]]).recall == 0.5


@given(tagged_sentences())
def test_scores_are_those_of_the_sets_of_spans(sentences: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, predicted = (
        {(index, span) for index, sentence in enumerate(side) for span in spans_by_definition(sentence)}
        for side in sentences
    )
    scores = score_spans(*sentences)
    assert scores.precision == (len(gold & predicted) / len(predicted) if predicted else 0)
    assert scores.recall == (len(gold & predicted) / len(gold) if gold else 0)
    # The harmonic mean is 2 correct / (gold + predicted).
    assert scores.f1 == pytest.approx(2 * len(gold & predicted) / max(1, len(gold) + len(predicted)))
    assert set(scores.by_type) == {span_type for _, (span_type, _) in gold | predicted}


@pytest.mark.parametrize("sentences", [[], [[]], [["O", "O"]]])
def test_without_any_span_every_score_is_zero(sentences: list) -> None:
    scores = score_spans(sentences, sentences)
    assert (scores.precision, scores.recall, scores.f1, scores.by_type) == (0, 0, 0, {})


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["O"], ["O"]], [["O"]], "2 gold tag sequences but 1 predicted ones; give one of each for every sentence"),
        ([["O"], ["O", "O", "O"]], [["O"], ["O", "O"]], "sentence 1: 3 gold tags but 2 predicted ones"),
        ([["O"]], [["U-X"]], "sentence 0, predicted: tag 0 is 'U-X', but must be O, B-TYPE or I-TYPE"),
        ([["O", "B"]], [["O", "O"]], "sentence 0, gold: tag 1 is 'B', but"),
        ([["B-"]], [["O"]], "tag 0 is 'B-', but"),
        ([["O"]], [[3]], "tag 0 is 3, but"),
        (["O"], [["O"]], "sentence 0, gold: the string 'O' is given, but must be a list of tags"),
    ],
)
def test_impossible_tags_are_rejected_with_their_place(gold: list, predicted: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_spans(gold, predicted)
