"""How given text becomes sentences and tokens."""

from dataclasses import dataclass

from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import tokenize


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
