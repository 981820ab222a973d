"""One vector per text, with the arguments of sentence-transformers' ``encode``.

Shapes: N texts, T tokens, D width.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch

from elmokit.embed.picking import Layer, Pooling, Vectors, check_layer, check_pooling, pool_tokens
from elmokit.embed.sentence_pooling import SentencePooling
from elmokit.embed.sentences import Sentence
from elmokit.embed.worker_pool import EmbedderPool
from elmokit.errors import InputError
from elmokit.text.checks import check_sentences
from elmokit.text.sentences import split_sentences

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder

Devices = str | torch.device | Sequence[str]


class EncodeOptions(TypedDict, total=False):
    """The options of `Embedder.encode` that do not change its return type."""

    prompt_name: str | None
    prompt: str | None
    batch_size: int
    show_progress_bar: bool | None
    output_value: str | None
    precision: str
    device: Devices | None
    normalize_embeddings: bool
    truncate_dim: int | None
    pool: EmbedderPool | None
    chunk_size: int | None
    pooling: Pooling | SentencePooling
    layer: Layer


@dataclass(frozen=True)
class EncodeSettings:
    """Checked options of one call; `Embedder.encode` explains them."""

    prompt_name: str | None = None
    prompt: str | None = None
    batch_size: int = 64
    show_progress_bar: bool | None = False
    output_value: str | None = "sentence_embedding"
    precision: str = "float32"
    device: Devices | None = None
    normalize_embeddings: bool = False
    truncate_dim: int | None = None
    pool: EmbedderPool | None = None
    chunk_size: int | None = None
    pooling: Pooling | SentencePooling = "mean"
    layer: Layer = "mean"

    def __post_init__(self) -> None:
        if not isinstance(self.pooling, SentencePooling):
            check_pooling(self.pooling)
        elif self.layer not in ("mean", self.pooling.layer):
            raise InputError(
                f"layer {self.layer!r}, but the pooling was fitted to layer {self.pooling.layer!r}; leave layer out"
            )
        if self.prompt_name is not None:
            raise InputError(f"prompt_name {self.prompt_name!r}; a biLM has no named prompts, give prompt='…' instead")
        if self.output_value != "sentence_embedding":
            raise InputError(
                f"output_value {self.output_value!r}; encode gives one vector per text ('sentence_embedding'), "
                "use embed_tokens or embed for one per token"
            )
        if self.precision != "float32":
            raise InputError(
                f"precision {self.precision!r}; encode gives 'float32'. For eight-bit weights, load the model with "
                "Embedder.from_pretrained(precision='int8')"
            )
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise InputError(f"truncate_dim {self.truncate_dim}; expected 1 or more, or None")


def encode_texts(embedder: "Embedder", texts: Iterable[Sentence], settings: EncodeSettings) -> Vectors:
    """Return one vector per text, (N, D or truncate_dim)."""
    pooling = settings.pooling
    layer = pooling.layer if isinstance(pooling, SentencePooling) else settings.layer
    check_layer(layer, embedder.num_layers)
    parts = [_sentences_of(text, embedder.language, settings.prompt) for text in check_sentences(texts)]
    if isinstance(pooling, SentencePooling):  # it depends on the words
        parts = [[embedder.tokenize(one) if isinstance(one, str) else one for one in text] for text in parts]
    pooled_ND = np.zeros((len(parts), embedder.width), dtype=np.float32)
    with ExitStack() as at_end:
        pool = settings.pool
        if isinstance(settings.device, Sequence) and not isinstance(settings.device, str):
            pool = at_end.enter_context(EmbedderPool(embedder, settings.device))
        else:
            _check_device(settings.device, embedder.device)
        sentences = (sentence for text in parts for sentence in text)
        found = embedder.iter_tokens(sentences, layer=layer, batch_size=settings.batch_size, pool=pool)
        for row, text in enumerate(_progress(parts) if settings.show_progress_bar else parts):
            tokens = [next(found) for _ in text]
            if tokens:
                pooled_ND[row] = _pool(text, np.concatenate(tokens), pooling)
        for _ in found:  # nothing is left; this ends the generator, which then warns of words that were cut
            raise AssertionError("more sentences than were given")
    pooled_ND = np.ascontiguousarray(pooled_ND[:, : settings.truncate_dim])
    if settings.normalize_embeddings:
        length_N1 = np.linalg.norm(pooled_ND, axis=1, keepdims=True)
        pooled_ND /= np.where(length_N1 > 0, length_N1, 1)
    return pooled_ND


def _pool(sentences: list[Sentence], vectors_TD: Vectors, pooling: Pooling | SentencePooling) -> Vectors:
    if isinstance(pooling, SentencePooling):
        return pooling.pool(sentences, vectors_TD)
    return pool_tokens(vectors_TD, pooling)


def _sentences_of(text: Sentence, language: str, prompt: str | None) -> list[Sentence]:
    if isinstance(text, str):
        return list(split_sentences((prompt or "") + text, language=language))
    if prompt:
        raise InputError(f"prompt {prompt!r} with a text given as tokens; give strings, or put its tokens in front")
    return [text]


def _check_device(wanted: Devices | None, own: torch.device) -> None:
    if wanted is not None and torch.device(str(wanted)).type != own.type:
        raise InputError(
            f"device {str(wanted)!r}, but this Embedder is on {str(own)!r}; load another with "
            f"Embedder.from_pretrained(device={str(wanted)!r})"
        )


def _progress(texts: list[list[Sentence]]) -> Iterator[list[Sentence]]:
    from rich.console import Console
    from rich.progress import track

    return iter(track(texts, description="embedding", console=Console(stderr=True)))
