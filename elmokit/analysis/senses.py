"""Senses of a word: clusters of its occurrences per layer, and a map of them.

Vectors of one word share a large common part. It is removed before clustering, so that cosines compare what differs
between contexts.

Shapes: N occurrences, K clusters, D width, 2 coordinates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.clusters import Labels, cluster
from elmokit.analysis.neighbors import TOP
from elmokit.analysis.occurrences import Occurrence, to_unit_length, unit_vectors
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Vectors
from elmokit.errors import InputError

MOST_SENSES = 6
LEAST_SILHOUETTE = 0.08  # 40 random vectors of width 64 reach 0.05
MOST_OCCURRENCES = 1000
SAME = 1e-4  # distance below which vectors of length 1 are equal in float16

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Sense:
    """Occurrences of a word whose contexts are alike, the most typical first."""

    occurrences: tuple[Occurrence, ...]
    typicality: tuple[float, ...]
    """Cosine of each occurrence with the cluster's mean, after the word's mean was subtracted."""


@dataclass(frozen=True)
class Senses:
    """Clusters of a word's occurrences at one layer, the largest first."""

    word: str
    layer: int | str
    senses: tuple[Sense, ...]
    silhouette: float
    """Separation of the clusters, from -1 to 1; 0 for a single one."""
    num_occurrences: int
    """Occurrences in the text, of which at most 1,000 are clustered."""


@dataclass(frozen=True, eq=False)
class MapLayer:
    """A word's occurrences at one layer, in the order of the map's occurrences.

    Args:
        layer: the layer's number.
        points_N2: coordinates of each occurrence.
        labels_N: cluster of each occurrence; the largest is 0.
        explained: share of the variance that each coordinate shows.
    """

    layer: int
    points_N2: Points
    labels_N: Labels
    explained: tuple[float, float]


@dataclass(frozen=True, eq=False)
class SenseMap:
    """A word's occurrences as points, per layer. A point keeps its place from layer to layer as far as it can."""

    word: str
    occurrences: tuple[Occurrence, ...]
    layers: tuple[MapLayer, ...]


def find_senses(
    word: str,
    occurrences: Sequence[Occurrence],
    vectors_ND: Vectors,
    *,
    layer: int | str,
    num_clusters: int | None = None,
    num_occurrences: int | None = None,
) -> Senses:
    """Cluster occurrences of a word by their vectors.

    Args:
        word: the word.
        occurrences: its occurrences.
        vectors_ND: one vector per occurrence.
        layer: the layer of the vectors, for the result.
        num_clusters: number of clusters; None chooses 1 to 6 by the silhouette.
        num_occurrences: number of occurrences in the text, if only some are given.
    """
    centered_ND = center(vectors_ND)
    labels_N, silhouette = _cluster(centered_ND, num_clusters)
    senses = []
    for number in range(int(labels_N.max()) + 1):
        rows = np.flatnonzero(labels_N == number)
        [mean_D] = to_unit_length(centered_ND[rows].sum(axis=0, keepdims=True))
        typicality_N = (centered_ND[rows] @ mean_D).astype(np.float64).round(6)
        order = np.argsort(-typicality_N, kind="stable")
        senses.append(
            Sense(
                tuple(occurrences[rows[place]] for place in order), tuple(float(typicality_N[place]) for place in order)
            )
        )
    return Senses(word, layer, tuple(senses), round(silhouette, 6), num_occurrences or len(occurrences))


def embed_senses(
    embedder: Embedder,
    word: str,
    occurrences: Sequence[Occurrence],
    *,
    layer: Layer = TOP,
    num_clusters: int | None = None,
) -> Senses:
    """Cluster occurrences of a word in a text that is not indexed, as ``CorpusIndex.senses`` does for an index."""
    chosen = spread(occurrences, MOST_OCCURRENCES)
    return find_senses(
        word,
        chosen,
        unit_vectors(embedder, chosen, layer=layer),
        layer=layer if layer == "mean" else layer % embedder.num_layers,
        num_clusters=num_clusters,
        num_occurrences=len(occurrences),
    )


def draw_map(word: str, occurrences: Sequence[Occurrence], layers: Sequence[Vectors]) -> SenseMap:
    """Project occurrences of a word to two dimensions per layer.

    The coordinates are principal components. In the top layer the sign of a component makes its largest loading
    positive. Every other layer is rotated or mirrored onto the one above it (orthogonal Procrustes).

    Args:
        word: the word.
        occurrences: its occurrences.
        layers: one array (N, D) per layer, the token layer first.
    """
    drawn: list[MapLayer] = []
    above_N2: Points | None = None
    for number in range(len(layers) - 1, -1, -1):
        points_N2, explained = _project(layers[number])
        if above_N2 is not None:
            points_N2 = points_N2 @ _rotation(points_N2, above_N2)
        labels_N, _ = _cluster(center(layers[number]), None)
        drawn.append(MapLayer(number, points_N2, labels_N, explained))
        above_N2 = points_N2
    return SenseMap(word, tuple(occurrences), tuple(reversed(drawn)))


def spread(occurrences: Sequence[Occurrence], most: int) -> list[Occurrence]:
    """Return at most ``most`` occurrences, evenly spaced over the text."""
    if not occurrences:
        raise InputError("no occurrences; give at least one")
    num = min(most, len(occurrences))
    return [occurrences[len(occurrences) * place // num] for place in range(num)]


def center(vectors_ND: Vectors) -> Vectors:
    """Subtract the mean of a word's vectors, and scale to length 1; equal vectors become zeros."""
    unit_ND = to_unit_length(vectors_ND)
    differences_ND = unit_ND - unit_ND.mean(axis=0, keepdims=True)
    differences_ND[np.linalg.norm(differences_ND, axis=1) < SAME] = 0
    return to_unit_length(differences_ND)


def _cluster(centered_ND: Vectors, num_clusters: int | None) -> tuple[Labels, float]:
    if num_clusters is None and not centered_ND.any():  # the token layer: one vector for all
        return np.zeros(len(centered_ND), dtype=np.int64), 0.0
    found = cluster(centered_ND, num_clusters=num_clusters, most=MOST_SENSES, least_silhouette=LEAST_SILHOUETTE)
    return found.labels_N, found.silhouette


def _project(vectors_ND: Vectors) -> tuple[Points, tuple[float, float]]:
    """Return the first two principal components with fixed signs, and their shares of the variance."""
    unit_ND = to_unit_length(vectors_ND).astype(np.float64)
    centered_ND = unit_ND - unit_ND.mean(axis=0)
    if np.abs(centered_ND).max() < SAME:
        return np.zeros((len(centered_ND), 2)), (0.0, 0.0)
    left, scales, right = np.linalg.svd(centered_ND, full_matrices=False)
    points_N2 = np.zeros((len(centered_ND), 2))
    shares = [0.0, 0.0]
    for axis in range(min(2, len(scales))):
        sign = 1.0 if right[axis, np.abs(right[axis]).argmax()] >= 0 else -1.0
        points_N2[:, axis] = sign * scales[axis] * left[:, axis]
        shares[axis] = float(scales[axis] ** 2 / (scales**2).sum())
    return points_N2, (shares[0], shares[1])


def _rotation(points_N2: Points, onto_N2: Points) -> Points:
    """Return the rotation or reflection that brings points nearest to others (Schönemann 1966)."""
    left, _, right = np.linalg.svd(points_N2.T @ onto_N2)
    rotation: Points = left @ right
    return rotation
