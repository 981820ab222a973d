"""Sentence vectors by the STS benchmark: how well their cosines rank pairs of sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.readers.sts import SimilarPair

Encode = Callable[[list[str]], NDArray[np.floating[Any]]]
"""Texts -> one vector per text, (N, D)."""


@dataclass(frozen=True)
class StsScores:
    """Correlation of cosines with people's judgments."""

    spearman: float
    pearson: float
    num_pairs: int


def score_sts(encode: Encode, pairs: Sequence[SimilarPair]) -> StsScores:
    """Score sentence vectors. Each text is encoded once."""
    if len(pairs) < 2:
        raise InputError(f"{len(pairs)} pairs; expected two or more to correlate")
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.first, pair.second)))
    rows = {text: row for row, text in enumerate(texts)}
    vectors_ND = np.asarray(encode(texts), dtype=np.float64)
    norms_N = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    units_ND = vectors_ND / np.where(norms_N > 0, norms_N, 1.0)
    first_P, second_P = ([rows[getattr(pair, side)] for pair in pairs] for side in ("first", "second"))
    cosines_P = np.einsum("pd,pd->p", units_ND[first_P], units_ND[second_P])
    gold_P = np.array([pair.similarity for pair in pairs])
    return StsScores(
        spearman=_correlation(_ranks(cosines_P), _ranks(gold_P)),
        pearson=_correlation(cosines_P, gold_P),
        num_pairs=len(pairs),
    )


def _ranks(values_P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank values from 0; equal ones share the mean of their ranks."""
    _, inverse_P, counts = np.unique(values_P, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = ends - (counts + 1) / 2
    return means[inverse_P]


def _correlation(first_P: NDArray[np.float64], second_P: NDArray[np.float64]) -> float:
    first_P, second_P = first_P - first_P.mean(), second_P - second_P.mean()
    norm = np.linalg.norm(first_P) * np.linalg.norm(second_P)
    return float(first_P @ second_P / norm) if norm else 0.0
