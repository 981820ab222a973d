"""The words that a language model predicts, as ids.

Only targets have a vocabulary: the biLM reads every word by its characters. The file has one word a line. The first
is id 0, and words follow by falling count, because the sampled softmax draws small ids more often.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.chars import BOS_WORD, EOS_WORD
from elmokit.text.lines import read_lines

UNK_WORD = "<UNK>"
SPECIAL_WORDS = (BOS_WORD, EOS_WORD, UNK_WORD)

_SKIPPED_LINE = "!!!MAXTERMID"  # an old tool's last line; it never had an id


class Vocab:
    """Words and their ids; a word that is not listed has the id of ``<UNK>``."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        if fault := _find_fault(self.words):
            index, reason = fault
            raise InputError(f"word {index} of the vocabulary: {reason}")
        self._ids = {word: index for index, word in enumerate(self.words)}
        if missing := [word for word in SPECIAL_WORDS if word not in self._ids]:
            raise InputError(
                f"the vocabulary has no {' '.join(missing)}; put {' '.join(SPECIAL_WORDS)} on its first three lines"
            )
        self.bos_id, self.eos_id, self.unk_id = (self._ids[word] for word in SPECIAL_WORDS)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, max_size: int | None = None, min_count: int = 1) -> "Vocab":
        """List ``<S>``, ``</S>``, ``<UNK>``, then the words by falling count; equal counts go by code point.

        ``max_size`` bounds the whole list, the three specials too. Words seen less than ``min_count`` times are left
        out.
        """
        most_words = None if max_size is None else max_size - len(SPECIAL_WORDS)
        if most_words is not None and most_words < 1:
            raise InputError(f"max_size is {max_size}; it must be {len(SPECIAL_WORDS) + 1} or more: three are specials")
        left_out = {*SPECIAL_WORDS, _SKIPPED_LINE}
        words = [word for word, count in counts.items() if count >= min_count and word not in left_out]
        if not words:
            most = max(counts.values(), default=0)
            raise InputError(
                f"no word is seen {min_count} times (the most frequent: {most}); lower min_count or add text"
            )
        words.sort(key=lambda word: (-counts[word], word))
        return cls([*SPECIAL_WORDS, *words[:most_words]])

    def id(self, word: str) -> int:
        """Return a word's id, or that of ``<UNK>``."""
        return self._ids.get(word, self.unk_id)

    @property
    def fingerprint(self) -> str:
        """Names the list; two vocabularies with the same one are equal."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def to_text(self) -> str:
        """Return what ``read_vocab`` reads: one word a line."""
        return "".join(f"{word}\n" for word in self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids


def read_vocab(path: str | Path) -> Vocab:
    """Read a vocabulary file, plain or compressed; the specials can be on any line."""
    words: list[str] = []
    line_numbers: list[int] = []
    for line in read_lines([path]):
        if line.text != _SKIPPED_LINE:
            words.append(line.text)
            line_numbers.append(line.number)
    if fault := _find_fault(words):
        index, reason = fault
        raise InputError(f"{path}, line {line_numbers[index]}: {reason}")
    try:
        return Vocab(words)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _find_fault(words: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first word that cannot be, and why; None if all can."""
    # Two tests of all words at once. A word is lost or split here exactly if it is empty or has white space.
    if " ".join(words).split() == list(words) and len(set(words)) == len(words) and _SKIPPED_LINE not in words:
        return None
    first_index: dict[str, int] = {}
    for index, word in enumerate(words):
        if not word:
            return index, "is blank, but must be a word; delete the line"
        if word.split() != [word]:
            return index, f"{word!r} has white space, but must be one word; delete the white space or the line"
        if word == _SKIPPED_LINE:
            return index, f"{word!r} can be no word: it is skipped when a vocabulary is read; leave it out"
        if word in first_index:
            return index, f"{word!r} is there already, {index - first_index[word]} before; delete one of the two"
        first_index[word] = index
    raise AssertionError("a fault that no test finds")
