"""Evaluations of word vectors, against brute force."""

import numpy as np
import pytest

from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError
from elmokit.paper.evaluations import nearest_words


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
