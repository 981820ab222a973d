"""Output of the coreference model, and the clusters that follow from it.

Shapes: M spans that a model kept, N pairs of them with nonzero probability, K spans of several models together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.readers.conll2012 import Mention
from elmokit.tasks.coref_documents import Clusters


@dataclass(frozen=True)
class CorefOutput:
    """Probability of pairs of mention and antecedent. Models of an ensemble may keep different spans.

    The rest to 1 is the probability that a mention has no antecedent; a span that is not listed has none.
    """

    mentions_M3: NDArray[np.int64]
    """Sentence, start and end of the kept spans, in document order."""
    pairs_N2: NDArray[np.int64]
    """Index of a mention in that list, and of an antecedent."""
    probabilities_N: NDArray[np.float64]


def link_mentions(output: CorefOutput) -> Clusters:
    """Link every mention to its most probable antecedent, unless none is more probable; return the clusters."""
    mentions = [Mention(*row) for row in output.mentions_M3.tolist()]
    clusters: dict[int, list[Mention]] = {}  # by the place of each of their mentions
    for place, antecedent in enumerate(_choose_antecedents(output)):
        clusters[place] = clusters[antecedent] if antecedent < place else []
        clusters[place].append(mentions[place])
    distinct = {id(cluster): tuple(cluster) for cluster in clusters.values()}
    return tuple(cluster for cluster in distinct.values() if len(cluster) > 1)


def mean_output(outputs: Sequence[CorefOutput]) -> CorefOutput:
    """Return the mean of all probabilities; a span that a model did not keep has no antecedent for that model."""
    mentions_M3, places_K = np.unique(
        np.concatenate([output.mentions_M3 for output in outputs]), axis=0, return_inverse=True
    )
    ends = np.cumsum([len(output.mentions_M3) for output in outputs])[:-1]
    of_models = np.split(places_K.reshape(-1), ends)
    pairs = [place_K[output.pairs_N2] for place_K, output in zip(of_models, outputs, strict=True)]
    pairs_N2, places_N = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    probabilities = np.concatenate([output.probabilities_N for output in outputs])
    total_N = np.bincount(places_N.reshape(-1), probabilities, minlength=len(pairs_N2))
    return CorefOutput(mentions_M3, pairs_N2, total_N / len(outputs))


def _choose_antecedents(output: CorefOutput) -> list[int]:
    """Return the index of the most probable antecedent of every mention, or its own if none is as probable."""
    num_mentions = len(output.mentions_M3)
    places_N, antecedents_N = output.pairs_N2.T
    none_M = 1.0 - np.bincount(places_N, output.probabilities_N, minlength=num_mentions)
    # By rising probability, so that the last one written is the largest; of equals it is the nearest.
    order = np.lexsort((antecedents_N, output.probabilities_N))
    order = order[output.probabilities_N[order] > none_M[places_N[order]]]
    chosen_M = np.arange(num_mentions)
    chosen_M[places_N[order]] = antecedents_N[order]
    return [int(place) for place in chosen_M]
