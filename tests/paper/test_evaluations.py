"""Evaluations of word vectors, against brute force and cases worked out by hand."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from toy_datasets import PLAYS, write_senses

from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError
from elmokit.paper.evaluations import SEMCOR, find_play, nearest_words

DEGREES = dict(zip((text for text, _ in PLAYS), (0, 10, 90, 75, 82, 200), strict=True))


class Angles:
    """Two layers of *play* in each sentence: one vector for all, and a vector at an angle in degrees."""

    def iter_layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        for tokens in sentences:
            angle = np.radians(DEGREES[" ".join(tokens)])
            layers_L1D = np.array([[[1.0, 0.0]], [[np.cos(angle), np.sin(angle)]]], dtype=np.float32)
            yield layers_L1D.repeat(len(tokens), axis=1)


def test_neighbors_of_play_by_hand(tmp_path: Path) -> None:
    write_senses(tmp_path / "wsd")
    found = find_play(Angles(), [tmp_path / name for name in SEMCOR], lambda _: None)  # type: ignore[arg-type]
    # Equal vectors: every neighbor has the mean rank of five. Of five neighbors one has the same sense.
    # Angles: of 0 the nearest is 10, the answer; of 90 it is 82, before 75, the answer. Only 0 and 10 find their sense.
    assert list(found["ranks"].values()) == [[3, 1], [3, 2]]
    assert [nearest[1] for nearest in found["nearest"].values()] == [PLAYS[1][0], PLAYS[4][0]]
    assert found["same_sense"] == [pytest.approx(0.2), pytest.approx(2 / 6)]
    assert found["chance"] == pytest.approx(0.2)
    assert found["answers"][1] == [1, 1, 0, 0, 0, 0]


def test_the_nearest_words_are_those_of_the_largest_cosines() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    words = ["play", *(f"w{number}" for number in range(29))]
    cosines = {
        word: float(one @ vectors[0] / np.linalg.norm(one) / np.linalg.norm(vectors[0]))
        for word, one in zip(words[1:], vectors[1:], strict=True)
    }
    found = nearest_words(StaticVectors(words, vectors), count=5)["words"]
    assert found == sorted(cosines, key=lambda word: -cosines[word])[:5]


def test_vectors_without_the_word_are_rejected() -> None:
    with pytest.raises(InputError, match="have no word 'play'"):
        nearest_words(StaticVectors(["game"], np.ones((1, 2), dtype=np.float32)))
