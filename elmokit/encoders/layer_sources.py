"""Sources of layers for token sequences: one interface for the biLM and for the encoders that it is compared with.

`elmokit.embed.sources.open_layer_source` opens any of them by name.

Shapes: L layers, T tokens, D width, B sentences.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from elmokit.encoders.context2vec import Context2Vec
from elmokit.encoders.cove import NUM_LAYERS, CoVeEncoder
from elmokit.encoders.static_vectors import Lowering, StaticVectors
from elmokit.errors import InputError
from elmokit.text.grouping import batches_by_length, windows
from elmokit.text.vocab import Vocab

WINDOW_SENTENCES = 2048
MAX_POSITIONS = 16_384

Layers = NDArray[np.float32]


class LayerSource(Protocol):
    """Layers of token sequences. An `Embedder` is one, and so is every class here."""

    @property
    def num_layers(self) -> int:
        """Number of layers."""

    @property
    def width(self) -> int:
        """Width of a vector, the same in all layers."""

    @property
    def state(self) -> str:
        """Policy for the state in which a sequence starts; under ``carry`` vectors depend on other sequences."""

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layers of each sequence in order, (L, T, D)."""

    def iter_unordered(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64
    ) -> Iterator[tuple[int, Layers]]:
        """Yield (index, layers) of sequences as they are computed."""

    def fingerprint(self) -> str:
        """Return a hash of everything that vectors depend on besides their sequence."""


class StaticLayers:
    """Static vectors as a single layer; zeros for unknown words."""

    state = "reset"
    num_layers = 1

    def __init__(self, vectors: StaticVectors, *, lower: Lowering = "fallback") -> None:
        self.vectors, self.lower = vectors, lower
        self.width = vectors.width

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layer of each sentence in order, (1, T, D)."""
        return _iter_ordered(self.iter_unordered, sentences, batch_size)

    def iter_unordered(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64
    ) -> Iterator[tuple[int, Layers]]:
        """Yield (index, layer) of sentences, the longest first."""
        for index in (index for batch in _batches(sentences, batch_size) for index in batch):
            rows_T = self.vectors.rows(sentences[index], lower=self.lower)
            layers_1TD = np.zeros((1, len(rows_T), self.width), dtype=np.float32)
            layers_1TD[0, rows_T > 0] = self.vectors.vectors_VD[rows_T[rows_T > 0] - 1]
            yield index, layers_1TD

    def fingerprint(self) -> str:
        """Return a hash of everything that vectors depend on besides their sentence."""
        return _fingerprint(f"static {self.lower}", {}, self.vectors.words, torch.from_numpy(self.vectors.vectors_VD))


class CoVeLayers:
    """Both layers of a CoVe encoder over token sequences."""

    state = "reset"

    def __init__(self, encoder: CoVeEncoder, vectors: StaticVectors, *, lower: Lowering) -> None:
        self.encoder, self.vectors, self.lower = encoder.eval(), vectors, lower
        self._matrix_VE = torch.from_numpy(vectors.matrix())
        self.num_layers, self.width = NUM_LAYERS, 2 * encoder.hidden_dim

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layers of each sentence in order, (L, T, D)."""
        return _iter_ordered(self.iter_unordered, sentences, batch_size)

    @torch.no_grad()
    def iter_unordered(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64
    ) -> Iterator[tuple[int, Layers]]:
        """Yield (index, layers) of sentences, batch by batch of like length."""
        for batch in _batches(sentences, batch_size):
            rows = [torch.from_numpy(self.vectors.rows(sentences[index], lower=self.lower)) for index in batch]
            rows_BT = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            mask_BT = torch.arange(rows_BT.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
            found = self.encoder(functional.embedding(rows_BT, self._matrix_VE), mask_BT).layers_LBTD
            for place, index in enumerate(batch):
                yield index, found[:, place, : len(sentences[index])].numpy().copy()

    def fingerprint(self) -> str:
        """Return a hash of everything that vectors depend on besides their sentence."""
        return _fingerprint(f"cove {self.lower}", self.encoder.state_dict(), self.vectors.words, self._matrix_VE)


class Context2VecLayers:
    """Context vectors as a single layer."""

    state = "reset"
    num_layers = 1

    def __init__(self, model: Context2Vec, vocab: Vocab) -> None:
        self.model, self.vocab = model.eval(), vocab
        self.width = model.output.out_features

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layer of each sentence in order, (1, T, D)."""
        return _iter_ordered(self.iter_unordered, sentences, batch_size)

    @torch.no_grad()
    def iter_unordered(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64
    ) -> Iterator[tuple[int, Layers]]:
        """Yield (index, layer) of sentences, batch by batch of one length."""
        for batch in _batches(sentences, batch_size):
            for length in sorted({len(sentences[index]) for index in batch}):
                alike = [index for index in batch if len(sentences[index]) == length]
                ids = [[self.vocab.id(token.lower()) for token in sentences[index]] for index in alike]
                for index, vectors_TC in zip(alike, self.model(torch.tensor(ids)), strict=True):
                    yield index, vectors_TC[None].numpy().copy()

    def fingerprint(self) -> str:
        """Return a hash of everything that vectors depend on besides their sentence."""
        return _fingerprint("context2vec", self.model.state_dict(), self.vocab.words)


LoadedEncoder = CoVeLayers | Context2VecLayers | StaticLayers


def _batches(sentences: Sequence[Sequence[str]], batch_size: int) -> Iterator[list[int]]:
    lengths = [len(sentence) for sentence in sentences]
    if 0 in lengths:
        raise InputError(f"sentence {lengths.index(0)} has no tokens; leave it out")
    return iter(batches_by_length(lengths, batch_size=batch_size, max_positions=MAX_POSITIONS))


def _iter_ordered(iter_unordered: Any, sentences: Iterable[Sequence[str]], batch_size: int) -> Iterator[Layers]:
    for window in windows(sentences, WINDOW_SENTENCES):
        found = dict(iter_unordered(window, batch_size=batch_size))
        yield from (found[index] for index in range(len(window)))


def _fingerprint(settings: str, tensors: Mapping[str, Tensor], words: Sequence[str], *more: Tensor) -> str:
    digest = hashlib.sha256(settings.encode())
    digest.update("\n".join(words).encode("utf-8", "surrogatepass"))
    for tensor in [*(tensors[name] for name in sorted(tensors)), *more]:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
