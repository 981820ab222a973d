"""Clusters of vectors, found without chance: the same vectors always give the same clusters.

Spherical k-means starts from a greedy choice of representatives instead of random ones. The number of clusters is the
one with the largest silhouette.

Shapes: N vectors, K clusters, D width.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.occurrences import choose_representatives, to_unit_length
from elmokit.embed.picking import Vectors
from elmokit.errors import InputError

MOST_STEPS = 100

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clustering:
    """A partition of vectors.

    Args:
        labels_N: cluster of each vector. Cluster 0 is the largest; of equally large ones the first is the one with the
            earliest vector.
        silhouette: mean silhouette by cosine distance, from -1 to 1; 0 for a single cluster.
    """

    labels_N: Labels
    silhouette: float

    @property
    def num_clusters(self) -> int:
        """Number of clusters."""
        return int(self.labels_N.max()) + 1


def cluster(vectors_ND: Vectors, *, num_clusters: int | None, most: int, least_silhouette: float) -> Clustering:
    """Partition vectors by their direction.

    Args:
        vectors_ND: the vectors, scaled to length 1.
        num_clusters: the number of clusters; None chooses it.
        most: largest number that is considered.
        least_silhouette: one cluster is returned if no partition reaches this silhouette.
    """
    num_vectors = len(vectors_ND)
    if not num_vectors:
        raise InputError("no vectors to cluster; give at least one")
    if num_clusters is not None and not 1 <= num_clusters <= num_vectors:
        raise InputError(f"num_clusters {num_clusters}; expected 1 to {num_vectors}, the number of vectors")
    similarities_NN = vectors_ND @ vectors_ND.T
    if num_clusters is not None:
        labels_N = _by_size(_k_means(vectors_ND, similarities_NN, num_clusters))
        return Clustering(labels_N, _silhouette(similarities_NN, labels_N))
    best = Clustering(np.zeros(num_vectors, dtype=np.int64), 0.0)
    highest = least_silhouette
    for number in range(2, min(most, num_vectors - 1) + 1):
        labels_N = _by_size(_k_means(vectors_ND, similarities_NN, number))
        silhouette = _silhouette(similarities_NN, labels_N)
        if silhouette > highest:
            best, highest = Clustering(labels_N, silhouette), silhouette
    return best


def _k_means(vectors_ND: Vectors, similarities_NN: Vectors, num_clusters: int) -> Labels:
    centers_KD = vectors_ND[choose_representatives(similarities_NN, num_clusters)]
    labels_N = np.full(len(vectors_ND), -1)
    for _ in range(MOST_STEPS):
        new_N = (vectors_ND @ centers_KD.T).argmax(axis=1)
        if (new_N == labels_N).all():
            break
        labels_N = new_N
        for number in range(num_clusters):
            members_ND = vectors_ND[labels_N == number]
            if len(members_ND):  # an empty cluster keeps its center
                centers_KD[number] = members_ND.sum(axis=0)
        centers_KD = to_unit_length(centers_KD)
    return labels_N


def _by_size(labels_N: Labels) -> Labels:
    """Renumber the clusters: the largest first, then by their earliest member."""
    found, first, counts = np.unique(labels_N, return_index=True, return_counts=True)
    order = sorted(range(len(found)), key=lambda place: (-counts[place], first[place]))
    renamed = {found[place]: number for number, place in enumerate(order)}
    return np.array([renamed[label] for label in labels_N], dtype=np.int64)


def _silhouette(similarities_NN: Vectors, labels_N: Labels) -> float:
    """Return the mean silhouette (Rousseeuw 1987) by cosine distance; 0 for a single cluster."""
    members_KN = labels_N[None] == np.arange(labels_N.max() + 1)[:, None]
    sizes_K = members_KN.sum(axis=1)
    if len(sizes_K) < 2:
        return 0.0
    totals_NK = (1 - similarities_NN.astype(np.float64)) @ members_KN.T
    own_N = np.arange(len(labels_N))
    others = sizes_K[labels_N] - 1
    inside_N = totals_NK[own_N, labels_N] / np.maximum(others, 1)
    means_NK = totals_NK / sizes_K
    means_NK[own_N, labels_N] = np.inf
    outside_N = means_NK.min(axis=1)
    widest_N = np.maximum(inside_N, outside_N)
    scores_N = np.where((others > 0) & (widest_N > 0), (outside_N - inside_N) / np.where(widest_N > 0, widest_N, 1), 0)
    return float(scores_N.mean())
