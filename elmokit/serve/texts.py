"""Texts of a request as tokens, within the limits of the server."""

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.serve.failures import RequestError, invalid, quote
from elmokit.serve.limits import CHARS_PER_TOKEN, Limits
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import tokenize, tokenize_with_offsets

Text = str | list[str]
"""A raw string, or the tokens of one sentence."""


@dataclass(frozen=True)
class LocatedSentence:
    """Tokens of one sentence, and their places in the raw string."""

    tokens: tuple[str, ...]
    offsets: list[tuple[int, int]] | None
    """None if the sentence was given as tokens."""


@dataclass(frozen=True)
class Truncation:
    """Truncation of texts that are too long."""

    from_left: bool = False


def as_list(inputs: Text | Sequence[Text]) -> list[Text]:
    """Return inputs as a list; one string is a list of one."""
    return [inputs] if isinstance(inputs, str) else list(inputs)


def check_number(texts: Sequence[Text], most: int) -> None:
    """Reject too many texts."""
    if len(texts) > most:
        raise invalid(f"{len(texts):,} inputs; expected at most {most:,}, send them in several requests")
    if not texts:
        raise invalid("no inputs; expected one or more texts")


def locate_sentences(texts: Sequence[Text], limits: Limits, *, language: str) -> list[LocatedSentence]:
    """Return every text as one sentence with the offsets of its tokens."""
    found = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            _check_length(text, index, limits)
            tokens, offsets = tokenize_with_offsets(text, language=language)
            sentence = LocatedSentence(tuple(tokens), offsets)
        else:
            sentence = LocatedSentence(tuple(_check_tokens(text, index)), None)
        _check_tokens_number(len(sentence.tokens), index, text, limits)
        found.append(sentence)
    return found


def split_texts(
    texts: Sequence[Text], limits: Limits, *, language: str, truncation: Truncation | None = None
) -> list[list[tuple[str, ...]]]:
    """Return the tokenized sentences of every text, as `Embedder.encode` reads it."""
    found = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            _check_length(text, index, limits)
            sentences = [
                tuple(tokenize(sentence, language=language)) for sentence in split_sentences(text, language=language)
            ]
        else:
            sentences = [tuple(_check_tokens(text, index))]
        if truncation is not None:
            sentences = _truncate(sentences, limits.max_tokens, truncation)
        _check_tokens_number(sum(map(len, sentences)), index, text, limits)
        found.append([sentence for sentence in sentences if sentence])
    return found


def check_answer_size(num_tokens: int, values_per_token: int, limits: Limits) -> None:
    """Reject a request whose answer would be too large."""
    if num_tokens * values_per_token > limits.max_values:
        most = limits.max_values // values_per_token
        raise invalid(
            f"{num_tokens:,} tokens with {values_per_token:,} values each; expected at most {most:,} tokens, "
            "send fewer texts per request"
        )


def _check_length(text: str, index: int, limits: Limits) -> None:
    most = CHARS_PER_TOKEN * limits.max_tokens
    if len(text) > most:
        raise _too_long(index, f"{len(text):,} characters; expected at most {most:,}")


def _check_tokens(tokens: list[str], index: int) -> list[str]:
    for token in tokens:
        if not token or any(map(str.isspace, token)):
            raise invalid(
                f"inputs.{index}: the token {quote(token)} is empty or has white space; send raw text instead"
            )
    return tokens


def _check_tokens_number(number: int, index: int, text: Text, limits: Limits) -> None:
    if not number:
        shown = quote(text) if isinstance(text, str) else "an empty list"
        raise invalid(f"inputs.{index}: {shown} has no words; leave it out")
    if number > limits.max_tokens:
        raise _too_long(index, f"{number:,} tokens; expected at most {limits.max_tokens:,}")


def _too_long(index: int, found: str) -> RequestError:
    return invalid(f"inputs.{index}: {found}, split the text")


def _truncate(sentences: list[tuple[str, ...]], most: int, how: Truncation) -> list[tuple[str, ...]]:
    kept = []
    for sentence in reversed(sentences) if how.from_left else sentences:
        part = sentence[max(len(sentence) - most, 0) :] if how.from_left else sentence[:most]
        kept.append(part)
        most -= len(part)
    return kept[::-1] if how.from_left else kept
