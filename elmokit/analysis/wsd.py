"""Word-sense disambiguation by the nearest sense, per layer (Peters et al. 2018, Table 5).

A sense is the mean vector of the tokens that SemCor tags with it. A test token gets the sense of its lemma and part of
speech whose vector is nearest by cosine; one that SemCor never tags gets WordNet's first sense. Every instance is
answered, so that precision, recall, F1 and accuracy are one number.

Shapes: L layers, T tokens, D width, S senses, N instances.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.readers.wsd import SenseInstance, SenseSentence

Word = tuple[str, str]
"""Lemma and part of speech."""
Layers = NDArray[np.float32]
Progress = Callable[[int], None]
"""Called with the number of tokens that were read so far."""


# Peters et al. 2018, Table 5: F1 on Senseval 2 and 3, SemEval 2013 and 2015 together.
PUBLISHED: Mapping[str, float] = {
    "WordNet's first sense": 65.9,
    "biLM, first layer": 67.4,
    "biLM, second layer": 69.0,
    "CoVe, first layer": 59.4,
    "CoVe, second layer": 64.7,
    "Raganato et al. 2017": 69.9,
    "Iacobacci et al. 2016": 70.1,
}


class LayerEncoder(Protocol):
    """Source of layers for token sequences, such as an `Embedder`."""

    @property
    def num_layers(self) -> int:
        """Number of layers per token."""

    @property
    def width(self) -> int:
        """Width of a vector."""

    def iter_layers(self, sentences: Iterable[Any], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layers of each sentence in order, (L, T, D)."""


@dataclass(frozen=True)
class SenseScores:
    """Share of correct answers, as fractions from 0 to 1."""

    num_instances: int
    first_sense: float
    """Accuracy of WordNet's first sense, the baseline."""
    layers: tuple[float, ...]
    """Accuracy of each layer's vectors."""
    num_unseen: int
    """Instances whose word SemCor never tags: they are answered by the first sense."""


@dataclass(frozen=True, eq=False)
class SenseAnswers:
    """Answers to N instances: true where one is correct."""

    right_LN: NDArray[np.bool_]
    """By each layer's vectors."""
    first_N: NDArray[np.bool_]
    """By WordNet's first sense."""
    unseen_N: NDArray[np.bool_]
    """SemCor never tags its word."""
    multi_word_N: NDArray[np.bool_]
    """It has several tokens."""

    def scores(self, *, multi_word: bool | None = None) -> SenseScores:
        """Return the shares of correct answers; ``multi_word`` is that of `score_senses`."""
        chosen_N = np.ones_like(self.first_N) if multi_word is None else self.multi_word_N == multi_word
        if not chosen_N.any():
            raise InputError("no instance to score; expected a test set with tagged words")
        return SenseScores(
            int(chosen_N.sum()),
            float(self.first_N[chosen_N].mean()),
            tuple(self.right_LN[:, chosen_N].mean(axis=1).tolist()),
            int(self.unseen_N[chosen_N].sum()),
        )


class SenseVectors:
    """Mean vector per sense and layer."""

    def __init__(self, num_layers: int, width: int) -> None:
        self._shape = num_layers, width
        self._sums: dict[Word, dict[str, NDArray[np.float64]]] = defaultdict(dict)
        self._units: dict[Word, tuple[list[str], NDArray[np.float64]]] = {}

    def add(self, instance: SenseInstance, vector_LD: NDArray[np.floating[Any]]) -> None:
        """Add a tagged token. An instance with several senses counts for each of them."""
        word = instance.lemma, instance.pos
        for sense in instance.senses:
            total = self._sums[word].setdefault(sense, np.zeros(self._shape))
            total += vector_LD
        self._units.pop(word, None)

    def nearest(self, word: Word, vector_LD: NDArray[np.floating[Any]]) -> list[str] | None:
        """Return the nearest sense of a word per layer, or None for a word that was never added."""
        if word not in self._sums:
            return None
        if word not in self._units:
            senses = sorted(self._sums[word])  # so that equals are decided by name
            self._units[word] = senses, _unit_length(np.stack([self._sums[word][sense] for sense in senses]))
        senses, units_SLD = self._units[word]
        cosines_SL = np.einsum("sld,ld->sl", units_SLD, vector_LD)
        return [senses[index] for index in cosines_SL.argmax(axis=0)]


def total_scores(scores: Sequence[SenseScores]) -> SenseScores:
    """Return the scores of several test sets as of one: every instance counts the same."""
    num_instances = sum(one.num_instances for one in scores)
    counts = np.array([one.num_instances for one in scores])
    layers_SL = np.array([one.layers for one in scores])
    return SenseScores(
        num_instances,
        float(counts @ [one.first_sense for one in scores] / num_instances),
        tuple((counts @ layers_SL / num_instances).tolist()),
        sum(one.num_unseen for one in scores),
    )


def learn_senses(
    encoder: LayerEncoder, sentences: Sequence[SenseSentence], *, progress: Progress = lambda _: None
) -> SenseVectors:
    """Return the mean vectors of all senses that training sentences are tagged with."""
    found = SenseVectors(encoder.num_layers, encoder.width)
    for instance, vector_LD in _instance_vectors(encoder, sentences, progress):
        found.add(instance, vector_LD)
    return found


def score_senses(
    encoder: LayerEncoder,
    senses: SenseVectors,
    first_senses: Mapping[Word, str],
    sentences: Sequence[SenseSentence],
    *,
    multi_word: bool | None = None,
    progress: Progress = lambda _: None,
) -> SenseScores:
    """Score every layer on a test set.

    Args:
        encoder: Source of the vectors; the one that `learn_senses` was called with.
        senses: Vectors of the senses.
        first_senses: WordNet's first sense per word (`elmokit.readers.wsd.read_sense_index`).
        sentences: The test set.
        multi_word: Score only instances of several tokens (True) or of one (False); None scores all.
        progress: Called with the number of tokens that were read so far.
    """
    return answer_senses(encoder, senses, first_senses, sentences, progress=progress).scores(multi_word=multi_word)


def answer_senses(
    encoder: LayerEncoder,
    senses: SenseVectors,
    first_senses: Mapping[Word, str],
    sentences: Sequence[SenseSentence],
    *,
    progress: Progress = lambda _: None,
) -> SenseAnswers:
    """Answer every instance of a test set with every layer; the arguments are those of `score_senses`."""
    rows: list[list[bool]] = []  # per instance: first sense, unseen, several tokens, then the layers
    for instance, vector_LD in _instance_vectors(encoder, sentences, progress):
        word = instance.lemma, instance.pos
        first = first_senses.get(word)
        nearest = senses.nearest(word, vector_LD)
        answers = [first] * encoder.num_layers if nearest is None else nearest
        rows.append(
            [
                first in instance.senses,
                nearest is None,
                instance.end - instance.start > 1,
                *(answer in instance.senses for answer in answers),
            ]
        )
    table_NK = np.array(rows, dtype=np.bool_).reshape(len(rows), 3 + encoder.num_layers)
    return SenseAnswers(table_NK[:, 3:].T, *table_NK[:, :3].T)


def join_answers(parts: Sequence[SenseAnswers]) -> SenseAnswers:
    """Return the answers to several test sets as to one."""
    return SenseAnswers(
        np.concatenate([one.right_LN for one in parts], axis=1),
        np.concatenate([one.first_N for one in parts]),
        np.concatenate([one.unseen_N for one in parts]),
        np.concatenate([one.multi_word_N for one in parts]),
    )


def _instance_vectors(
    encoder: LayerEncoder, sentences: Sequence[SenseSentence], progress: Progress
) -> Iterator[tuple[SenseInstance, NDArray[np.float64]]]:
    """Yield every instance with its vector per layer; several tokens are one vector, their mean."""
    tagged = [sentence for sentence in sentences if sentence.instances]
    num_tokens = 0
    all_layers = encoder.iter_layers(sentence.tokens for sentence in tagged)
    for sentence, layers_LTD in zip(tagged, all_layers, strict=True):
        for instance in sentence.instances:
            yield instance, layers_LTD[:, instance.start : instance.end].mean(axis=1, dtype=np.float64)
        num_tokens += len(sentence.tokens)
        progress(num_tokens)


def _unit_length(vectors_SLD: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors_SLD, axis=2, keepdims=True)
    units: NDArray[np.float64] = vectors_SLD / np.where(norms > 0, norms, 1.0)
    return units
