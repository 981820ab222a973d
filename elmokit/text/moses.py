"""The Moses tokenizer of sacremoses, made faster.

Importing sacremoses takes a third of a second; import this module where it is used.
"""

from typing import Any

from sacremoses import MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

# The tokenizer knows two languages more than its lists of abbreviations.
LANGUAGES = frozenset(NonbreakingPrefixes().available_langs.values()) | {"ja", "ko"}
_NUMERIC_ONLY = "#NUMERIC_ONLY#"


class Moses(MosesTokenizer):  # type: ignore[misc]  # sacremoses has no annotations
    """A tokenizer that builds its character sets once; sacremoses builds sets of 100,000 characters at every call."""

    def __init__(self, language: str) -> None:
        super().__init__(lang=language)
        self._lower = frozenset(self.IsLower)
        self._alphabet = frozenset(self.IsAlpha)

    def islower(self, text: Any) -> bool:
        """Return whether every character is a lowercase letter."""
        return self._lower.issuperset(text)

    def isanyalpha(self, text: Any) -> bool:
        """Return whether any character is a letter."""
        return not self._alphabet.isdisjoint(text)


class GenericMoses(Moses):
    """Moses' rules for a language without rules of its own: case means nothing, and abbreviations are given.

    Args:
        abbreviations: Words that keep their full stop, without it. ``No #NUMERIC_ONLY#`` keeps it before a number.
    """

    def __init__(self, abbreviations: tuple[str, ...]) -> None:
        super().__init__("generic")
        self.NUMERIC_ONLY_PREFIXES = [one.split()[0] for one in abbreviations if _NUMERIC_ONLY in one]
        self.NONBREAKING_PREFIXES = [one for one in abbreviations if _NUMERIC_ONLY not in one]

    def islower(self, text: Any) -> bool:  # noqa: ARG002
        """Return False: before a lower-case word too, a full stop is a token of its own."""
        return False
