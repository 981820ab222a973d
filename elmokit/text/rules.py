"""Rules by which lines of text become sentences and tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elmokit.errors import InputError
from elmokit.text.lines import Line
from elmokit.text.paragraphs import join_wrapped, unwrap
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import load_moses, tokenize


@dataclass(frozen=True)
class TextRules:
    """The form of a text: how its lines are split into sentences, and sentences into tokens.

    By default a line is a sentence of raw English text.
    """

    tokenized: bool = False
    """One sentence per line, tokens separated by white space; else raw text."""
    split: bool = False
    """Lines of raw text are paragraphs, to be split into sentences."""
    wrapped: bool = False
    """Lines of raw text are wrapped at a width, and blank lines end paragraphs, to be split into sentences."""
    language: str = "en"
    """The language whose rules apply to raw text."""

    def __post_init__(self) -> None:
        for name in ("split", "wrapped"):
            if self.tokenized and getattr(self, name):
                raise InputError(f"tokenized text has one sentence per line already; leave out {name} or tokenized")
        if not self.tokenized and self.language != "en":  # English is always known, and checking takes an import
            load_moses(self.language)

    def paragraphs(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines, joined to paragraphs if they are wrapped."""
        return join_wrapped(lines) if self.wrapped else iter(lines)

    def sentences(self, text: str) -> list[str]:
        """Return the sentences of a line or paragraph."""
        if self.wrapped:
            text = unwrap(text)
        return split_sentences(text, language=self.language) if self.split or self.wrapped else [text]

    def tokens(self, sentence: str) -> list[str]:
        """Return the tokens of a sentence."""
        return sentence.split() if self.tokenized else tokenize(sentence, language=self.language)


RAW_LINES = TextRules()
RAW_ENGLISH = TextRules(split=True)
"""English as people type it: a line may hold several sentences."""
