r"""Tokenizer that keeps the character offsets of its tokens, for questions and their answers.

Words are split as in the Penn Treebank (``do n't``, ``Ann 's``; a full stop of its own only at a sentence's end), and
further at hyphens, dashes, slashes, quotes, currency and other signs, so that nearly every answer begins and ends with
a token. Signs are normalized as in the biLM's own text: all double quotes are ``"``, single ones ``'``, dashes ``--``.
Between two tokens there is white space, invisible characters, or nothing.

Shapes: T tokens.
"""

# ruff: noqa: RUF001  (look-alike punctuation is what this file is about)

import re
from dataclasses import dataclass
from sys import intern

import numpy as np
from numpy.typing import NDArray

from elmokit.text.sentences import find_sentences

_FORMS = {
    **dict.fromkeys(("“", "”", "„", "‟", "″", "«", "»", "``", "''"), '"'),
    **dict.fromkeys(("‘", "’", "‚", "‛", "′", "`", "´"), "'"),
    **dict.fromkeys(("–", "—", "―"), "--"),
    **dict.fromkeys(("‐", "‑"), "-"),
    "…": "...",
}
_INSIDE_WORDS = str.maketrans({"’": "'"})

_UNSEEN = "\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\ufeff"  # separate tokens, as spaces do
_MARKS = "\u00ad\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20ff\ufe00-\ufe0f"  # combine with a letter
_LETTER = rf"(?:[^\W_]|[{_MARKS}])"  # or a digit
_CLITIC = r"(?:[sS]|[mM]|[dD]|[rR][eE]|[vV][eE]|[lL][lL])"
_TOKEN = re.compile(
    rf"""
      (?<!{_LETTER}) (?:[^\W\d_]\.){{2,}} (?!{_LETTER})        # U.S. has its full stop at a sentence's end too
    | (?<={_LETTER}) [nN]['’][tT] (?!{_LETTER})
    | (?<={_LETTER}) ['’]{_CLITIC} (?!{_LETTER})
    | (?: \.(?=\d) )?                                        # .5
      (?: (?! (?<={_LETTER}) [nN]['’][tT] (?!{_LETTER}) )
          (?: {_LETTER}
            | (?<={_LETTER}) (?: \. (?! (?<=[a-z][a-z]\.) [A-Z][a-z] )    # not where a space was forgotten.Like here
                               | _++
                               | (?<=\d)[,:](?=\d)           # 1,000 and 9:30
                               | ['’] (?!{_CLITIC}(?!{_LETTER}))
                             ) (?={_LETTER})
          )
      )++
      (?: \. (?!\.|{_LETTER}) (?! (?: [\]"'”’)}}»] | \[\d++\] )*+ \s*+ \Z ) )?    # an abbreviation's, not a sentence's
    | \.{{2,}} | -{{2,}} | `` | ''
    | [^\s{_UNSEEN}]
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, eq=False)
class SquadText:
    """A paragraph or question: its text, tokens and their character offsets."""

    text: str
    tokens: tuple[str, ...]
    starts_T: NDArray[np.int32]
    ends_T: NDArray[np.int32]
    """End of every token, excluded."""

    def find_tokens(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last token that overlap characters ``start`` up to ``end``; None if none does."""
        first = int(np.searchsorted(self.ends_T, start, side="right"))
        last = int(np.searchsorted(self.starts_T, end, side="left")) - 1
        return (first, last) if first <= last else None

    def find_characters(self, first: int, last: int) -> tuple[int, int]:
        """Return the character span of tokens ``first`` to ``last``, both included."""
        return int(self.starts_T[first]), int(self.ends_T[last])


def tokenize_paragraph(text: str) -> SquadText:
    """Tokenize running text of one or more sentences."""
    return _tokenize(text, [stop for _, stop in find_sentences(text)])


def tokenize_question(text: str) -> SquadText:
    """Tokenize a text that is one sentence."""
    return _tokenize(text, [len(text)])


def _tokenize(text: str, sentence_ends: list[int]) -> SquadText:
    spans: list[tuple[int, int]] = []
    begin = 0
    for end in sentence_ends:
        spans += (found.span() for found in _TOKEN.finditer(text, begin, end))
        begin = end
    starts_T, ends_T = np.array(spans, dtype=np.int32).reshape(-1, 2).T.copy()
    return SquadText(text, tuple(intern(_form(text[start:end])) for start, end in spans), starts_T, ends_T)


def _form(piece: str) -> str:
    return _FORMS.get(piece) or piece.translate(_INSIDE_WORDS)
