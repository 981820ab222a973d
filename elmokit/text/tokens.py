"""Raw sentences split into tokens as in the 1 Billion Word benchmark, with each token's place in the raw string.

The published English models were trained on that corpus: plain punctuation, then the Moses tokenizer, case kept.
"""

# ruff: noqa: RUF001  (look-alike punctuation is what this file is about)

import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from elmokit.errors import InputError
from elmokit.text.lines import read_lines

if TYPE_CHECKING:
    from elmokit.text.moses import Moses

GENERIC = "generic"

# The benchmark's replacements. It glued dashes to the words beside them; we set them apart, because "word--word" as
# one token is of no use to anyone, and " -- " is the most frequent form in the corpus.
_PLAIN_ENGLISH = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "″": '"', "…": "... ", "–": " -- ", "—": " -- "}
)
_GLUED_DASHES = re.compile(r"(?<!-)--(?!-)")

_DROPPED = re.compile(r"[\x00-\x08\x0e-\x1b]")  # by the tokenizer: control characters that are not white space
# The tokenizer's placeholder for a run of dots: in raw text it becomes dots too.
_DOTS, _DOTS_PLACEHOLDER = "DOTMULTI", re.compile(r"(?:DOT)+MULTI")


class TokenizedText(NamedTuple):
    """Tokens, and the characters of the raw string that each token comes from."""

    tokens: list[str]
    offsets: list[tuple[int, int]]
    """(start, stop) per token: ``text[start:stop]`` is the raw form of the token."""


def tokenize(sentence: str, *, language: str = "en") -> list[str]:
    """Split a sentence into tokens: Moses rules, hyphens kept, nothing escaped.

    In English, curly quotes, dashes and the ellipsis sign become ``'``, ``"``, ``--`` and ``...`` first. No other
    character is changed; control characters are dropped.
    """
    return _split(_make_plain(sentence, language), language)


def tokenize_with_offsets(text: str, *, language: str = "en") -> TokenizedText:
    """Split a sentence into the tokens of ``tokenize``, and locate each of them in ``text``.

    Offsets are in order and do not overlap. Characters outside of them are white space or control characters.
    """
    plain = _make_plain(text, language)
    tokens = _split(plain, language)
    if _DOTS in plain or (not plain.isprintable() and _DROPPED.search(plain)):
        offsets = _locate_rewritten(tokens, plain)
    else:
        offsets = _locate(tokens, plain)
    if len(plain) != len(text):
        origins = [index for index, char in enumerate(text) for _ in _PLAIN_ENGLISH.get(ord(char), " ")]
        offsets = [(origins[start], origins[stop - 1] + 1) for start, stop in offsets]
    return TokenizedText(tokens, offsets)


def _make_plain(text: str, language: str) -> str:
    return text.translate(_PLAIN_ENGLISH) if language == "en" else text


def _split(plain: str, language: str) -> list[str]:
    if language == "en":
        plain = _GLUED_DASHES.sub(" -- ", plain)
    tokens: list[str] = load_moses(language).tokenize(plain, aggressive_dash_splits=False, escape=False)
    return tokens


def _locate(tokens: list[str], plain: str) -> list[tuple[int, int]]:
    """Return offsets of tokens that stand in ``plain`` as they are, with nothing but white space between them."""
    offsets = []
    stop = 0
    for length in map(len, tokens):
        while plain[stop].isspace():
            stop += 1
        start, stop = stop, stop + length
        offsets.append((start, stop))
    return offsets


def _locate_rewritten(tokens: list[str], plain: str) -> list[tuple[int, int]]:
    """Return offsets of tokens where control characters were dropped or placeholders became dots."""
    kept = [index for index, char in enumerate(plain) if not (char.isspace() or _DROPPED.match(char))]
    source = "".join(plain[index] for index in kept)
    offsets = []
    stop = 0
    for token in tokens:
        start = stop
        num_matched = 0
        while num_matched < len(token):
            if token[num_matched] == source[stop]:
                num_matched, stop = num_matched + 1, stop + 1
                continue
            placeholder = _DOTS_PLACEHOLDER.match(source, stop)
            assert placeholder is not None, "the tokenizer rewrites nothing else"
            num_matched += placeholder[0].count("DOT")
            stop = placeholder.end()
        offsets.append((kept[start], kept[stop - 1] + 1))
    return offsets


@cache
def load_moses(language: str) -> "Moses":
    """Return the tokenizer of a language; an unknown language is an ``InputError``.

    ``generic`` is for languages without rules of their own. ``generic:FILE`` reads abbreviations from a file.
    """
    # Imported late: it takes a third of a second, and tokenized input needs none of it.
    from elmokit.text.moses import LANGUAGES, GenericMoses, Moses

    if is_generic(language):
        return GenericMoses(read_abbreviations(language))
    if language not in LANGUAGES:
        raise InputError(
            f"language {language!r} has no tokenizer; choose one of: {' '.join(sorted(LANGUAGES))}; or {GENERIC}, or "
            f"{GENERIC}:FILE with a file of abbreviations"
        )
    return Moses(language)


def is_generic(language: str) -> bool:
    """Return whether a language has no rules of its own."""
    return language.partition(":")[0] == GENERIC


def read_abbreviations(language: str) -> tuple[str, ...]:
    """Return the abbreviations of ``generic:FILE``, one per line of the file; lines that begin with # are comments."""
    path = language.partition(":")[2]
    if not path:
        return ()
    words = (line.text.strip().removesuffix(".") for line in read_lines([path]))
    return tuple(dict.fromkeys(word for word in words if word and not word.startswith("#")))


def identify_language(language: str) -> str:
    """Return a name that is equal for equal rules, wherever the file of abbreviations is."""
    if not is_generic(language):
        return language
    return f"{GENERIC}:{hashlib.sha256(chr(10).join(read_abbreviations(language)).encode()).hexdigest()}"
