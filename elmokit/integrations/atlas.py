"""Vectors of texts or of a word's occurrences as a parquet file for Embedding Atlas.

``embedding-atlas FILE --text text --vector vector`` opens it; ``--x projection_x --y projection_y`` uses the two
principal components that the file holds, and computes nothing.

Shapes: N rows, D width.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.atomic import atomic_file
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Pooling, Vectors, pick_layers
from elmokit.embed.sentences import Sentence
from elmokit.errors import InputError
from elmokit.extras import require


def export_texts(
    embedder: Embedder, texts: Sequence[str], path: str | Path, *, layer: Layer = "mean", pooling: Pooling = "mean"
) -> int:
    """Write one row per text: id, text, vector and two coordinates. Return the number of rows.

    Args:
        embedder: the model.
        texts: the texts.
        path: the parquet file to write.
        layer: a layer's number, or ``"mean"`` of all.
        pooling: ``"mean"`` or ``"max"`` over the tokens of a text.
    """
    vectors_ND = embedder.encode(texts, layer=layer, pooling=pooling)
    return _write(path, {"text": list(texts)}, vectors_ND)


def export_tokens(
    embedder: Embedder,
    sentences: Iterable[Sentence],
    path: str | Path,
    *,
    layer: Layer = -1,
    words: Iterable[str] | None = None,
) -> int:
    """Write one row per token: its sentence as text, token, sentence, position, vector. Return the number of rows.

    Args:
        embedder: the model.
        sentences: strings, which are tokenized, or lists of tokens.
        path: the parquet file to write.
        layer: a layer's number, or ``"mean"`` of all.
        words: only these words; all tokens if None.
    """
    wanted = None if words is None else set(words)
    columns: dict[str, list[Any]] = {"text": [], "token": [], "sentence": [], "position": []}
    vectors: list[Vectors] = []
    for number, one in enumerate(embedder.embed(sentences)):
        chosen = pick_layers(one.layers, layer)
        for position, token in enumerate(one.tokens):
            if wanted is None or token in wanted:
                row = (" ".join(one.tokens), token, number, position)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
                vectors.append(chosen[position])
    return _write(path, columns, np.array(vectors, dtype=np.float32).reshape(-1, embedder.width))


def _write(path: str | Path, columns: Mapping[str, list[Any]], vectors_ND: Vectors) -> int:
    arrow, parquet = require("pyarrow", extra="atlas"), require("pyarrow.parquet", extra="atlas")
    num_rows, width = len(vectors_ND), vectors_ND.shape[1]
    if not num_rows:
        raise InputError("no rows to export; give texts, or words that the sentences contain")
    flat = arrow.array(vectors_ND.reshape(-1))
    points_N2 = _project(vectors_ND)
    table = arrow.table(
        {
            "id": arrow.array(range(num_rows)),
            **{name: arrow.array(column) for name, column in columns.items()},
            "projection_x": arrow.array(points_N2[:, 0]),
            "projection_y": arrow.array(points_N2[:, 1]),
            "vector": arrow.FixedSizeListArray.from_arrays(flat, width),
        }
    )
    with atomic_file(path) as new:
        parquet.write_table(table, new)
    return num_rows


def _project(vectors_ND: Vectors) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return the first two principal components, each with its largest loading positive."""
    centered_ND = vectors_ND.astype(np.float64) - vectors_ND.mean(axis=0, dtype=np.float64)
    _, axes_DD = np.linalg.eigh(centered_ND.T @ centered_ND)
    axes_D2 = axes_DD[:, ::-1][:, :2]
    signs_2 = np.sign(axes_D2[np.abs(axes_D2).argmax(axis=0), [0, 1]])
    points_N2: np.ndarray[Any, np.dtype[np.float64]] = centered_ND @ (axes_D2 * signs_2)
    return points_N2
