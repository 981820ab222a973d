"""Raw text as sentences and tokens, in the way of the 1 Billion Word benchmark.

The published English models were trained on that corpus: punctuation made plain, then the Moses tokeniser, case kept.
"""

# ruff: noqa: RUF001  (look-alike punctuation is what this file is about)

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from elmokit.errors import InputError

# What the benchmark replaced before it tokenised. It glued the dashes to the words beside them; we set them apart,
# because "word--word" as one token is of no use to anyone, and " -- " is what the corpus has most.
_PLAIN_ENGLISH = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "″": '"', "…": "... ", "–": " -- ", "—": " -- "}
)
_GLUED_DASHES = re.compile(r"(?<!-)--(?!-)")

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


def tokenize(sentence: str, *, language: str = "en") -> list[str]:
    """Split a sentence into tokens: Moses rules, hyphens kept, nothing escaped.

    In English, curly quotes, dashes and the ellipsis sign become ``'``, ``"``, ``--`` and ``...`` first. No other
    character is changed; control characters are dropped.
    """
    moses = _moses(language)
    if language == "en":
        sentence = _GLUED_DASHES.sub(" -- ", sentence.translate(_PLAIN_ENGLISH))
    tokens: list[str] = moses.tokenize(sentence, aggressive_dash_splits=False, escape=False)
    return tokens


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """Split running text into sentences, each on one line with single spaces.

    A blank line always ends a sentence; a single line end is a space. No character but white space is lost or moved.
    """
    prefixes = _prefixes(language)
    sentences = []
    for paragraph in _PARAGRAPH_END.split(text):
        start = 0
        for end in _END.finditer(paragraph):
            if _ends_sentence(paragraph, start, end, prefixes):
                sentences.append(paragraph[start : end.end()])
                start = end.end()
        sentences.append(paragraph[start:])
    on_one_line = (" ".join(sentence.split()) for sentence in sentences)
    return [sentence for sentence in on_one_line if sentence]


def may_end_sentence(line: str) -> bool:
    """Whether a line ends with a mark that can end a sentence, an abbreviation's full stop among them."""
    line += " "
    return any(end.end() == len(line) for end in _END.finditer(line))


@dataclass(frozen=True)
class TextRules:
    """How text that someone gives becomes sentences and tokens."""

    tokenized: bool = False
    """A line is a sentence, and its tokens stand between white space."""
    language: str = "en"

    def sentences(self, text: str) -> list[str]:
        """The sentences of a line."""
        return [text] if self.tokenized else split_sentences(text, language=self.language)

    def tokens(self, sentence: str) -> list[str]:
        """The tokens of a sentence."""
        return sentence.split() if self.tokenized else tokenize(sentence, language=self.language)


RAW_ENGLISH = TextRules()


@dataclass(frozen=True)
class _Prefixes:
    """A language's abbreviations: words after which a full stop does not end the sentence."""

    any_word_follows: frozenset[str]
    a_number_follows: frozenset[str]
    starters: frozenset[str]


def _ends_sentence(text: str, start: int, end: re.Match[str], prefixes: _Prefixes) -> bool:
    if end["wide"] is not None:
        return True
    following = _NEXT_WORD.match(text, end.end())
    if following is None or following["word"][0].islower():
        return False
    if end["mark"] != ".":
        return True
    if end.end() - start < _LONGEST_ENUMERATOR and _ENUMERATOR.fullmatch(text[start : end.end()].strip()):
        return False
    return not _is_abbreviation(_word_before(text, start, end.start()), following["word"], prefixes)


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
def _languages() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes

    # The tokeniser itself knows two languages more than its lists of abbreviations.
    return frozenset(NonbreakingPrefixes().available_langs.values()) | {"ja", "ko"}


def _check_language(language: str) -> None:
    if language not in _languages():
        known = " ".join(sorted(_languages()))
        raise InputError(f"language {language!r} has no tokeniser; choose one of: {known}")


@cache
def _moses(language: str) -> Any:
    _check_language(language)
    # Imported late: it takes a third of a second, and tokenised input has no need of it.
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)
    # The same answers as its own methods, which build sets of 100,000 characters at every call.
    moses.islower = frozenset(moses.IsLower).issuperset
    alphabet = frozenset(moses.IsAlpha)
    moses.isanyalpha = lambda text: not alphabet.isdisjoint(text)
    return moses


@cache
def _prefixes(language: str) -> _Prefixes:
    moses = _moses(language)
    a_number_follows = frozenset(moses.NUMERIC_ONLY_PREFIXES)
    any_word_follows = frozenset(moses.NONBREAKING_PREFIXES) - a_number_follows
    if language != "en":
        return _Prefixes(any_word_follows, a_number_follows, frozenset())
    return _Prefixes(
        any_word_follows | _MORE_ENGLISH_PREFIXES, a_number_follows | _MORE_ENGLISH_NUMERIC, _ENGLISH_STARTERS
    )
