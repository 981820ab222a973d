"""A fixed training, dev and test split for data that is published without one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from elmokit.errors import InputError

SEED = 0

T = TypeVar("T")
Name = TypeVar("Name", str, int)


@dataclass(frozen=True)
class Split(Generic[T]):
    """Examples to train on, to select weights by (dev), and to test."""

    train: list[T]
    dev: list[T]
    test: list[T]


def split_by_document(
    examples: Sequence[T], document_of: Callable[[T], Name], *, held_out: int, between: str
) -> Split[T]:
    """Split examples by document, whatever their order; dev and test get ``held_out`` % of the documents each.

    Examples of one document are much alike, so they stay in one part. ``between`` is the line that separates documents
    in a file, for the error message.
    """
    documents = sorted({document_of(example) for example in examples})
    num_held_out = len(documents) * held_out // 100
    if not num_held_out:
        raise InputError(
            f"{len(documents)} documents cannot be split {100 - 2 * held_out}/{held_out}/{held_out}; "
            f"expected {-(-100 // held_out)} or more, separated by a line {between}"
        )
    order = [documents[place] for place in np.random.default_rng(SEED).permutation(len(documents))]
    dev, test = set(order[:num_held_out]), set(order[num_held_out : 2 * num_held_out])
    return Split(
        train=[example for example in examples if document_of(example) not in dev | test],
        dev=[example for example in examples if document_of(example) in dev],
        test=[example for example in examples if document_of(example) in test],
    )
