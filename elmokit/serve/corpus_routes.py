"""Routes about the occurrences of a word, in the loaded corpus or in given sentences: senses and neighbors.

Shapes: N occurrences, L layers, D width.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from fastapi import Request

from elmokit.analysis.index import CorpusIndex
from elmokit.analysis.occurrences import Occurrence, to_unit_length
from elmokit.analysis.senses import draw_map, spread
from elmokit.embed.picking import Layers, Vectors, check_layer, check_layers, pick_layers
from elmokit.serve.answers import Neighborhood, SenseMap
from elmokit.serve.bodies import MOST_OCCURRENCES, Neighbors, Senses
from elmokit.serve.failures import RequestError, invalid
from elmokit.serve.routing import Route
from elmokit.serve.service import Service
from elmokit.serve.texts import locate_sentences

NUM_NEAREST = 8
DIGITS = 6


@dataclass(frozen=True, eq=False)
class _Found:
    """Occurrences of a word with all their layers."""

    occurrences: list[Occurrence]
    layers_LND: Vectors
    num_in_text: int


async def _senses(service: Service, body: Senses, _: Request) -> Any:
    found = await _find(service, body.word, body.sentences, most=body.most)
    return await asyncio.to_thread(_draw, body.word, found)


async def _neighbors(service: Service, body: Neighbors, _: Request) -> Any:
    embedder = service.models.embedder
    if body.weights is not None:
        check_layers(tuple(body.weights), embedder.num_layers)
    else:
        check_layer(body.layer, embedder.num_layers)
    index = service.models.index
    found = await _find(service, body.word, body.sentences, most=MOST_OCCURRENCES)
    if body.occurrence >= len(found.occurrences):
        raise invalid(f"occurrence: {body.occurrence}; expected 0 to {len(found.occurrences) - 1}")
    query = found.occurrences[body.occurrence]
    if body.same_word:
        layers: Layers = body.layer if body.weights is None else tuple(body.weights)
        near = _nearest_of(found, body.occurrence, layers, body.k)
    elif body.sentences is not None or body.weights is not None or index is None:
        raise invalid("same_word: false searches all words of the loaded corpus; leave out sentences and weights")
    else:
        assert query.sentence is not None
        nearest = await asyncio.to_thread(index.neighbors, (query.sentence, query.position), layer=body.layer, k=body.k)
        near = [(one.similarity, one.occurrence) for one in nearest]
    return {
        "word": body.word,
        "occurrences": list(map(_describe, found.occurrences)),
        "query": _describe(query),
        "neighbors": [{**_describe(one), "similarity": similarity} for similarity, one in near],
    }


async def _find(service: Service, word: str, sentences: list[str] | None, *, most: int) -> _Found:
    if sentences is not None:
        return await _find_in_sentences(service, word, sentences, most=most)
    if service.models.index is None:
        raise RequestError(
            404, "not_found", "no corpus is loaded; send sentences, or start the server with --corpus or --index"
        )
    return await asyncio.to_thread(_find_in_index, service.models.index, word, most)


def _find_in_index(index: CorpusIndex, word: str, most: int) -> _Found:
    in_text = index.occurrences(word)
    chosen = spread(in_text, most)
    layers = [index.raw_vectors(chosen, layer=number) for number in range(index.info.num_layers)]
    return _Found(chosen, np.stack(layers), len(in_text))


async def _find_in_sentences(service: Service, word: str, sentences: list[str], *, most: int) -> _Found:
    given = [sentence for sentence in sentences if sentence.strip()]
    located = await service.read_texts(locate_sentences, given)
    in_text = [
        Occurrence(sentence.tokens, position, line)
        for line, sentence in enumerate(located)
        for position, token in enumerate(sentence.tokens)
        if token == word
    ]
    if not in_text:
        raise invalid(f"word: {word!r} is not a token of the sentences; check its spelling, and upper and lower case")
    chosen = spread(in_text, most)
    items = [(one.tokens, partial(_vectors_at, position=one.position)) for one in chosen]
    vectors = await service.queue.compute(service.models.run_layers, items, [len(one.tokens) + 2 for one in chosen])
    return _Found(chosen, np.stack(vectors, axis=1), len(in_text))


def _vectors_at(layers_LTD: Vectors, *, position: int) -> Vectors:
    vectors_LD: Vectors = layers_LTD[:, position].copy()
    return vectors_LD


def _draw(word: str, found: _Found) -> dict[str, Any]:
    drawn = draw_map(word, found.occurrences, list(found.layers_LND))
    return {
        "word": word,
        "num_occurrences": found.num_in_text,
        "occurrences": list(map(_describe, found.occurrences)),
        "layers": [
            {
                "layer": one.layer,
                "points": one.points_N2.round(DIGITS).tolist(),
                "labels": one.labels_N.tolist(),
                "explained": one.explained,
                "nearest": _nearest_pairs(found.layers_LND[one.layer]),
            }
            for one in drawn.layers
        ],
    }


def _nearest_pairs(vectors_ND: Vectors) -> list[list[tuple[int, float]]]:
    """Return the nearest other occurrences of each, with their cosines."""
    unit_ND = to_unit_length(vectors_ND)
    cosines_NN = (unit_ND @ unit_ND.T).astype(np.float64).round(DIGITS)
    np.fill_diagonal(cosines_NN, -np.inf)
    order_NN = np.argsort(-cosines_NN, axis=1, kind="stable")[:, : min(NUM_NEAREST, len(unit_ND) - 1)]
    return [[(int(other), float(cosines_NN[row, other])) for other in order_N] for row, order_N in enumerate(order_NN)]


def _nearest_of(found: _Found, query: int, layers: Layers, k: int) -> list[tuple[float, Occurrence]]:
    """Return the occurrences nearest to one of them, those of its own sentence left out."""
    unit_ND = to_unit_length(pick_layers(found.layers_LND, layers))
    cosines_N = (unit_ND @ unit_ND[query]).astype(np.float64).round(DIGITS)
    own = found.occurrences[query].tokens
    order = [int(row) for row in np.argsort(-cosines_N, kind="stable") if found.occurrences[row].tokens != own]
    return [(float(cosines_N[row]), found.occurrences[row]) for row in order[:k]]


def _describe(occurrence: Occurrence) -> dict[str, Any]:
    return {"tokens": occurrence.tokens, "position": occurrence.position, "line": occurrence.sentence}


NO_CORPUS = "No corpus is loaded."
ROUTES = (
    Route("/senses", Senses, SenseMap, _senses, "Map the occurrences of a word per layer.", not_found=NO_CORPUS),
    Route(
        "/neighbors",
        Neighbors,
        Neighborhood,
        _neighbors,
        "Return the contexts nearest to an occurrence of a word.",
        not_found=NO_CORPUS,
    ),
)
