"""A language model in plain NumPy: the biLM's oracle with a softmax, one token at a time.

Shapes: T tokens of a sentence, P width, V words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from oracle import Array, CellState, Oracle
from published import PublishedModel

from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab
from elmokit.weights.source import build_bilm, load_saved

State = tuple[CellState, ...]

SENTENCES = [
    "the old man went down to the river",
    "it rose",
    "his daughter sold fish in the town near the church",
    "again",
    "people came from far away",
    "he cried",
]
# Words of the sentences that are missing here are unknown.
WORDS = "the old man river it his daughter fish in town church people came he again".split()


@dataclass(frozen=True)
class LanguageOracle:
    """How surprising each word is, from the published arrays and a softmax."""

    bilm: Oracle
    weight_VP: Array
    bias_V: Array
    ids: dict[str, int]

    def zero(self, direction: int) -> State:
        return self.bilm._zero_state()[direction]

    def logprobs(self, direction: int, words: Sequence[str], start: State) -> tuple[Array, State]:
        """The log-probabilities (T, V) after each of ``words``, given in the order they are read."""
        layers, state = self.bilm._run_direction(direction, self.bilm.token_vectors(words), start)
        logits_TV = layers[-1] @ self.weight_VP.T + self.bias_V
        return logits_TV - np.log(np.exp(logits_TV).sum(axis=1, keepdims=True)), state

    def surprises(self, direction: int, sentence: Sequence[str], start: State) -> tuple[Array, State]:
        """Of every target of a bounded sentence in the order it is read, and where the direction ends."""
        words = ["<S>", *sentence, "</S>"]
        words = words if direction == 0 else words[::-1]
        logprobs_TV, state = self.logprobs(direction, words[:-1], start)
        targets = [self.ids.get(word, self.ids["<UNK>"]) for word in words[1:]]
        return -logprobs_TV[np.arange(len(targets)), targets], state


@dataclass(frozen=True)
class Pair:
    """A model, and the oracle with the same weights."""

    model: LanguageModel
    oracle: LanguageOracle
    vocab: Vocab


def make_pair(published: PublishedModel) -> Pair:
    vocab = Vocab(["<S>", "</S>", "<UNK>", *WORDS])
    rng = np.random.default_rng(3)
    width = published.options["lstm"]["projection_dim"]
    weight_VP: NDArray[np.float32] = rng.normal(size=(len(vocab), width)).astype(np.float32)
    bias_V: NDArray[np.float32] = rng.normal(size=len(vocab)).astype(np.float32)
    softmax = Softmax(len(vocab), width)
    softmax.load_state_dict({"weight": torch.from_numpy(weight_VP), "bias": torch.from_numpy(bias_V)})
    model = LanguageModel(build_bilm(load_saved(published.pair)), softmax)
    ids = {word: index for index, word in enumerate(vocab.words)}
    oracle = LanguageOracle(
        Oracle(published.arrays, published.options), weight_VP.astype(float), bias_V.astype(float), ids
    )
    return Pair(model, oracle, vocab)


def write_corpus(folder: Path, sentences: Sequence[str] = SENTENCES, *, max_chars: int = 50) -> Corpus:
    source = folder / "text.txt"
    source.write_text("".join(f"{sentence}\n" for sentence in sentences), "utf-8")
    return prepare_corpus([source], folder / "corpus", rules=TextRules(tokenized=True), max_chars=max_chars)
