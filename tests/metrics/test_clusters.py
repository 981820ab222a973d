"""V-measure: known values, and scikit-learn's where it is installed."""

import random

import pytest

from elmokit.metrics.clusters import v_measure


@pytest.mark.parametrize(
    ("classes", "clusters", "expected"),
    [
        ("aabb", "0011", 1.0),
        ("aabb", "1100", 1.0),
        ("aabb", "0000", 0.0),
        ("aaaa", "0000", 1.0),
        ("aabb", "0101", 0.0),
        ("aabb", "0012", 0.8),  # homogeneity 1, completeness 2/3
    ],
)
def test_known_values(classes, clusters, expected):
    assert v_measure(classes, clusters) == pytest.approx(expected, abs=1e-9)


def test_random_labels_give_scikit_learn_s_value():
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = random.Random(0)
    for _ in range(20):
        classes, clusters = ([rng.randrange(4) for _ in range(50)] for _ in range(2))
        assert v_measure(classes, clusters) == pytest.approx(metrics.v_measure_score(classes, clusters), abs=1e-9)
