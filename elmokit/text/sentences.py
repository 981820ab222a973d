"""Running text split into sentences, offline, by rules and lists of abbreviations."""

# ruff: noqa: RUF001  (look-alike punctuation is what this file is about)

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from elmokit.text.tokens import is_generic, load_moses

_STRONG_ENDS = "!?؟।॥۔።։"
_WIDE_ENDS = "。！？｡"
_CLOSERS = "\"'”’»›)]}_*"
_OPENERS = "\"'“”‘’„‚«»‹›([{¿¡_*"
_END = re.compile(
    rf"""
    (?<![.…{_STRONG_ENDS}{_WIDE_ENDS}])             # at the start of a run only: keeps the search linear
    (?: (?P<wide>[.…{_STRONG_ENDS}]*+ [{_WIDE_ENDS}] [.…{_STRONG_ENDS}{_WIDE_ENDS}]*+ [」』）】》〉”’"']*+) \s*+
      | (?P<mark>[.…{_STRONG_ENDS}]++) (?: [{re.escape(_CLOSERS)}] | \[\d++\] )*+ \s++
    )
    """,
    re.VERBOSE,
)
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*+\n|\u2029")
_NEXT_WORD = re.compile(rf"(?:[-–—]++\s*+)?[{re.escape(_OPENERS)}]*+\s*+(?P<word>\w[\w'’]*+)")
_ENUMERATOR = re.compile(
    rf"[{re.escape(_OPENERS)}]*+(?:\d{{1,3}}|[^\W\d_]|[ivxlc]+|[IVXLC]+)\.[{re.escape(_CLOSERS)}]*+"
)

_LONGEST_ENUMERATOR = 20
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")  # U.S, Ph.D, a.m


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Abbreviations that the Moses list of English does not have.
_MORE_ENGLISH_PREFIXES = _words(
    "Ald Amb Ave Atty Blvd Calif Cf Chas Cie Cir Co Conn Dept Det Dist Ed Eds Est Ft Geo Hwy Inc Jas Jno Jos Jr Ltd "
    "Mt Mts Ont Pa Penn Pres Pt Pty Que Reg Sept Thos Univ Wm al approx ca cf est etc viz"
)
_MORE_ENGLISH_NUMERIC = _words("Ch Fig Figs Nos Par Pl Sec Vol Vols ch fig figs no nos p par sec vol vols")
# An abbreviation can also be the last word. It is if one of these follows: they begin sentences, hardly ever names.
_ENGLISH_STARTERS = _words(
    "After All Although An Another As At Because Before Both But By Despite During Each Even For From He Her Here His "
    "How However If In It Its Many Most My No Nor Not On One Only Or Other Our She Since So Some Such That The Their "
    "Then There These They This Those Though Thus To Under Until We What When Where Which While Who Why With Yet "
    "You Your"
)
_NEVER_LAST = _words("Dr Mr Mrs Ms Messrs Prof St cf e.g i.e v viz vs")


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """Split running text into sentences, each on one line with single spaces.

    A blank line always ends a sentence; a single line end is a space. No character but white space is lost or moved.
    """
    return [" ".join(text[start:stop].split()) for start, stop in find_sentences(text, language=language)]


def find_sentences(text: str, *, language: str = "en") -> list[tuple[int, int]]:
    """Return the start and stop character of each sentence, without the white space around it."""
    spans = []
    for start, stop in _iter_raw_spans(text, _prefixes(language)):
        raw = text[start:stop]
        if stripped := raw.strip():
            start += len(raw) - len(raw.lstrip())
            spans.append((start, start + len(stripped)))
    return spans


def _iter_raw_spans(text: str, prefixes: "_Prefixes") -> Iterator[tuple[int, int]]:
    """Yield sentences with the white space around them."""
    ends = [(end.start(), end.end()) for end in _PARAGRAPH_END.finditer(text)]
    begin = 0
    for stop, next_begin in [*ends, (len(text), len(text))]:
        paragraph = text[begin:stop]
        start = 0
        for end in _END.finditer(paragraph):
            if _ends_sentence(paragraph, start, end, prefixes):
                yield begin + start, begin + end.end()
                start = end.end()
        yield begin + start, stop
        begin = next_begin


def may_end_sentence(line: str) -> bool:
    """Return whether a line ends with a mark that can end a sentence; an abbreviation's full stop is one."""
    line += " "
    return any(end.end() == len(line) for end in _END.finditer(line))


@dataclass(frozen=True)
class _Prefixes:
    """A language's abbreviations: words after which a full stop does not end the sentence."""

    any_word_follows: frozenset[str]
    a_number_follows: frozenset[str]
    starters: frozenset[str]
    has_case: bool = True
    """A lower-case word does not begin a sentence."""


def _ends_sentence(text: str, start: int, end: re.Match[str], prefixes: _Prefixes) -> bool:
    if end["wide"] is not None:
        return True
    following = _NEXT_WORD.match(text, end.end())
    if following is None:
        return False
    if following["word"][0].islower() and (prefixes.has_case or not _is_plain_end(text, start, end)):
        return False
    if end["mark"] != ".":
        return True
    if end.end() - start < _LONGEST_ENUMERATOR and _ENUMERATOR.fullmatch(text[start : end.end()].strip()):
        return False
    return not _is_abbreviation(_word_before(text, start, end.start()), following["word"], prefixes)


def _is_plain_end(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether one mark follows a word at once, unlike the dots of a gap in the text."""
    return len(end["mark"]) == 1 and bool(_word_before(text, start, end.start()))


def _is_abbreviation(word: str, following: str, prefixes: _Prefixes) -> bool:
    last_part = re.split(r"[-–—/(]", word)[-1]  # Lt-Col, J.-P, (ed
    if following[0].isdigit() and (last_part in prefixes.a_number_follows or _is_letter(last_part)):
        return True
    initial = _is_letter(last_part) and last_part.isupper()
    listed = word in prefixes.any_word_follows or last_part in prefixes.any_word_follows
    if not (initial or listed or _ACRONYM.fullmatch(last_part)):
        return False
    return following not in prefixes.starters or last_part in _NEVER_LAST


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isalpha()


def _word_before(text: str, start: int, stop: int) -> str:
    """Return the word that ends at ``stop``, without the quotes and brackets before it."""
    begin = stop
    while begin > start and not text[begin - 1].isspace():
        begin -= 1
    return text[begin:stop].lstrip(_OPENERS)


@cache
def _prefixes(language: str) -> _Prefixes:
    moses = load_moses(language)
    a_number_follows = frozenset(moses.NUMERIC_ONLY_PREFIXES)
    any_word_follows = frozenset(moses.NONBREAKING_PREFIXES) - a_number_follows
    if is_generic(language):
        return _Prefixes(any_word_follows, a_number_follows, frozenset(), has_case=False)
    if language != "en":
        return _Prefixes(any_word_follows, a_number_follows, frozenset())
    return _Prefixes(
        any_word_follows | _MORE_ENGLISH_PREFIXES, a_number_follows | _MORE_ENGLISH_NUMERIC, _ENGLISH_STARTERS
    )
