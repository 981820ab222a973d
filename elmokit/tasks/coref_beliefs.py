"""What a model says of the mentions of a document, and the clusters that follow from it.

Shapes: M spans that a model kept, N pairs of them that have some probability; K spans of several models together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.config import FrozenConfig
from elmokit.readers.conll2012 import Document, Mention
from elmokit.tasks.coref_documents import Clusters


@dataclass(frozen=True)
class CorefBelief:
    """How likely a mention means the same as an earlier one: pairs alone, so that models can keep different spans.

    What is left to 1 is the probability that there is none before it; of a span that is not listed it is all.
    """

    mentions_M3: NDArray[np.int64]
    """Sentence, start and end of the kept spans, by position."""
    pairs_N2: NDArray[np.int64]
    """A mention's place in that list, and that of an earlier one."""
    probabilities_N: NDArray[np.float64]


def decode(belief: CorefBelief, example: Document, labels: FrozenConfig) -> Clusters:
    """Link every mention with its likeliest antecedent, unless none is as likely; linked mentions are one cluster."""
    del example, labels
    mentions = [Mention(*row) for row in belief.mentions_M3.tolist()]
    clusters: dict[int, list[Mention]] = {}  # by the place of each of their mentions
    for place, antecedent in enumerate(_choose_antecedents(belief)):
        clusters[place] = clusters[antecedent] if antecedent < place else []
        clusters[place].append(mentions[place])
    distinct = {id(cluster): tuple(cluster) for cluster in clusters.values()}
    return tuple(cluster for cluster in distinct.values() if len(cluster) > 1)


def combine(beliefs: Sequence[CorefBelief]) -> CorefBelief:
    """The mean of all probabilities; to a model that did not keep a span, there is none before it."""
    mentions_M3, places_K = np.unique(
        np.concatenate([belief.mentions_M3 for belief in beliefs]), axis=0, return_inverse=True
    )
    ends = np.cumsum([len(belief.mentions_M3) for belief in beliefs])[:-1]
    of_models = np.split(places_K.reshape(-1), ends)
    pairs = [place_K[belief.pairs_N2] for place_K, belief in zip(of_models, beliefs, strict=True)]
    pairs_N2, places_N = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    probabilities = np.concatenate([belief.probabilities_N for belief in beliefs])
    total_N = np.bincount(places_N.reshape(-1), probabilities, minlength=len(pairs_N2))
    return CorefBelief(mentions_M3, pairs_N2, total_N / len(beliefs))


def _choose_antecedents(belief: CorefBelief) -> list[int]:
    """The place of every mention's likeliest antecedent, or its own if none is at least as likely."""
    num_mentions = len(belief.mentions_M3)
    places_N, antecedents_N = belief.pairs_N2.T
    none_M = 1.0 - np.bincount(places_N, belief.probabilities_N, minlength=num_mentions)
    # By rising probability, so that the last one written is the largest; of equals it is the nearest.
    order = np.lexsort((antecedents_N, belief.probabilities_N))
    order = order[belief.probabilities_N[order] > none_M[places_N[order]]]
    chosen_M = np.arange(num_mentions)
    chosen_M[places_N[order]] = antecedents_N[order]
    return [int(place) for place in chosen_M]
