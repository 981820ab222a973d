"""Sentence vectors by the STS benchmark: how well their cosines rank pairs of sentences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.wsd import LayerEncoder
from elmokit.embed.picking import Layer, Pooling, pick_layers, pool_tokens
from elmokit.embed.sentence_pooling import SentencePooling, count_probabilities, weighted_mean
from elmokit.errors import InputError
from elmokit.readers.sts import SimilarPair

FITTED = "fitted"
FIT_SENTENCES = 3_000

Encode = Callable[[list[str]], NDArray[np.floating[Any]]]
"""Texts -> one vector per text, (N, D)."""


# Reimers and Gurevych 2019, Table 1: Spearman correlation on the test set, cosines of vectors without training on STS.
PUBLISHED: Mapping[str, float] = {
    "mean of GloVe vectors": 58.02,
    "mean of BERT vectors": 46.35,
    "InferSent": 68.03,
    "Universal Sentence Encoder": 74.92,
}


@dataclass(frozen=True)
class StsScores:
    """Correlation of cosines with people's judgments."""

    spearman: float
    pearson: float
    num_pairs: int


@dataclass(frozen=True)
class LayerScores:
    """Correlations of one layer's pooled vectors."""

    layer: Layer
    pooling: str
    spearman: float
    pearson: float
    num_pairs: int


def fit_every_layer(
    encoder: LayerEncoder, sentences: Iterable[Sequence[str]], *, progress: Callable[[int], None] = lambda _: None
) -> list[SentencePooling]:
    """Fit a pooling to every layer and to the mean of all, on the first ``FIT_SENTENCES`` non-empty sentences."""
    first = list(islice(filter(None, sentences), FIT_SENTENCES))
    probabilities = count_probabilities(first)
    layers: list[Layer] = [*range(encoder.num_layers), "mean"]
    means: dict[Layer, list[NDArray[np.float64]]] = {layer: [] for layer in layers}
    for done, (tokens, layers_LTD) in enumerate(zip(first, encoder.iter_layers(first), strict=True), start=1):
        for layer in layers:
            means[layer].append(weighted_mean(probabilities, tokens, pick_layers(layers_LTD, layer)))
        progress(done)
    return [SentencePooling.from_means(layer, probabilities, means[layer]) for layer in layers]


def score_layers(
    encoder: LayerEncoder,
    pairs: Sequence[SimilarPair],
    tokenize: Callable[[str], Sequence[str]],
    *,
    fitted: Sequence[SentencePooling] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> list[LayerScores]:
    """Score the mean and the maximum of tokens on every layer and on the mean of all, then fitted poolings.

    A text is run as one sentence.

    Args:
        encoder: Source of the layers.
        pairs: The data.
        tokenize: Called with a text.
        fitted: Poolings that were fitted to this encoder.
        progress: Called with the number of texts that were embedded so far.
    """
    texts = _distinct(pairs)
    layers: list[Layer] = [*range(encoder.num_layers), "mean"]
    pooled: dict[tuple[Layer, str], list[NDArray[np.floating[Any]]]] = {}
    tokens = [list(tokenize(text)) for text in texts]
    for done, (words, layers_LTD) in enumerate(zip(tokens, encoder.iter_layers(tokens), strict=True), start=1):
        for layer in layers:
            vectors_TD = pick_layers(layers_LTD, layer)
            for pooling in get_args(Pooling):
                pooled.setdefault((layer, pooling), []).append(pool_tokens(vectors_TD, pooling))
        for one in fitted:
            vector_D = one.pool([words], pick_layers(layers_LTD, one.layer))
            pooled.setdefault((one.layer, FITTED), []).append(vector_D)
        progress(done)
    results = []
    for (layer, pooling), vectors in pooled.items():
        scores = score_sts(partial(_as_found, np.array(vectors)), pairs)
        results.append(LayerScores(layer, pooling, scores.spearman, scores.pearson, scores.num_pairs))
    return results


def score_sts(encode: Encode, pairs: Sequence[SimilarPair]) -> StsScores:
    """Score sentence vectors. Each text is encoded once."""
    if len(pairs) < 2:
        raise InputError(f"{len(pairs)} pairs; expected two or more to correlate")
    texts = _distinct(pairs)
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


def _as_found(vectors_ND: NDArray[np.floating[Any]], _texts: list[str]) -> NDArray[np.floating[Any]]:
    return vectors_ND


def _distinct(pairs: Sequence[SimilarPair]) -> list[str]:
    return list(dict.fromkeys(text for pair in pairs for text in (pair.first, pair.second)))


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
