"""Statistics of the page against numbers worked out by hand."""

import json

import numpy as np
import pytest

from elmokit.paper.instances import pack_bits, unpack_bits
from elmokit.paper.statistics import (
    FAILS,
    HOLDS,
    NOT_RUN,
    OPEN,
    error_reduction,
    instance_difference,
    judge,
    paired_difference,
    show_difference,
    show_scores,
    updates_to_reach,
)

# Means 0.001, 0.006 and 0.009 with errors of 0.001: the first two stay below a point, two errors included.
SMALL = ((0.0, 0.002), (0.005, 0.007), (0.008, 0.010))


def test_a_paired_difference_by_hand():
    # Differences 0.02, 0.04 and 0.03: mean 0.03, deviation 0.01, error 0.01 / sqrt(3).
    found = paired_difference({0: 0.52, 1: 0.74, 2: 0.63, 3: 0.9}, {0: 0.50, 1: 0.70, 2: 0.60, 4: 0.1})
    assert (found.mean, found.error, found.num) == (pytest.approx(0.03), pytest.approx(0.0057735027), 3)
    assert show_difference(found) == "+3.00 ± 0.58"
    assert paired_difference({0: 0.5}, {1: 0.5}) is None


def test_a_claim_holds_above_two_standard_errors():
    wide = paired_difference({0: 0.09, 1: 0.31}, {0: 0.0, 1: 0.0})  # mean 0.2, error 0.11
    narrow = paired_difference({0: 0.11, 1: 0.29}, {0: 0.0, 1: 0.0})  # mean 0.2, error 0.09
    worse = paired_difference({0: 0.0, 1: 0.0}, {0: 0.2, 1: 0.2})
    same, close, apart = (paired_difference({0: a, 1: b}, {0: 0.0, 1: 0.0}) for a, b in SMALL)
    given = (wide, narrow, worse, same, close, apart)
    assert [judge(one) for one in given] == [OPEN, HOLDS, FAILS, FAILS, HOLDS, HOLDS]
    assert [judge(one, "alike") for one in given] == [OPEN, FAILS, FAILS, HOLDS, HOLDS, FAILS]
    assert [judge(one, "no worse") for one in given] == [OPEN, HOLDS, FAILS, HOLDS, HOLDS, HOLDS]
    noisy = paired_difference({0: 0.05, 1: -0.05}, {0: 0.0, 1: 0.0})  # mean 0, error 0.05
    single = paired_difference({0: 0.9}, {0: 0.1})
    for expected in ("better", "alike", "no worse"):
        assert (judge(noisy, expected), judge(single, expected), judge(None, expected)) == (OPEN, OPEN, NOT_RUN)


def test_two_layers_are_paired_by_instance():
    # of 100 instances both have 50, the first alone 30, the second alone 10, neither 10
    first, second = (np.repeat(scores, (50, 30, 10, 10)) for scores in ([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]))
    found = instance_difference(first, second)
    # the differences are +1, -1 and 0: their sample variance is (40 - 100 * 0.2 ** 2) / 99
    assert (found.mean, found.error, found.num) == (pytest.approx(0.2), pytest.approx((36 / 99 / 100) ** 0.5), 100)


@pytest.mark.parametrize("num", [1, 7, 8, 9, 25_000])
def test_bits_come_back_as_scores(num):
    is_right = np.random.default_rng(num).random(num) < 0.9
    text = pack_bits(is_right)
    assert unpack_bits(text, num).tolist() == is_right.astype(float).tolist()
    assert json.loads(json.dumps(text)) == text


def test_scores_name_the_number_of_seeds():
    assert show_scores({0: 0.5, 1: 0.52, 2: 0.54}) == "52.00 ± 2.00 (3)"
    assert show_scores({1: 0.5}) == "50.00 (1)"
    assert show_scores({}) == NOT_RUN


def test_the_error_reduction_is_over_the_seeds_that_both_arms_have():
    assert error_reduction({0: 0.6, 1: 0.8}, {0: 0.8, 1: 0.9}) == pytest.approx(0.5)
    assert error_reduction({0: 0.6, 1: 0.8}, {1: 0.75, 2: 1.0}) == pytest.approx(-0.25)
    assert error_reduction({0: 0.6}, {1: 0.8}) is None
    assert error_reduction({0: 1.0}, {0: 0.5}) is None


def test_updates_end_with_the_first_score_that_is_high_enough():
    curve = [(10, 0.2), (20, 0.5), (30, 0.4), (40, 0.6)]
    assert updates_to_reach(curve, 0.5) == 20
    assert updates_to_reach(curve, 0.55) == 40
    assert updates_to_reach(curve, 0.7) is None
