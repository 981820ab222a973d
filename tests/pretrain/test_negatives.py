"""Negatives against a draw-by-draw loop and against counted frequencies."""

import math

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.pretrain.negatives import draw_negatives, log_expected_counts


def test_words_are_distinct_in_range_and_follow_from_the_key() -> None:
    drawn = draw_negatives(50, num_words=80, key=(1, 2, 3))
    assert len(set(drawn.ids.tolist())) == 50
    assert drawn.ids.min() >= 0
    assert drawn.ids.max() < 80
    np.testing.assert_array_equal(draw_negatives(50, num_words=80, key=(1, 2, 3)).ids, drawn.ids)
    assert draw_negatives(50, num_words=80, key=(1, 2, 4)).ids.tolist() != drawn.ids.tolist()


def test_tries_are_the_draws_until_the_last_distinct_word() -> None:
    drawn = draw_negatives(6, num_words=40, key=(7,))
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((7,))))
    found: list[int] = []
    tries = 0
    while len(found) < 6:
        word = int(math.exp(rng.random() * math.log(41))) - 1
        tries += 1
        if word not in found:
            found.append(word)
    assert drawn.ids.tolist() == found
    assert drawn.num_tries == tries


def test_single_draws_are_log_uniform() -> None:
    counts = np.bincount([draw_negatives(1, num_words=5, key=(seed,)).ids[0] for seed in range(8000)], minlength=5)
    expected = [math.log((k + 2) / (k + 1)) / math.log(6) for k in range(5)]
    np.testing.assert_allclose(counts / 8000, expected, atol=0.015)


def test_expected_counts_follow_the_formula_and_the_draws() -> None:
    ids = np.arange(30)
    probability = np.log((ids + 2) / (ids + 1)) / np.log(31)
    np.testing.assert_allclose(
        np.exp(log_expected_counts(ids, num_tries=20, num_words=30)), 1 - (1 - probability) ** 20, rtol=1e-9
    )
    seen = np.zeros(30)
    expected = np.zeros(30)
    for seed in range(2000):
        drawn = draw_negatives(10, num_words=30, key=(seed,))
        seen[drawn.ids] += 1
        expected += np.exp(drawn.log_expected(ids))
    # Stopping at the last new word makes the formula an approximation, TensorFlow's own; it is a close one.
    np.testing.assert_allclose(seen / 2000, expected / 2000, atol=0.05)


def test_all_words_can_be_drawn_and_no_more() -> None:
    assert sorted(draw_negatives(20, num_words=20, key=(0,)).ids.tolist()) == list(range(20))
    with pytest.raises(InputError, match="21 distinct negatives from 20 words"):
        draw_negatives(21, num_words=20, key=(0,))
