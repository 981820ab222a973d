"""MUC, B-cubed and CEAF_e of coreference clusters, and the mean of their F1: the score of CoNLL-2012.

Sums run over all documents before anything is divided, as in the official scorer (v8.01). A mention is any hashable
value, such as a half-open span with its sentence; a cluster holds the mentions of one entity.

Two conventions for clusters of one mention, which differ only where there are some:

``keep_singletons=True``   the official scorer: they are clusters like any other. MUC counts links, and they have none.
``keep_singletons=False``  the Python scorer that many neural systems report while they train. B-cubed passes over
                           singletons of both sides, also as the counterpart of a larger cluster. CEAF_e drops predicted
                           singletons and keeps gold ones, so a corpus that annotates singletons costs it recall.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.metrics.spans import F1Scores, f1_scores, ratio

Clusters = Collection[Collection[Hashable]]
"""Clusters of one document; no mention is in two of them."""


@dataclass(frozen=True)
class CorefScores:
    """Scores of the three metrics, and the mean of their F1."""

    muc: F1Scores
    b_cubed: F1Scores
    ceaf_e: F1Scores
    mean_f1: float


@dataclass(frozen=True)
class _Overlaps:
    """Overlap of the gold and predicted clusters of one document, which is all that the metrics need."""

    gold_sizes: list[int]
    predicted_sizes: list[int]
    shared: Counter[tuple[int, int]]
    """Number of mentions that a gold and a predicted cluster share; pairs that share none are absent."""


@dataclass(frozen=True)
class _Sums:
    """Precision and recall before the division, so that documents can be added."""

    precision_part: float
    precision_whole: float
    recall_part: float
    recall_whole: float


def score_coref(gold: Sequence[Clusters], predicted: Sequence[Clusters], *, keep_singletons: bool) -> CorefScores:
    """Score the predicted clusters of documents; for ``keep_singletons`` see the module's docstring."""
    solver = require("scipy", extra="tasks").optimize.linear_sum_assignment
    if len(gold) != len(predicted):
        raise InputError(
            f"gold clusters of {len(gold)} documents but predicted ones of {len(predicted)}; "
            "give both for every document, an empty list where there are none"
        )
    documents = [_meet(*clusters, index) for index, clusters in enumerate(zip(gold, predicted, strict=True))]
    muc = _divide(_muc(document) for document in documents)
    b_cubed = _divide(_b_cubed(document, keep_singletons=keep_singletons) for document in documents)
    ceaf_e = _divide(_ceaf_e(document, solver, keep_singletons=keep_singletons) for document in documents)
    return CorefScores(muc, b_cubed, ceaf_e, mean_f1=(muc.f1 + b_cubed.f1 + ceaf_e.f1) / 3)


def _muc(document: _Overlaps) -> _Sums:
    """Count the links of both sides, and those that they share (Vilain et al. 1995).

    A cluster of n mentions takes n - 1 links. The other side cuts it into parts, one for each of its clusters that
    shares a mention, and one for each mention that is missing there; a part of m mentions keeps m - 1 links.
    """
    num_common = sum(num_shared - 1 for num_shared in document.shared.values())
    return _Sums(
        precision_part=num_common,
        precision_whole=sum(size - 1 for size in document.predicted_sizes),
        recall_part=num_common,
        recall_whole=sum(size - 1 for size in document.gold_sizes),
    )


def _b_cubed(document: _Overlaps, *, keep_singletons: bool) -> _Sums:
    """Average over mentions the share of their cluster that is right (Bagga and Baldwin 1998)."""
    smallest = 1 if keep_singletons else 2
    precision_part = recall_part = 0.0
    for (gold_index, predicted_index), num_shared in document.shared.items():
        gold_size, predicted_size = document.gold_sizes[gold_index], document.predicted_sizes[predicted_index]
        if min(gold_size, predicted_size) >= smallest:
            precision_part += num_shared**2 / predicted_size  # each shared mention has the share num_shared / size
            recall_part += num_shared**2 / gold_size
    return _Sums(
        precision_part=precision_part,
        precision_whole=sum(size for size in document.predicted_sizes if size >= smallest),
        recall_part=recall_part,
        recall_whole=sum(size for size in document.gold_sizes if size >= smallest),
    )


def _ceaf_e(document: _Overlaps, solver: Any, *, keep_singletons: bool) -> _Sums:
    """Measure the similarity of clusters under the best one-to-one alignment, by phi4 of Luo (2005).

    ``solver`` is scipy's ``linear_sum_assignment``: it finds the best alignment.
    """
    # Shape: G gold clusters, P predicted ones.
    similarity_GP = np.zeros((len(document.gold_sizes), len(document.predicted_sizes)))
    for (gold_index, predicted_index), num_shared in document.shared.items():
        both_sizes = document.gold_sizes[gold_index] + document.predicted_sizes[predicted_index]
        similarity_GP[gold_index, predicted_index] = 2 * num_shared / both_sizes
    if not keep_singletons:
        similarity_GP = similarity_GP[:, np.array(document.predicted_sizes, dtype=np.int64) > 1]
    similarity = float(similarity_GP[solver(similarity_GP, maximize=True)].sum())
    num_gold, num_predicted = similarity_GP.shape
    return _Sums(
        precision_part=similarity, precision_whole=num_predicted, recall_part=similarity, recall_whole=num_gold
    )


def _divide(sums: Iterable[_Sums]) -> F1Scores:
    """Add up the documents, then divide."""
    documents = list(sums)
    return f1_scores(
        precision=ratio(sum(one.precision_part for one in documents), sum(one.precision_whole for one in documents)),
        recall=ratio(sum(one.recall_part for one in documents), sum(one.recall_whole for one in documents)),
    )


def _meet(gold: Clusters, predicted: Clusters, document_index: int) -> _Overlaps:
    gold_index = _index_mentions(gold, f"document {document_index}, gold")
    predicted_index = _index_mentions(predicted, f"document {document_index}, predicted")
    shared = Counter(
        (cluster, predicted_index[mention]) for mention, cluster in gold_index.items() if mention in predicted_index
    )
    return _Overlaps(list(map(len, gold)), list(map(len, predicted)), shared)


def _index_mentions(clusters: Clusters, where: str) -> dict[Hashable, int]:
    """Map each mention to the number of its cluster."""
    index: dict[Hashable, int] = {}
    for number, cluster in enumerate(clusters):
        if not cluster:
            raise InputError(f"{where}: cluster {number} is empty; leave out clusters without mentions")
        for mention in cluster:
            if mention in index:
                raise InputError(
                    f"{where}: mention {mention!r} is in cluster {index[mention]} and again in cluster {number}, but "
                    "must be in one, once; merge the clusters or leave the mention out of one"
                )
            index[mention] = number
    return index
