"""Search over a text whose vectors were computed once (`elmokit.analysis.index_building`).

Similarity is the cosine of one layer's vectors, over every token: no approximation but the rounding to float16.

Shapes: N tokens, S sentences, V distinct words, R chosen rows, D width.
"""

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.analysis.index_files import (
    LENGTHS,
    LINES,
    OFFSETS,
    TOKEN_IDS,
    WORDS,
    IndexInfo,
    damaged,
    map_numbers,
    read_info,
    read_words,
    vectors_file,
)
from elmokit.analysis.neighbors import DIGITS, TOP, Neighbor, Neighborhood
from elmokit.analysis.occurrences import Occurrence, to_unit_length, unit_vectors
from elmokit.analysis.senses import MOST_OCCURRENCES, SenseMap, Senses, draw_map, find_senses
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Vectors, check_layer
from elmokit.errors import InputError
from elmokit.kernels import library
from elmokit.kernels.half import multiply_rows

TINY = np.float32(1e-30)  # zeros have no direction: their cosine is 0
ROWS_AT_ONCE = 4096  # as float32 they stay in a core's cache
FLOAT32_ERROR = 4e-6  # of a cosine; tokens so close to the k-th one are compared in the order of the rounded cosines

Rows = NDArray[np.int64]


class CorpusIndex:
    """The vectors of every token of a text, memory-mapped.

    `open` loads one; `elmokit.analysis.index_building.build_index` or ``elmokit index`` makes one. It holds each
    distinct sentence once, at its first line. Several threads can search at the same time.

    Args:
        folder: the folder of the index.
        info: its settings and sizes.
    """

    def __init__(self, folder: Path, info: IndexInfo) -> None:
        self.folder, self.info = folder, info
        num_tokens, shape = info.num_tokens, (info.num_sentences,)
        self.words = read_words(folder / WORDS)
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) != info.num_words:
            raise InputError(f"{folder}: {len(self._ids):,} words, expected {info.num_words:,}; build the index again")
        self._word_ids_N = map_numbers(folder / TOKEN_IDS, "<i4", (num_tokens,))
        self._ends_S = np.array(map_numbers(folder / OFFSETS, "<i8", shape))
        self._lines_S = np.array(map_numbers(folder / LINES, "<i8", shape))
        self._check_places()
        lengths_NL = map_numbers(folder / LENGTHS, "<f4", (num_tokens, info.num_layers))
        self._lengths_LN = np.ascontiguousarray(lengths_NL.T)
        self._words_VD = map_numbers(folder / vectors_file(0), "<f2", (info.num_words, info.width))
        self._layers = [
            map_numbers(folder / vectors_file(layer), "<f2", (num_tokens, info.width))
            for layer in range(1, info.num_layers)
        ]

    def _check_places(self) -> None:
        """Reject sentences and words that are not in the index."""
        sizes_S = np.diff(self._ends_S, prepend=0)
        if (sizes_S < 1).any() or self._ends_S[-1:].sum() != self.info.num_tokens:
            raise damaged(self.folder, "the sentences do not cover the tokens")
        ids_N = self._word_ids_N
        if ids_N.size and not 0 <= ids_N.min() <= ids_N.max() < self.info.num_words:
            raise damaged(self.folder, "a token has a word that is not there")

    @classmethod
    def open(cls, path: str | Path) -> "CorpusIndex":
        """Open an index.

        Args:
            path: the folder that `build_index` or ``elmokit index`` wrote.
        """
        folder = Path(path)
        return cls(folder, read_info(folder))

    def __len__(self) -> int:
        return self.info.num_tokens

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __repr__(self) -> str:
        return f"CorpusIndex({str(self.folder)!r}, tokens={self.info.num_tokens:,}, model={self.info.model!r})"

    def check_embedder(self, embedder: Embedder) -> None:
        """Reject an embedder whose vectors are not comparable with the index's."""
        found = embedder.fingerprint()
        if found != self.info.fingerprint:
            raise InputError(
                f"{embedder.name or 'the model'} (state {embedder.state!r}) has fingerprint {found[:12]}…, but "
                f"{self.folder} was built with {self.info.fingerprint[:12]}… ({self.info.model or 'in memory'}, state "
                f"{self.info.state!r}); load that model, or build the index again"
            )

    def count(self, word: str) -> int:
        """Return the number of occurrences of a word in distinct sentences."""
        return 0 if word not in self._ids else int(np.count_nonzero(self._word_ids_N == self._ids[word]))

    def occurrences(self, word: str, *, most: int | None = None) -> list[Occurrence]:
        """Return the occurrences of a word in the order of the text, the first ``most`` or all."""
        return [self.occurrence(row) for row in self._rows_of(word)[:most]]

    def occurrence(self, row: int) -> Occurrence:
        """Return the token of a row, counted from 0 over the tokens of all distinct sentences."""
        sentence = int(np.searchsorted(self._ends_S, row, side="right"))
        start = self._start(sentence)
        return Occurrence(self._tokens(sentence), int(row) - start, int(self._lines_S[sentence]))

    def vectors(self, occurrences: Sequence[Occurrence], *, layer: Layer = TOP) -> Vectors:
        """Return the vectors of occurrences of this index, scaled to length 1, (len(occurrences), D).

        Args:
            occurrences: as `occurrences` returns them.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        """
        return to_unit_length(self.raw_vectors(occurrences, layer=layer))

    def raw_vectors(self, occurrences: Sequence[Occurrence], *, layer: Layer = TOP) -> Vectors:
        """Return the vectors of occurrences of this index at their own lengths, (len(occurrences), D).

        Args:
            occurrences: as `occurrences` returns them.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        """
        rows = np.array([self._row(one.sentence, one.position) for one in occurrences], dtype=np.int64)
        return self._read(rows, layer)

    def neighbors(
        self,
        query: Vectors | tuple[int, int],
        *,
        layer: Layer = TOP,
        k: int = 10,
        word: str | None = None,
        without: Sequence[str] | None = None,
    ) -> tuple[Neighbor, ...]:
        """Return the ``k`` tokens nearest to a query, the nearest first; of equally near ones the earlier first.

        Args:
            query: a vector (D,), or a line and a position in it. The query's own sentence is left out.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
            k: number of neighbors.
            word: search only the occurrences of this word.
            without: tokens of a sentence to leave out, for a query vector that comes from it.
        """
        check_layer(layer, self.info.num_layers)
        if k < 1:
            raise InputError(f"k {k}; expected 1 or more")
        if isinstance(query, tuple):
            row = self._row(*query)
            own, vector_D = self.occurrence(row).tokens, self._read(np.array([row]), layer)[0]
        else:
            own, vector_D = tuple(without or ()), np.asarray(query, dtype=np.float32)
            if vector_D.shape != (self.info.width,):
                raise InputError(f"a query of shape {vector_D.shape}; expected ({self.info.width},)")
        rows = None if word is None else self._rows_of(word)
        cosines = self._cosines(to_unit_length(vector_D[None])[0], layer, rows)
        self._leave_out(cosines, own, rows)
        return tuple(
            Neighbor(similarity, self.occurrence(place if rows is None else rows[place]))
            for similarity, place in _largest(cosines, k)
        )

    def senses(self, word: str, *, layer: Layer = TOP, num_clusters: int | None = None) -> Senses:
        """Cluster the occurrences of a word; of more than 1,000, evenly spaced ones.

        Args:
            word: a word of the text.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
            num_clusters: number of clusters; None chooses 1 to 6 by the silhouette.
        """
        check_layer(layer, self.info.num_layers)
        occurrences = self._spread(word, MOST_OCCURRENCES)
        return find_senses(
            word,
            occurrences,
            self.vectors(occurrences, layer=layer),
            layer=layer if layer == "mean" else layer % self.info.num_layers,
            num_clusters=num_clusters,
            num_occurrences=self.count(word),
        )

    def sense_map(self, word: str, *, most: int = 500) -> SenseMap:
        """Return a map of a word's occurrences in two dimensions per layer, aligned from layer to layer.

        Args:
            word: a word of the text.
            most: number of occurrences; of more, evenly spaced ones are taken.
        """
        occurrences = self._spread(word, most)
        layers = [self.vectors(occurrences, layer=number) for number in range(self.info.num_layers)]
        return draw_map(word, occurrences, layers)

    def _spread(self, word: str, most: int) -> list[Occurrence]:
        rows = self._rows_of(word)
        num = min(most, len(rows))
        return [self.occurrence(rows[len(rows) * place // num]) for place in range(num)]

    def _cosines(self, vector_D: Vectors, layer: Layer, rows: Rows | None) -> Vectors:
        """Return the cosine of a vector of length 1 with every row, (N,), or with the chosen ones, (R,)."""
        products: Vectors
        lengths: Vectors
        if layer == "mean":
            each = [self._products(vector_D, number, rows) for number in range(self.info.num_layers)]
            products = np.mean(each, axis=0, dtype=np.float32)
            lengths = self._lengths_LN[-1]
        else:
            number = layer % self.info.num_layers
            products = self._products(vector_D, number, rows)
            lengths = self._lengths_LN[number - 1] if number else self._word_lengths[self._word_ids_N]
        lengths = lengths if rows is None else lengths[rows]
        cosines: Vectors = np.divide(products, np.maximum(lengths, TINY), dtype=np.float32)
        return cosines

    def _products(self, vector_D: Vectors, number: int, rows: Rows | None) -> Vectors:
        """Return the products of a vector with a layer's rows."""
        ids = self._word_ids_N if rows is None else self._word_ids_N[rows]
        if number == 0:
            products: Vectors = _multiply(self._words_VD, vector_D)[ids]
            return products
        layer_ND = self._layers[number - 1]
        return _multiply(layer_ND if rows is None else layer_ND[rows], vector_D)

    @cached_property
    def _word_lengths(self) -> Vectors:
        lengths: Vectors = np.linalg.norm(self._words_VD.astype(np.float32), axis=1)
        return lengths

    def _leave_out(self, cosines: Vectors, tokens: tuple[str, ...], rows: Rows | None) -> None:
        """Remove the tokens of a sentence from the candidates, if the index has it."""
        sentence = self._find(tokens)
        if sentence is None:
            return
        start, end = self._start(sentence), self._ends_S[sentence]
        if rows is None:
            cosines[start:end] = -np.inf
        else:
            cosines[(rows >= start) & (rows < end)] = -np.inf

    def _find(self, tokens: tuple[str, ...]) -> int | None:
        """Return the number of the sentence with these tokens."""
        ids = [self._ids.get(token) for token in tokens]
        if not ids or None in ids:
            return None
        rarest = self._rows_of(max(tokens, key=lambda token: self._ids[token]))  # of later words there are fewer
        for sentence in np.unique(np.searchsorted(self._ends_S, rarest, side="right")):
            start, end = self._start(sentence), self._ends_S[sentence]
            if end - start == len(ids) and self._word_ids_N[start:end].tolist() == ids:
                return int(sentence)
        return None

    def _read(self, rows: Rows, layer: Layer) -> Vectors:
        """Return the vectors of rows as float32, (R, D)."""
        check_layer(layer, self.info.num_layers)
        if layer == "mean":
            numbers = range(self.info.num_layers)
            total: Vectors = np.mean([self._read(rows, number) for number in numbers], axis=0, dtype=np.float32)
            return total
        number = layer % self.info.num_layers
        stored = self._layers[number - 1][rows] if number else self._words_VD[self._word_ids_N[rows]]
        found: Vectors = stored.astype(np.float32)
        return found

    def _rows_of(self, word: str) -> Rows:
        if word not in self._ids:
            raise InputError(f"{word!r} is not a token of the text; check its spelling, and upper and lower case")
        rows: Rows = np.flatnonzero(self._word_ids_N == self._ids[word])
        return rows

    def _row(self, line: int | None, position: int) -> int:
        place = -1 if line is None else int(np.searchsorted(self._lines_S, line))
        if not (0 <= place < len(self._lines_S)) or self._lines_S[place] != line:
            raise InputError(
                f"line {line} is not in the index: it has no tokens, repeats an earlier line, or is no line"
            )
        start, end = self._start(place), int(self._ends_S[place])
        if not 0 <= position < end - start:
            raise InputError(f"position {position} of line {line}; it has {end - start} tokens, counted from 0")
        return start + position

    def _start(self, sentence: int) -> int:
        return int(self._ends_S[sentence - 1]) if sentence else 0

    def _tokens(self, sentence: int) -> tuple[str, ...]:
        return tuple(self.words[i] for i in self._word_ids_N[self._start(sentence) : self._ends_S[sentence]])


def find_in_index(
    index: CorpusIndex,
    queries: Sequence[Occurrence],
    *,
    embedder: Embedder | None = None,
    k: int = 10,
    layer: Layer = TOP,
    same_word: bool = False,
) -> list[Neighborhood]:
    """Return the ``k`` tokens nearest to each query, as `elmokit.analysis.neighbors.find_neighbors` does for a text.

    Args:
        index: the index to search.
        queries: occurrences of the index, or of sentences from elsewhere, which ``embedder`` embeds.
        embedder: the model that the index was built with; needed for sentences from elsewhere.
        k: number of neighbors per query.
        layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        same_word: only search occurrences of the query's own word.
    """
    found = []
    for query in queries:
        word = query.token if same_word else None
        if query.sentence is not None:
            near = index.neighbors((query.sentence, query.position), layer=layer, k=k, word=word)
        elif embedder is None:
            raise InputError(f"{' '.join(query.tokens)!r} is not a sentence of the index; give the model to embed it")
        elif same_word and query.token not in index:
            near = ()
        else:
            [vector_D] = unit_vectors(embedder, [query], layer=layer)
            near = index.neighbors(vector_D, layer=layer, k=k, word=word, without=query.tokens)
        found.append(Neighborhood(query, near))
    return found


def _multiply(rows_ND: NDArray[Any], vector_D: Vectors) -> Vectors:
    """Return the products of float16 rows with a vector, in float32."""
    rows, vector = _as_tensor(rows_ND), torch.from_numpy(np.ascontiguousarray(vector_D))
    kernels = library.load()
    if kernels is not None:
        compiled: Vectors = multiply_rows(kernels, rows, vector).numpy()
        return compiled
    products = torch.empty(len(rows))
    block = torch.empty(min(ROWS_AT_ONCE, len(rows)), len(vector))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        torch.mv(block[: len(part)].copy_(part), vector, out=products[start : start + len(part)])
    found: Vectors = products.numpy()
    return found


def _as_tensor(rows_ND: NDArray[Any]) -> torch.Tensor:
    with warnings.catch_warnings():
        # Torch has no tensors that cannot be written to. Nobody writes to this one.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(rows_ND)


def _largest(cosines: Vectors, k: int) -> list[tuple[float, int]]:
    """Return the ``k`` largest finite cosines, rounded, with their places; equals in the order of their places."""
    k = min(k, len(cosines))
    if not k:
        return []
    least = np.partition(cosines, len(cosines) - k)[-k]
    places = np.flatnonzero((cosines >= least - FLOAT32_ERROR) & np.isfinite(cosines))
    rounded = cosines[places].astype(np.float64).round(DIGITS)
    order = np.argsort(-rounded, kind="stable")[:k]
    return [(float(rounded[one]), int(places[one])) for one in order]
