"""Find the tokens of a text that are nearest to a word in its context (Peters et al. 2018, Table 4).

Similarity is the cosine of one layer's vectors. The text is streamed: only the nearest tokens so far stay in memory.

Shapes: Q queries, P candidate positions of a sentence, L layers, T tokens, D width, V words.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.analysis.occurrences import (
    Occurrence,
    Place,
    as_tokens,
    find_in_contexts,
    may_hold,
    to_unit_length,
    unit_vectors,
)
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Vectors, pick_layers
from elmokit.embed.sentences import Sentence
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError

TOP = -1
DIGITS = 6
"""Decimals of a cosine that float32 can distinguish. Cosines that agree so far are a tie."""


@dataclass(frozen=True)
class Neighbor:
    """A token of the text and the cosine of its vector with the query's."""

    similarity: float
    occurrence: Occurrence


@dataclass(frozen=True)
class Neighborhood:
    """A query and its nearest tokens, the nearest first."""

    query: Occurrence
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class StaticNeighbor:
    """A word and the cosine of its static vector with another word's."""

    similarity: float
    word: str


@dataclass(frozen=True, eq=False)
class _Embedded:
    """A sentence's candidate positions and their vectors, scaled to length 1."""

    number: int
    tokens: tuple[str, ...]
    positions: list[int]
    vectors_PD: Vectors


def find_neighbors(
    embedder: Embedder,
    sentences: Iterable[Sentence],
    queries: Sequence[Occurrence],
    *,
    k: int = 10,
    layer: Layer = TOP,
    same_word: bool = False,
    progress: Callable[[int, int], None] = lambda _sentences, _tokens: None,
) -> list[Neighborhood]:
    """Return the ``k`` tokens of a text nearest to each query: any tokens, or with ``same_word`` the query's own word.

    A query's own sentence is left out, wherever the text has it. Of equal sentences the first counts, and of equally
    near tokens the earlier comes first. ``progress`` is called with the numbers of sentences read and of tokens
    embedded.
    """
    if k < 1:
        raise InputError(f"k {k}; expected 1 or more")
    if not queries:
        raise InputError("no queries; expected one or more, as find_occurrences or find_in_contexts return them")
    if embedder.state == "carry":
        raise InputError("state is 'carry', under which a vector depends on its batch; search with 'reset' or 'warm'")
    queries_QD = unit_vectors(embedder, queries, layer=layer)
    nearest = [_Nearest(query, k) for query in queries]
    words = {query.token for query in queries} if same_word else None
    for sentence in _embed(embedder, sentences, words, layer, progress):
        similarities_PQ = sentence.vectors_PD @ queries_QD.T
        for column, one in enumerate(nearest):
            if sentence.tokens == one.query.tokens:  # its words share the query's context, and would crowd out others
                continue
            for row in np.flatnonzero(similarities_PQ[:, column] > one.least):
                occurrence = Occurrence(sentence.tokens, sentence.positions[row], sentence.number)
                if not same_word or occurrence.token == one.query.token:
                    one.offer(Neighbor(round(float(similarities_PQ[row, column]), DIGITS), occurrence))
    return [Neighborhood(one.query, one.sorted()) for one in nearest]


def find_static_neighbors(vectors: StaticVectors, word: str, *, k: int = 10) -> tuple[StaticNeighbor, ...]:
    """Return the ``k`` words whose static vectors are nearest to a word's."""
    row = int(vectors.rows([word], lower="fallback")[0])
    if not row:
        raise InputError(f"{word!r} has no static vector; choose another word, or omit the static vectors")
    matrix_VD = vectors.matrix(unit_length=True)
    similarities_V = (matrix_VD @ matrix_VD[row]).round(DIGITS)
    similarities_V[[0, row]] = -np.inf  # row 0 is no word
    order = np.argsort(-similarities_V, kind="stable")[: min(k, len(vectors) - 1)]
    return tuple(
        StaticNeighbor(round(float(similarities_V[found]), DIGITS), vectors.words[found - 1]) for found in order
    )


def sense_similarity(embedder: Embedder, word: str, first: Sentence, second: Sentence) -> tuple[float, ...]:
    """Return the cosine of a word in one sentence with the same word in another, at every layer.

    In the token layer, which has no context, it is 1. The first occurrence in each sentence counts.
    """
    pair = [find_in_contexts(embedder, [sentence], word)[0] for sentence in (first, second)]
    layers = embedder.embed_layers([occurrence.tokens for occurrence in pair])
    vectors_LD = [to_unit_length(layers_LTD[:, one.position]) for one, layers_LTD in zip(pair, layers, strict=True)]
    return tuple(float(cosine) for cosine in np.einsum("ld,ld->l", *vectors_LD))


def _embed(
    embedder: Embedder,
    sentences: Iterable[Sentence],
    words: set[str] | None,
    layer: Layer,
    progress: Callable[[int, int], None],
) -> Iterator[_Embedded]:
    """Yield the sentences that contain one of the words, in the text's order; None makes every token a candidate."""
    waiting: deque[tuple[int, tuple[str, ...], list[int]]] = deque()  # no more than the embedder reads ahead
    num_read = num_tokens = 0

    def read() -> Iterator[Sequence[str]]:
        nonlocal num_read
        for number, sentence in enumerate(sentences):
            num_read = number + 1
            progress(num_read, num_tokens)
            if words is not None and not may_hold(sentence, words):
                continue
            tokens = as_tokens(embedder, sentence)
            positions = [index for index, token in enumerate(tokens) if words is None or token in words]
            if positions:
                waiting.append((number, tokens, positions))
                yield tokens

    for layers_LTD in embedder.iter_layers(read()):
        number, tokens, positions = waiting.popleft()
        num_tokens += len(tokens)
        progress(num_read, num_tokens)
        yield _Embedded(number, tokens, positions, to_unit_length(pick_layers(layers_LTD[:, positions], layer)))


class _Nearest:
    """The nearest tokens so far for one query."""

    def __init__(self, query: Occurrence, k: int) -> None:
        self.query = query
        self._k = k
        self._heap: list[tuple[float, int, Neighbor]] = []  # the least similar first, the last of equals
        self._places: set[Place] = set()
        self._num_offered = 0

    @property
    def least(self) -> float:
        """Similarity that a token must exceed to enter; among equals the first stays."""
        return self._heap[0][0] if len(self._heap) == self._k else -np.inf

    def offer(self, neighbor: Neighbor) -> None:
        """Add a token if it is near enough and its place is new."""
        place = neighbor.occurrence.place
        if neighbor.similarity <= self.least or place in self._places:
            return
        self._num_offered += 1
        entry = (neighbor.similarity, -self._num_offered, neighbor)
        self._places.add(place)
        if len(self._heap) < self._k:
            heapq.heappush(self._heap, entry)
        else:
            # A copy of a dropped token cannot return: it is no nearer than the tokens that stayed.
            self._places.discard(heapq.heappushpop(self._heap, entry)[2].occurrence.place)

    def sorted(self) -> tuple[Neighbor, ...]:
        """Return the nearest tokens, the most similar first."""
        return tuple(neighbor for _, _, neighbor in sorted(self._heap, reverse=True))
