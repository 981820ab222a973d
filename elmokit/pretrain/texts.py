"""Prepared texts of a pretraining run or a fine-tuning: training text, held-out text, vocabulary."""

import fnmatch
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from elmokit.errors import ElmokitWarning
from elmokit.pretrain.recipe import DataSettings, VocabSettings
from elmokit.readers.plain_text import read_texts
from elmokit.text.corpus import Corpus, Source
from elmokit.text.exclusion import RUN_WORDS, Exclusion
from elmokit.text.lines import find_inputs, read_lines
from elmokit.text.preparation import prepare_corpus, recorded_exclusion, recorded_sources
from elmokit.text.vocab import Vocab, read_vocab

PrepareProgress = Callable[[int], None]
"""Is called with the number of characters that are prepared."""


@dataclass(frozen=True, eq=False)
class TextFiles:
    """Files of a run's texts, and how they are prepared."""

    train: list[str]
    heldout: list[str]
    exclude: list[str]
    """Test sets whose sentences are left out of the training text."""
    data: DataSettings
    max_chars: int
    num_workers: int = 1
    progress: PrepareProgress | None = None
    may_be_gone: bool = False
    """Allow a prepared text whose files are gone."""

    def prepare_train(self, folder: Path, *, accept: Callable[[str], None]) -> Corpus:
        """Prepare the training text in ``folder``, if it is not there; warn of words that are too long.

        ``accept`` is called with the fingerprint before anything is replaced, and may raise.
        """
        exclusion = Exclusion(tuple(self.exclude), read_texts) if self.exclude else None
        corpus = self._prepare(self.train, folder, accept=accept, exclude=exclusion)
        _warn_of_cut_words(corpus)
        return corpus

    def prepare_heldout(self, folder: Path) -> None:
        """Prepare the held-out text in ``folder``, if there is any and it is not there."""
        if self.heldout:
            self._prepare(self.heldout, folder)

    def _prepare(
        self,
        files: list[str],
        folder: Path,
        *,
        accept: Callable[[str], None] | None = None,
        exclude: Exclusion | None = None,
    ) -> Corpus:
        return prepare_corpus(
            files,
            folder,
            rules=self.data.rules,
            max_chars=self.max_chars,
            num_workers=self.num_workers,
            progress=self.progress,
            may_be_gone=self.may_be_gone,
            accept=accept,
            exclude=exclude,
        )


def find_texts(
    data: DataSettings, *, max_chars: int, num_workers: int = 1, progress: PrepareProgress | None = None
) -> TextFiles:
    """Return the files that the settings name; raise InputError for a missing one before any is prepared."""
    train, heldout, exclude = find_inputs(data.train), _find_optional(data.heldout), _find_optional(data.exclude)
    read_lines([*heldout, *exclude])  # checks that the files exist, and reads nothing yet
    return TextFiles(train, heldout, exclude, data, max_chars, num_workers, progress)


def find_recorded_texts(
    data: DataSettings,
    *,
    train_dir: Path,
    heldout_dir: Path,
    max_chars: int,
    num_workers: int = 1,
    progress: PrepareProgress | None = None,
) -> TextFiles:
    """Return the files of a run whose texts are prepared already; the files themselves may be gone."""
    train = find_inputs(_recorded_names(data.train, recorded_sources(train_dir)))
    heldout = _find_optional(_recorded_names(data.heldout, recorded_sources(heldout_dir)))
    exclude = _find_optional(_recorded_names(data.exclude, recorded_exclusion(train_dir)))
    return TextFiles(train, heldout, exclude, data, max_chars, num_workers, progress, may_be_gone=True)


def describe_exclusion(corpus: Corpus) -> str:
    """Return a sentence for the model card about what was left out of the training text, or nothing."""
    files = corpus.meta.excluded
    if not files:
        return ""
    parts = ", ".join(f"{Path(file.source.name).name} {file.num_left_out:,}" for file in files)
    return (
        f" Sentences left out because a test set has them or shares {RUN_WORDS} words in a row with them: "
        f"{corpus.meta.num_left_out:,} ({parts})."
    )


def find_vocab(settings: VocabSettings, corpus: Corpus) -> Vocab:
    """Return the vocabulary that the settings name, or one that is counted from the text."""
    if settings.file is not None:
        return read_vocab(settings.file)
    return Vocab.from_counts(corpus.word_counts(), max_size=settings.max_size, min_count=settings.min_count)


def _find_optional(patterns: tuple[str, ...]) -> list[str]:
    return find_inputs(patterns) if patterns else []


def _recorded_names(patterns: tuple[str, ...], sources: tuple[Source, ...]) -> tuple[str, ...]:
    """Return the recorded names if some files are gone and the patterns match all the names; else the patterns."""
    recorded = tuple(source.name for source in sources)
    if all(Path(name).exists() for name in recorded):
        return patterns
    matches = [[name] if name in recorded else sorted(set(fnmatch.filter(recorded, name))) for name in patterns]
    return recorded if tuple(chain.from_iterable(matches)) == recorded else patterns


def _warn_of_cut_words(corpus: Corpus) -> None:
    if corpus.num_cut_words:
        max_chars = corpus.meta.settings.max_chars
        warnings.warn(
            f"{corpus.num_cut_words:,} of the text's {corpus.num_words:,} distinct words have more than "
            f"{max_chars - 2} bytes and are cut to that length (max_chars = {max_chars})",
            ElmokitWarning,
            stacklevel=3,
        )
