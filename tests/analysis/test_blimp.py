"""Minimal pairs: ties are wrong, paradigms count equally, out-of-vocabulary pairs are separate."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from elmokit.analysis.blimp import PHENOMENA, PUBLISHED, PublishedAccuracy, score_blimp
from elmokit.errors import InputError
from elmokit.readers.blimp import MinimalPair, read_blimp
from elmokit.score.results import SentenceScore

KNOWN = {"the", "cat", "cats", "sleeps", "sleep", "dogs"}
NUM_PARADIGMS = [2, 9, 7, 5, 8, 2, 7, 2, 8, 7, 4, 6]  # per phenomenon
LOGPROBS = {"sleeps": -1.0, "sleep": -2.0}


class TableScorer:
    """Forward by a table of words; backward by the negated table."""

    def iter_scores(self, sentences: Iterable[str]) -> Iterator[SentenceScore]:
        for sentence in sentences:
            tokens = tuple(sentence.split())
            found = np.array([LOGPROBS.get(token, -3.0) for token in tokens], dtype=np.float32)
            unknown = np.array([token not in KNOWN for token in tokens])
            yield SentenceScore(tokens, found, -found, -0.5, -0.25, unknown)


PAIRS = [
    MinimalPair("a1", "agreement", "the cat sleeps", "the cat sleep"),
    MinimalPair("a1", "agreement", "the cat sleep", "the cat sleeps"),
    MinimalPair("a1", "agreement", "the cat", "the cats"),  # a tie
    MinimalPair("a2", "agreement", "the zebra sleeps", "the zebra sleep"),  # unknown in both: the pair is known
    MinimalPair("b1", "binding", "the sleeps", "the gnu"),
]


def test_a_tie_is_wrong_and_paradigms_count_equally() -> None:
    scores = score_blimp(TableScorer(), PAIRS)
    forward = scores.by_direction["forward"]
    assert forward.paradigms == {"a1": pytest.approx(1 / 3), "a2": 1.0, "b1": 1.0}
    assert forward.phenomena == {"agreement": pytest.approx((1 / 3 + 1) / 2), "binding": 1.0}
    assert forward.overall == pytest.approx((1 / 3 + 2) / 3)
    assert scores.by_direction["backward"].paradigms == {"a1": pytest.approx(1 / 3), "a2": 0.0, "b1": 0.0}
    assert scores.by_direction["both"].overall == 0.0  # all ties
    assert scores.ties == pytest.approx(1 / 5)


def test_pairs_that_differ_in_an_unknown_word_are_left_out_of_the_second_figure() -> None:
    scores = score_blimp(TableScorer(), PAIRS)
    assert scores.unknown_pairs == pytest.approx(1 / 5)
    assert scores.by_direction["forward"].known == pytest.approx((1 / 3 + 1) / 2)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.model)
def test_published_phenomena_have_the_published_mean(published: PublishedAccuracy) -> None:
    mean = np.average(published.by_phenomenon, weights=NUM_PARADIGMS)
    assert mean == pytest.approx(published.overall, abs=0.1)


@pytest.mark.slow
def test_the_archive_holds_67_paradigms_of_1000_pairs(data_dir: Path) -> None:
    pairs = read_blimp(data_dir / "blimp" / "blimp.tar.xz")
    assert len(pairs) == 67_000
    assert len({pair.paradigm for pair in pairs}) == 67
    assert {pair.phenomenon for pair in pairs} == set(PHENOMENA)
    paradigms = [{pair.paradigm for pair in pairs if pair.phenomenon == name} for name in PHENOMENA]
    assert [len(found) for found in paradigms] == NUM_PARADIGMS


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"UID": "x"}', '{"UID": 1, "linguistics_term": "", "sentence_good": "a"}']
)
def test_what_is_no_pair_is_rejected_with_its_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(line + "\n", "utf-8")
    with pytest.raises(InputError, match=r"pairs\.jsonl, line 1: found .*, expected an object with UID"):
        read_blimp(path)


def test_empty_and_damaged_inputs_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no minimal pairs in it"):
        read_blimp(tmp_path)
    (tmp_path / "blimp.tar.xz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a tar archive, damaged or cut short"):
        read_blimp(tmp_path / "blimp.tar.xz")
