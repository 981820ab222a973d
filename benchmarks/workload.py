"""Workloads of the benchmarks: random models of published sizes, and batches of real text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import tokenize
from elmokit.weights.bilm_tf import write_bilm_tf
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM, expected_shapes

Sentence = list[str]
Batch = list[Sentence]

SORTED_BATCH, UNSORTED_BATCH = 64, 32
SORT_WINDOW = 4096  # sentences that are sorted by length together
LATENCY_WORDS = 20


@dataclass(frozen=True)
class Size:
    """Shape of a model, and the amount of text per round."""

    config: BiLMConfig
    sorted_batches: int
    unsorted_batches: int
    latency_sentences: int
    corpus_sentences: int
    memory_tokens: tuple[int, ...]  # input lengths at which the peak is measured

    @property
    def fewest_sentences(self) -> int:
        """Number of sentences that one round needs."""
        return max(self.sorted_batches * SORTED_BATCH, self.unsorted_batches * UNSORTED_BATCH)


SIZES = {
    "paper": Size(BiLMConfig(), 2, 4, 5, 512, memory_tokens=(100_000, 1_000_000)),
    "small": Size(
        BiLMConfig(char_encoder=CharEncoderConfig(num_highway=1), lstm=LSTMConfig(cell_dim=1024, proj_dim=128)),
        sorted_batches=4,
        unsorted_batches=8,
        latency_sentences=20,
        corpus_sentences=4096,
        memory_tokens=(100_000, 1_000_000),
    ),
    "en-small": Size(
        BiLMConfig(
            char_encoder=CharEncoderConfig(
                filters=((1, 16), (2, 32), (3, 64), (4, 100), (5, 100), (6, 100), (7, 100)), num_highway=1
            ),
            lstm=LSTMConfig(cell_dim=1024, proj_dim=128),
        ),
        sorted_batches=4,
        unsorted_batches=8,
        latency_sentences=20,
        corpus_sentences=4096,
        memory_tokens=(100_000, 1_000_000),
    ),
    "tiny": Size(  # smoke test; its numbers mean nothing
        BiLMConfig(
            char_encoder=CharEncoderConfig(filters=((1, 8), (2, 16), (3, 16)), num_highway=1),
            lstm=LSTMConfig(cell_dim=32, proj_dim=16),
        ),
        sorted_batches=1,
        unsorted_batches=1,
        latency_sentences=2,
        corpus_sentences=64,
        memory_tokens=(500, 2000),
    ),
}

# By the first matching part of a name: the standard deviation of a weight's outputs for inputs of size 1 (default 1),
# and the value of a bias (default 0). With these, words differ, gates open and close, few values reach the clips, and
# rounding errors do not grow from step to step.
GAINS = {
    "char_embedding": 4.0,
    "char_encoder.projection": 5.0,
    "input_weight": 1.5,
    "recurrent_weight": 0.5,
    "lstm.layers": 2.0,  # the rest: the projection
}
BIASES = {"convs": -2.0, "gate": -2.0}


@dataclass(frozen=True)
class Model:
    """One random biLM in both formats and in memory."""

    saved: SavedBiLM
    folder: Path
    options_path: Path
    weights_path: Path


def draw_tensors(config: BiLMConfig) -> dict[str, Tensor]:
    """Return random weights with activations like those of a trained model; the same on every call."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in expected_shapes(config, source="the workload").items():
        if name.endswith("bias"):
            tensors[name] = torch.full(shape, _first_fit(name, BIASES, default=0.0))
        else:
            scale = _first_fit(name, GAINS, default=1.0) / math.sqrt(math.prod(shape[1:]))
            tensors[name] = torch.randn(shape, generator=generator) * scale
    return tensors


def _first_fit(name: str, values: dict[str, float], *, default: float) -> float:
    return next((value for part, value in values.items() if part in name), default)


def write_model(config: BiLMConfig, folder: Path) -> Model:
    """Write a model of this shape as a folder, and as the two published files."""
    saved = SavedBiLM(config, draw_tensors(config))
    model = Model(saved, folder / "ours", folder / "options.json", folder / "weights.hdf5")
    save_folder(saved, model.folder)
    write_bilm_tf(saved, model.options_path, model.weights_path)
    return model


def read_sentences(path: Path) -> Iterator[Sentence]:
    """Yield the tokenized sentences of a text."""
    for line in read_lines([path]):
        for sentence in split_sentences(line.text):
            if tokens := tokenize(sentence):
                yield tokens


def first_sentences(path: Path, size: Size) -> list[Sentence]:
    """Return the sentences of a text that a round of this size needs."""
    sentences = list(islice(read_sentences(path), max(SORT_WINDOW, size.corpus_sentences)))
    if len(sentences) < size.fewest_sentences:
        raise SystemExit(f"{path}: has {len(sentences)} sentences; expected {size.fewest_sentences} or more")
    return sentences


def sorted_batches(sentences: Sequence[Sentence], num_batches: int) -> list[Batch]:
    """Return batches of sentences of similar length, evenly spread from short to long."""
    by_length = sorted(sentences, key=len)
    in_all = len(by_length) // SORTED_BATCH
    chosen = [(2 * index + 1) * in_all // (2 * num_batches) for index in range(num_batches)]
    return [by_length[batch * SORTED_BATCH : (batch + 1) * SORTED_BATCH] for batch in chosen]


def unsorted_batches(sentences: Sequence[Sentence], num_batches: int) -> list[Batch]:
    """Return batches of the first sentences, in the text's order."""
    return [list(sentences[index * UNSORTED_BATCH :][:UNSORTED_BATCH]) for index in range(num_batches)]


def single_sentences(sentences: Sequence[Sentence], num_sentences: int) -> list[Batch]:
    """Return batches of one sentence each: the first that have 20 words, cut to 20."""
    long_enough = [sentence for sentence in sentences if len(sentence) >= LATENCY_WORDS]
    if len(long_enough) < num_sentences:
        raise SystemExit(
            f"the text has {len(long_enough)} sentences of {LATENCY_WORDS} words; expected {num_sentences}"
        )
    return [[sentence[:LATENCY_WORDS]] for sentence in long_enough[:num_sentences]]


def count_words(batches: Sequence[Batch]) -> int:
    """Return the number of words, without boundaries."""
    return sum(len(sentence) for batch in batches for sentence in batch)
