"""Word vectors of ELMo as gensim's KeyedVectors.

Shapes: V words, T tokens, D width.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, check_layer, pick_layers
from elmokit.embed.sentences import Sentence
from elmokit.errors import InputError
from elmokit.extras import require


def keyed_vectors(embedder: Embedder, words: Iterable[str]) -> Any:
    """Return the token layer of words, which does not depend on contexts, as ``gensim.models.KeyedVectors``.

    Args:
        embedder: the model.
        words: distinct words in the order of the result; repeated ones count once.
    """
    distinct = list(dict.fromkeys(words))
    if not distinct:
        raise InputError("no words; give at least one")
    vectors_VD = [layers_LTD[0, 0] for layers_LTD in embedder.iter_layers([word] for word in distinct)]
    return _fill(embedder.width, distinct, np.stack(vectors_VD))


def mean_vectors(
    embedder: Embedder,
    sentences: Iterable[Sentence],
    *,
    layer: Layer = "mean",
    min_count: int = 1,
    words: Iterable[str] | None = None,
) -> Any:
    """Return the mean vector of each word over its contexts in a text, as ``gensim.models.KeyedVectors``.

    Args:
        embedder: the model.
        sentences: strings, which are tokenized, or lists of tokens; may be a generator.
        layer: a layer's number, or ``"mean"`` of all.
        min_count: leave out rarer words.
        words: only these words; all words of the text if None.
    """
    check_layer(layer, embedder.num_layers)
    wanted = None if words is None else set(words)
    sums: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
    counts: dict[str, int] = {}
    waiting: list[list[str]] = []

    def read() -> Iterable[list[str]]:
        for sentence in sentences:
            tokens = embedder.tokenize(sentence) if isinstance(sentence, str) else list(sentence)
            waiting.append(tokens)
            yield tokens

    for layers_LTD in embedder.iter_layers(read()):
        for token, vector_D in zip(waiting.pop(0), pick_layers(layers_LTD, layer), strict=True):
            if wanted is None or token in wanted:
                sums[token] = sums.get(token, 0) + vector_D.astype(np.float64)
                counts[token] = counts.get(token, 0) + 1
    kept = sorted((word for word in sums if counts[word] >= min_count), key=lambda word: -counts[word])
    if not kept:
        raise InputError(f"no word occurs {min_count} times or more; lower min_count, or give more text")
    vectors = _fill(embedder.width, kept, np.stack([sums[word] / counts[word] for word in kept]))
    for word in kept:
        vectors.set_vecattr(word, "count", counts[word])
    return vectors


def _fill(width: int, words: list[str], vectors_VD: "np.ndarray[Any, np.dtype[Any]]") -> Any:
    vectors = require("gensim.models", extra="gensim").KeyedVectors(width)
    vectors.add_vectors(words, vectors_VD.astype(np.float32))
    return vectors
