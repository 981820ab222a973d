"""Agreement of clusters with classes (Rosenberg and Hirschberg 2007)."""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import log


def v_measure(classes: Sequence[Hashable], clusters: Sequence[Hashable]) -> float:
    """Return the harmonic mean of homogeneity and completeness, from 0 to 1.

    Args:
        classes: the true class of each item.
        clusters: the cluster of each item.
    """
    entropy_of_classes, entropy_of_clusters = _entropy(classes), _entropy(clusters)
    joint = _entropy(list(zip(classes, clusters, strict=True)))
    shared = entropy_of_classes + entropy_of_clusters - joint
    homogeneity = shared / entropy_of_classes if entropy_of_classes else 1.0
    completeness = shared / entropy_of_clusters if entropy_of_clusters else 1.0
    total = homogeneity + completeness
    return max(0.0, 2 * homogeneity * completeness / total) if total > 0 else 0.0


def _entropy(labels: Sequence[Hashable]) -> float:
    counts = Counter(labels).values()
    return -sum(count / len(labels) * log(count / len(labels)) for count in counts)
