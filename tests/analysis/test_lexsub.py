"""Generalized average precision by hand, and the published files."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from elmokit.analysis.lexsub import average_precision, score_substitutes
from elmokit.errors import InputError
from elmokit.readers.lexsub import Substitution, read_lexsub
from elmokit.score.results import CandidateScore, Choice


def test_generalized_average_precision_by_hand() -> None:
    # Weights 3 and 1 at ranks 1 and 3: 3/1 + 4/3; ideally 3/1 + 4/2.
    assert average_precision([3, 0, 1], [1, 3]) == pytest.approx((3 + 4 / 3) / (3 + 2))
    assert average_precision([3, 1, 0], [3, 1]) == pytest.approx(1.0)
    assert average_precision([0, 0], [2]) == 0.0
    # A gold substitute that is not ranked counts in the ideal order.
    assert average_precision([1], [1, 2]) == pytest.approx(1 / (2 + 3 / 2))


class LengthScorer:
    """Short words first, backward long ones; "gnu" is out of vocabulary."""

    def iter_candidates(self, choices: Iterable[Choice]) -> Iterator[list[CandidateScore]]:
        for choice in choices:
            yield [CandidateScore(word, -len(word), 3.0 * len(word), word != "gnu") for word in choice.candidates]


def test_unknown_candidates_come_last_and_phrases_are_left_out() -> None:
    words = ("gnu", "cleverest", "smart", "well lit")
    one = Substitution("bright.a", 1, ("a", "bright", "boy"), 1, {"cleverest": 2, "well lit": 5, "gnu": 3}, words)
    scores = score_substitutes(LengthScorer(), [one])
    longest_first = (2 / 1 + 5 / 3) / (3 / 1 + 5 / 2)
    assert scores.gap["forward"] == pytest.approx((2 / 2 + 5 / 3) / (3 / 1 + 5 / 2))
    assert scores.gap["backward"] == scores.gap["both"] == pytest.approx(longest_first)
    assert scores.known_gap == pytest.approx({"forward": (2 / 2) / 2, "backward": 1.0, "both": 1.0})
    assert scores.unknown_candidates == pytest.approx(1 / 3)
    phrase = Substitution("bright.a", 2, ("bright",), 0, {"well lit": 5}, words)
    rare = Substitution("bright.a", 3, ("bright",), 0, {"gnu": 2}, words)
    found = score_substitutes(LengthScorer(), [one, phrase, rare])
    assert (found.num_instances, found.num_known_instances) == (2, 1)
    with pytest.raises(InputError, match="no instance has a gold substitute of one word"):
        score_substitutes(LengthScorer(), [phrase])


def test_the_published_files_are_read(data_dir: Path) -> None:
    folder = data_dir / "lexsub"
    found = read_lexsub(
        folder / "lst_all.preprocessed.xz", folder / "lst_all.gold.xz", folder / "lst.gold.candidates.xz"
    )
    assert 1900 < len(found) <= 2003
    first = found[0]
    assert (first.target, first.id, first.tokens[first.position]) == ("bright.a", 1, "bright")
    assert first.gold == {"intelligent": 3, "clever": 3, "smart": 1}
    assert "clever" in first.candidates


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sentences", "bright.a\t1\t9\ta bright boy"),
        ("sentences", "bright.a 1 a bright boy"),
        ("gold", "bright.a 1 clever 3"),
        ("gold", "bright.a 1 :: clever;"),
        ("candidates", "bright.a clever"),
        ("candidates", "dim.a::dull"),
    ],
)
def test_broken_lines_are_rejected(tmp_path: Path, name: str, line: str) -> None:
    lines = {
        "sentences": "bright.a\t1\t1\ta bright boy",
        "gold": "bright.a 1 :: clever 3;",
        "candidates": "bright.a::clever",
    } | {name: line}
    for file, text in lines.items():
        (tmp_path / file).write_text(text + "\n", "utf-8")
    with pytest.raises(InputError, match=name):
        read_lexsub(tmp_path / "sentences", tmp_path / "gold", tmp_path / "candidates")
