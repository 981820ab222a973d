"""Answers against a second way to score them, and cases worked by hand."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.metrics.squad import normalize_answer, score_answers

ASCII_PUNCTUATION = [chr(code) for code in range(33, 127) if not chr(code).isalnum()]
texts = st.text(alphabet="aAnthe TH.-_'“1é\n\u00a0", max_size=14) | st.text(max_size=8)


def words_by_letters(text: str) -> list[str]:
    """Normalise letter by letter: an article is a whole run of letters and digits."""
    kept = [letter for letter in text.lower() if letter not in ASCII_PUNCTUATION]
    runs = ["".join(run) for _, run in groupby(kept, key=str.isalnum)]
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


def f1_by_crossing_out(words: list[str], gold_words: list[str]) -> float:
    left, num_same = list(gold_words), 0
    for word in words:
        if word in left:
            left.remove(word)
            num_same += 1
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(words), num_same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


@given(texts)
def test_normalising_is_the_same_letter_by_letter(text: str) -> None:
    assert normalize_answer(text) == " ".join(words_by_letters(text))


@given(st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_scores_are_means_over_questions_of_the_best_gold_answer(questions: list[tuple[str, list[str]]]) -> None:
    scores = score_answers([answers for _, answers in questions], [answer for answer, _ in questions])
    exact = [any(words_by_letters(answer) == words_by_letters(one) for one in gold) for answer, gold in questions]
    f1 = [
        max(f1_by_crossing_out(words_by_letters(answer), words_by_letters(one)) for one in gold)
        for answer, gold in questions
    ]
    assert scores.exact_match == pytest.approx(sum(exact) / len(questions))
    assert scores.f1 == pytest.approx(sum(f1) / len(questions))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat\t(sat)!", "cat sat"),
        ("a an the", ""),
        ("another theory", "another theory"),  # articles are whole words
        ("U.S.A.", "usa"),  # punctuation leaves no space
        ("well-known", "wellknown"),
        ("A.N. Other", "other"),  # punctuation goes first, and leaves an article
        ("“the” cat", "“ ” cat"),  # typographic quotes are no ASCII punctuation, and end a word
        ("$5.50", "550"),
    ],
)
def test_answers_are_normalised_in_the_official_order(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_scores_of_a_case_worked_by_hand() -> None:
    gold = [["Denver Broncos", "the Broncos"], ["in the city of Paris", "Lyon"], ["1066"]]
    predicted = ["The Denver Broncos!", "Paris, city of light", "1067"]
    # 0: equal to the first answer: 1 and 1.
    # 1: "paris city of light" shares 3 words with "in city of paris": P = 3/4, R = 3/4.
    # 2: no word shared: 0 and 0.
    scores = score_answers(gold, predicted)
    assert scores.exact_match == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx((1 + 0.75 + 0) / 3)


def test_a_repeated_word_counts_as_often_as_both_sides_have_it() -> None:
    assert score_answers([["New York New York"]], ["new new new"]).f1 == pytest.approx(4 / 7)  # P = 2/3, R = 2/4


def test_two_empty_answers_match_but_share_no_word() -> None:
    scores = score_answers([["The"]], [""])
    assert (scores.exact_match, scores.f1) == (1, 0)  # as in the official script


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["a"], ["b"]], ["a"], "gold answers of 2 questions but 1 predicted answers"),
        ([], [], "no question is given"),
        ([["a"], []], ["a", "b"], "question 1 has no gold answer"),
        (["Paris"], ["Paris"], "question 0: the gold answers are the string 'Paris', but must be a list"),
    ],
)
def test_questions_that_cannot_be_scored_are_rejected(gold: list, predicted: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_answers(gold, predicted)
