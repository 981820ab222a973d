"""Rescoring of n-best lists."""

from collections.abc import Iterator

import pytest
from lm_oracle import make_pair
from published import PublishedModel

from elmokit.errors import InputError
from elmokit.score.nbest import RescoredHypothesis, best_per_id, read_nbest, rescore
from elmokit.score.scoring import Scorer
from elmokit.text.lines import Line

NBEST = """\
0 ||| the old man ||| LM= -3 WordPenalty= -3 ||| -4.5
0 ||| old man the river ||| LM= -2 WordPenalty= -4 ||| -1.5 ||| 0-0 1-1

7 ||| it rose ||| LM= -1 ||| -2
a |||  ||| LM= 0 ||| -9
"""


def as_lines(text: str) -> Iterator[Line]:
    return (Line(line, "list", number) for number, line in enumerate(text.splitlines(), start=1))


@pytest.fixture(scope="module")
def scorer(published_model: PublishedModel) -> Scorer:
    pair = make_pair(published_model)
    return Scorer(pair.model, pair.vocab, state="reset")


@pytest.fixture(scope="module")
def rescored(scorer: Scorer) -> list[RescoredHypothesis]:
    return list(rescore(scorer, read_nbest(as_lines(NBEST))))


def test_a_list_is_read_with_its_totals() -> None:
    found = [(one.id, one.text, one.total) for one in read_nbest(as_lines(NBEST))]
    assert found == [
        ("0", "the old man", -4.5),
        ("0", "old man the river", -1.5),
        ("7", "it rose", -2.0),
        ("a", "", -9.0),
    ]
    [short] = read_nbest(as_lines("0 ||| only text"))
    assert short.total is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 ||| a\nno fields", r"list, line 2: is 'no fields'; expected id \|\|\| hypothesis"),
        (" ||| a", r"list, line 1: is .*expected id"),
        ("0 ||| a ||| f ||| high", r"list, line 1: the total score is 'high'; expected a number"),
        ("0 ||| a\n1 ||| b\n0 ||| c", r"list, line 3: id 0 appears again; sort the list"),
    ],
)
def test_a_malformed_line_is_rejected_with_its_number(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read_nbest(as_lines(text)))


def test_every_line_keeps_its_fields_and_gets_its_score(scorer: Scorer, rescored: list[RescoredHypothesis]) -> None:
    texts = [line for line in NBEST.splitlines() if line]
    for text, one in zip(texts, rescored, strict=True):
        [score] = scorer.score([text.split("|||")[1].split()])
        assert one.score.log10 == pytest.approx(score.log10, abs=1e-4)
        kept, _, last = one.line.rpartition(" ||| ")
        assert kept == text
        assert float(last) == pytest.approx(score.log10, abs=1e-4)


def test_the_best_of_every_id_has_the_highest_score(rescored: list[RescoredHypothesis]) -> None:
    best = list(best_per_id(rescored))
    assert [one.hypothesis.id for one in best] == ["0", "7", "a"]
    first = max(rescored[:2], key=lambda one: one.score.log10)
    assert best[0] is first
    other = next(one for one in rescored[:2] if one is not first)
    # A weight so negative that the language model's order is reversed.
    assert next(best_per_id(rescored, lm_weight=-100.0)) is other
    # A weight of zero leaves the list's own order.
    assert next(best_per_id(rescored, lm_weight=0.0)) is rescored[1]


def test_a_weight_needs_totals_in_the_list(scorer: Scorer) -> None:
    rescored = rescore(scorer, read_nbest(as_lines("0 ||| the man ||| LM= 1")))
    with pytest.raises(InputError, match="list, line 1: has no total score"):
        list(best_per_id(rescored, lm_weight=0.5))


def test_hypotheses_are_answered_one_by_one(scorer: Scorer) -> None:
    read: list[int] = []

    def lines() -> Iterator[Line]:
        for line in as_lines(NBEST):
            read.append(line.number)
            yield line

    answers = rescore(scorer, read_nbest(lines()), window_words=1)
    next(answers)
    assert read == [1]
    next(answers)
    assert read == [1, 2]
