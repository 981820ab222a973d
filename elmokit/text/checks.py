"""Checks of sentences and tokens that a user gives."""

from collections.abc import Iterable
from typing import TypeVar

from elmokit.errors import InputError

Items = TypeVar("Items", bound=Iterable[object])

QUOTED_CHARS = 40


def check_sentences(sentences: Items) -> Items:
    """Return the sentences; reject one string, and what cannot be iterated."""
    given: object = sentences  # callers need not heed the annotation
    if isinstance(given, str):
        quoted = repr(given[:QUOTED_CHARS])
        raise InputError(f"{quoted} is one string; give a list of sentences, such as [{quoted}]")
    if not isinstance(given, Iterable):
        raise InputError(f"sentences is {given!r}, of type {type(given).__name__}; give a list of sentences")
    return sentences


def check_tokens(sentence: Items) -> Items:
    """Return the tokens; reject what is not a list of strings."""
    given: object = sentence
    if not isinstance(given, Iterable):
        raise InputError(
            f"a sentence is {given!r}, of type {type(given).__name__}; expected a string or a list of tokens"
        )
    for kind in set(map(type, sentence)):  # a few types at most: much faster than a loop over the tokens
        if not issubclass(kind, str):
            token = next(token for token in sentence if type(token) is kind)
            raise InputError(f"a token is {token!r}, of type {kind.__name__}; expected a string")
    return sentence
