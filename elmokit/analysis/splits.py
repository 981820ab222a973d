"""Parts to learn from, to choose by and to test on, of data that comes without them; always the same ones."""

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
    """Examples to learn from, to choose the best weights by, and to test these on."""

    train: list[T]
    dev: list[T]
    test: list[T]


def split_by_document(
    examples: Sequence[T], document_of: Callable[[T], Name], *, held_out: int, between: str
) -> Split[T]:
    """Divide examples by their documents, whatever their order; dev and test get ``held_out`` % of the documents each.

    A document that is learned from says much of its other examples, so all of them stay together.
    ``between`` is the line that parts documents in a file, for whoever gives too few.
    """
    documents = sorted({document_of(example) for example in examples})
    num_held_out = len(documents) * held_out // 100
    if not num_held_out:
        raise InputError(
            f"{len(documents)} documents cannot be split {100 - 2 * held_out}/{held_out}/{held_out}; "
            f"give {-(-100 // held_out)} or more, with a line {between} between them"
        )
    order = [documents[place] for place in np.random.default_rng(SEED).permutation(len(documents))]
    dev, test = set(order[:num_held_out]), set(order[num_held_out : 2 * num_held_out])
    return Split(
        train=[example for example in examples if document_of(example) not in dev | test],
        dev=[example for example in examples if document_of(example) in dev],
        test=[example for example in examples if document_of(example) in test],
    )
