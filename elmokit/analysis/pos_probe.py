"""Probe each layer of a frozen encoder for parts of speech with a linear classifier (Peters et al. 2018, Table 6).

For every layer, and for the mean of all, the regularization strength is chosen on the dev set. The test set is
evaluated once.

Shapes: N tokens of a data set, L layers, D width, K tags.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.analysis.logistic_regression import LinearClassifier, fit_path
from elmokit.analysis.wsd import LayerEncoder
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer
from elmokit.errors import InputError, OutputError
from elmokit.model.bilm import BiLM
from elmokit.readers.conllu import UDSentence

STRENGTHS = (100.0, 10.0, 1.0, 0.1)
"""Regularization strengths: the inverse of scikit-learn's C."""

HELD_OUT_PART = 10  # one in so many training sentences

Column = Literal["xpos", "upos", "feats", "deprel", "direction", "lemma"]
COLUMNS: Mapping[Column, str] = {
    "xpos": "xpos",
    "upos": "upos",
    "feats": "features",
    "deprel": "relations",
    "direction": "directions",
    "lemma": "lemmas",
}
"""Columns of CoNLL-U, and the fields of a sentence that have them; ``direction`` is the side of a token's head."""
# Peters et al. 2018, Table 6: accuracy on the Wall Street Journal, which our data are not.
PUBLISHED: Mapping[str, float] = {
    "biLM, first layer": 97.3,
    "biLM, second layer": 96.8,
    "CoVe, first layer": 93.3,
    "CoVe, second layer": 92.8,
}

Answers = Callable[[Layer, NDArray[np.bool_]], None]
Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class PosData:
    """Tagged sentences: training, dev and test part."""

    train: Sequence[UDSentence]
    dev: Sequence[UDSentence]
    test: Sequence[UDSentence]
    column: Column = "xpos"
    """Column of CoNLL-U that has the tags."""

    def __post_init__(self) -> None:
        for part in PARTS:
            if not any(sentence.tokens for sentence in self.part(part)):
                raise InputError(f"the {part} part has no tokens; expected one or more tagged sentences in each part")
        if len(tags := self.tags()) < 2:
            raise InputError(
                f"the training part has only the tag {tags[0]!r} in the column {self.column}; use a treebank that has "
                f"it, or another column: {', '.join(COLUMNS)}"
            )

    def part(self, name: Part) -> Sequence[UDSentence]:
        """Return the sentences of a part."""
        return {"train": self.train, "dev": self.dev, "test": self.test}[name]

    def num_tokens(self, name: Part) -> int:
        """Return the number of tokens in a part."""
        return sum(len(sentence.tokens) for sentence in self.part(name))

    def tags(self) -> list[str]:
        """Return the tags of the training part, sorted."""
        return sorted({tag for sentence in self.train for tag in self.tags_of(sentence)})

    def tags_of(self, sentence: UDSentence) -> tuple[str, ...]:
        """Return the tags of a sentence."""
        found: tuple[str, ...] = getattr(sentence, COLUMNS[self.column])
        return found


@dataclass(frozen=True)
class Trial:
    """A regularization strength and its accuracy on the dev set."""

    strength: float
    dev_accuracy: float


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy of a linear classifier on one layer."""

    layer: Layer
    strength: float
    """The strength with the best dev accuracy; among equals the largest."""
    dev_accuracy: float
    test_accuracy: float
    seconds: float
    """Time to train the classifiers of all strengths."""
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class ProbeProgress:
    """Progress of a probe: ``done`` of ``total`` tokens embedded, or classifiers trained."""

    doing: Literal["embedding", "training"]
    done: int
    total: int


@dataclass(frozen=True, eq=False)
class _Examples:
    """Features and tags of one part; a tag that is not in the training part is -1, which no classifier predicts."""

    features_ND: Tensor
    tags_N: Tensor


def probe_pos(
    encoder: LayerEncoder,
    data: PosData,
    *,
    progress: Callable[[ProbeProgress], None] = lambda _: None,
    answers: Answers = lambda *_: None,
) -> Iterator[ProbeResult]:
    """Train classifiers of tags on every layer, then on the mean of all; yield each result as it is ready.

    ``answers`` is called with each layer, and with whether each test token's tag is predicted, (N,).
    """
    if isinstance(encoder, Embedder) and encoder.state == "carry":
        raise InputError("state is 'carry', under which a vector depends on its batch; probe with 'reset' or 'warm'")
    return _probe_layers(encoder, data, progress, answers)


def hold_out_last(sentences: Sequence[UDSentence]) -> tuple[list[UDSentence], list[UDSentence]]:
    """Return all but the last tenth of the sentences, and that tenth: a dev set for a treebank without one."""
    num_held_out = max(1, len(sentences) // HELD_OUT_PART)
    return list(sentences[:-num_held_out]), list(sentences[-num_held_out:])


def untrained_like(embedder: Embedder, *, seed: int) -> Embedder:
    """Return an embedder of the same shape with random weights: the control for what width alone contributes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bilm = BiLM(embedder.bilm.config)
    return Embedder(bilm, state=embedder.state, language=embedder.language, device=embedder.device)


def _probe_layers(
    encoder: LayerEncoder, data: PosData, progress: Callable[[ProbeProgress], None], answers: Answers
) -> Iterator[ProbeResult]:
    single: list[Layer] = [*range(encoder.num_layers)]
    layers: list[Layer] = [*single, "mean"] if len(single) > 1 else single
    index = {tag: number for number, tag in enumerate(data.tags())}
    with _embedded(encoder, data, progress) as vectors_LND:
        for number, layer in enumerate(layers):
            examples = _examples(vectors_LND, layer, data, index)
            tried = number * len(STRENGTHS)

            def report(more: int, tried: int = tried) -> None:
                progress(ProbeProgress("training", tried + more, len(layers) * len(STRENGTHS)))

            yield _probe_layer(layer, examples, num_tags=len(index), report=report, answers=answers)


def _probe_layer(
    layer: Layer,
    examples: dict[Part, _Examples],
    *,
    num_tags: int,
    report: Callable[[int], None],
    answers: Answers,
) -> ProbeResult:
    start = time.monotonic()
    train = examples["train"]
    found = fit_path(train.features_ND, train.tags_N, num_classes=num_tags, strengths=STRENGTHS)
    trials: list[Trial] = []
    best: tuple[Trial, LinearClassifier] | None = None
    report(0)
    for strength, classifier in zip(STRENGTHS, found, strict=True):
        trials.append(Trial(strength, _share(_is_right(classifier, examples["dev"]))))
        report(len(trials))
        if best is None or trials[-1].dev_accuracy > best[0].dev_accuracy:
            best = trials[-1], classifier
    seconds = time.monotonic() - start
    assert best is not None
    chosen, classifier = best
    is_right_N = _is_right(classifier, examples["test"])
    answers(layer, is_right_N.numpy())
    return ProbeResult(layer, chosen.strength, chosen.dev_accuracy, _share(is_right_N), seconds, tuple(trials))


def _is_right(classifier: LinearClassifier, examples: _Examples) -> Tensor:
    return classifier.predict(examples.features_ND) == examples.tags_N


def _share(is_right_N: Tensor) -> float:
    return is_right_N.double().mean().item()


@contextmanager
def _embedded(
    encoder: LayerEncoder, data: PosData, progress: Callable[[ProbeProgress], None]
) -> Iterator["np.memmap[tuple[int, int, int], np.dtype[np.float32]]"]:
    """Yield the vectors of all parts, concatenated, (L, N, D), in a file: memory holds one layer at a time."""
    total = sum(map(data.num_tokens, PARTS))
    sentences = (sentence.tokens for part in PARTS for sentence in data.part(part))
    with tempfile.TemporaryFile(prefix="elmokit-") as file:
        shape = (encoder.num_layers, total, encoder.width)
        _reserve(file, math.prod(shape) * 4)
        vectors_LND = np.memmap(file, dtype=np.float32, mode="r+", shape=shape)
        done = 0
        progress(ProbeProgress("embedding", done, total))
        for layers_LTD in encoder.iter_layers(sentences):
            vectors_LND[:, done : done + layers_LTD.shape[1]] = layers_LTD
            done += layers_LTD.shape[1]
            progress(ProbeProgress("embedding", done, total))
        yield vectors_LND


def _reserve(file: IO[bytes], num_bytes: int) -> None:
    """Allocate a file's disk space now: a full disk would kill the process when it writes to mapped memory."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        else:
            file.truncate(num_bytes)
    except OSError as error:
        raise OutputError(
            f"{tempfile.gettempdir()}: {error.strerror}; the vectors of all layers need {num_bytes / 1e9:.1f} GB. "
            "Set the variable TMPDIR to a folder with more space"
        ) from error


def _examples(
    vectors_LND: "np.memmap[tuple[int, int, int], np.dtype[np.float32]]",
    layer: Layer,
    data: PosData,
    index: dict[str, int],
) -> dict[Part, _Examples]:
    """Return one layer's features, standardized by the training part's mean and standard deviation."""
    picked_ND = torch.from_numpy(np.asarray(vectors_LND.mean(axis=0)) if layer == "mean" else vectors_LND[layer].copy())
    deviation_D, mean_D = torch.std_mean(picked_ND[: data.num_tokens("train")], dim=0, correction=0)
    deviation_D[deviation_D == 0] = 1  # a constant feature carries no information
    picked_ND.sub_(mean_D).div_(deviation_D)
    examples: dict[Part, _Examples] = {}
    done = 0
    for part in PARTS:
        tags = [index.get(tag, -1) for sentence in data.part(part) for tag in data.tags_of(sentence)]
        features_ND = picked_ND[done : done + len(tags)]
        examples[part] = _Examples(features_ND, torch.tensor(tags))
        done += len(tags)
    return examples
