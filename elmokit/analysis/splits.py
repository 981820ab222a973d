"""Parts to learn from, to choose by and to test on, of data that comes without them; always the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.errors import InputError
from elmokit.readers.conll2003 import TaggedSentence

SEED = 0


@dataclass(frozen=True)
class TaggedSplit:
    """Sentences to learn from, to choose the best weights by, and to test these on."""

    train: list[TaggedSentence]
    dev: list[TaggedSentence]
    test: list[TaggedSentence]


def split_tagged_documents(sentences: Sequence[TaggedSentence]) -> TaggedSplit:
    """Divide sentences 60/20/20 by their documents: one that is learned from says much of its other sentences."""
    documents = sorted({sentence.document for sentence in sentences})
    num_held_out = len(documents) // 5
    if not num_held_out:
        raise InputError(
            f"{len(documents)} documents cannot be split 60/20/20; give 5 or more, with a line -DOCSTART- between them"
        )
    order = [documents[place] for place in np.random.default_rng(SEED).permutation(len(documents))]
    dev, test = set(order[:num_held_out]), set(order[num_held_out : 2 * num_held_out])
    return TaggedSplit(
        train=[sentence for sentence in sentences if sentence.document not in dev | test],
        dev=[sentence for sentence in sentences if sentence.document in dev],
        test=[sentence for sentence in sentences if sentence.document in test],
    )
