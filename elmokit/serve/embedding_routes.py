"""Routes that return vectors of texts and tokens: OpenAI's shape and text-embeddings-inference's.

Shapes: N texts, L layers, T tokens, D width.
"""

import base64
from collections.abc import Sequence
from functools import partial
from itertools import count, repeat
from typing import Any

import numpy as np
from fastapi import Request

from elmokit.embed.picking import Layer, Pooling, Vectors, check_layer, pick_layers, pool_tokens
from elmokit.serve.answers import OpenAIEmbeddingList, TokenSpan, Vector
from elmokit.serve.bodies import Embed, EmbedAll, OpenAIEmbeddings, Sentences, Similarity
from elmokit.serve.failures import RequestError, invalid
from elmokit.serve.routing import Route
from elmokit.serve.service import Service
from elmokit.serve.texts import (
    LocatedSentence,
    Text,
    Truncation,
    as_list,
    check_answer_size,
    check_number,
    locate_sentences,
    split_texts,
)


async def embed_texts(
    service: Service,
    texts: Sequence[Text],
    *,
    layer: Layer,
    pooling: Pooling,
    truncation: Truncation | None = None,
) -> tuple[Vectors, int]:
    """Return the vectors of texts, (N, D), as `Embedder.encode` computes them, and the number of their tokens."""
    embedder = service.models.embedder
    check_layer(layer, embedder.num_layers)
    split = await service.read_texts(split_texts, texts, truncation=truncation)
    items, sizes = [], []
    for sentences in split:
        reduce = partial(_pool, layer=layer, pooling=pooling) if len(sentences) == 1 else partial(_pick, layers=[layer])
        items += [(sentence, reduce) for sentence in sentences]
        sizes += [len(sentence) + 2 for sentence in sentences]
        service.metrics.input_length.observe(sum(map(len, sentences)))
    computed = iter(await service.queue.compute(service.models.run_layers, items, sizes))
    pooled_ND = np.empty((len(texts), embedder.width), dtype=np.float32)
    for row, sentences in enumerate(split):
        parts = [next(computed) for _ in sentences]
        is_pooled = len(parts) == 1
        pooled_ND[row] = parts[0] if is_pooled else pool_tokens(np.concatenate([p[0] for p in parts]), pooling)
    return pooled_ND, sum(len(sentence) for sentences in split for sentence in sentences)


def shorten(vectors_ND: Vectors, *, dimensions: int | None, normalize: bool) -> Vectors:
    """Return the first ``dimensions`` values of vectors, scaled to length 1 if ``normalize``."""
    if dimensions is not None and dimensions > vectors_ND.shape[1]:
        raise invalid(f"dimensions: {dimensions}; expected 1 to {vectors_ND.shape[1]}", param="dimensions")
    kept_ND: Vectors = np.ascontiguousarray(vectors_ND[:, :dimensions])
    if normalize:
        length_N1 = np.linalg.norm(kept_ND, axis=1, keepdims=True)
        kept_ND /= np.where(length_N1 > 0, length_N1, 1)
    return kept_ND


async def _openai_embeddings(service: Service, body: OpenAIEmbeddings, _: Request) -> Any:
    if body.model != service.models.name:
        message = f"model {body.model!r} is not served; this server has {service.models.name!r}"
        raise RequestError(404, "model_not_found", message, param="model")
    texts = as_list(body.input)
    check_number(texts, service.limits.max_openai_inputs)
    found_ND, num_tokens = await embed_texts(service, texts, layer=body.layer, pooling=body.pooling)
    vectors_ND = shorten(found_ND, dimensions=body.dimensions, normalize=True)
    encoded = list(vectors_ND) if body.encoding_format == "float" else list(map(encode_base64, vectors_ND))
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(encoded)],
        "model": service.models.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


async def _embed(service: Service, body: Embed, _: Request) -> Any:
    texts = as_list(body.inputs)
    check_number(texts, service.limits.max_inputs)
    truncation = Truncation((body.truncation_direction or "Right").lower() == "left") if body.truncate else None
    found_ND, _num_tokens = await embed_texts(
        service, texts, layer=body.layer, pooling=body.pooling, truncation=truncation
    )
    return shorten(found_ND, dimensions=body.dimensions, normalize=body.normalize is not False)


async def _embed_all(service: Service, body: EmbedAll, _: Request) -> Any:
    embedder = service.models.embedder
    if body.layers is not None and body.layer != "mean":
        raise invalid("layer and layers are given; choose one of them")
    chosen: list[Layer] = [body.layer] if body.layers is None else list(body.layers)
    for layer in chosen:
        check_layer(layer, embedder.num_layers)
    sentences = await read_sentences(service, body.inputs)
    check_answer_size(sum(len(one.tokens) for one in sentences), len(chosen) * embedder.width, service.limits)
    found = await compute_layers(service, sentences, chosen)
    return [layers_LTD[0] if body.layers is None else layers_LTD for layers_LTD in found]


async def _similarity(service: Service, body: Similarity, _: Request) -> Any:
    texts: list[Text] = [body.inputs.source_sentence, *body.inputs.sentences]
    check_number(body.inputs.sentences, service.limits.max_inputs)
    found_ND, _num_tokens = await embed_texts(service, texts, layer=body.layer, pooling=body.pooling)
    vectors_ND = shorten(found_ND, dimensions=None, normalize=True)
    return vectors_ND[1:] @ vectors_ND[0]


async def _tokenize(service: Service, body: Sentences, _: Request) -> Any:
    sentences = await read_sentences(service, body.inputs)
    return [list(map(_describe_token, count(), one.tokens, one.offsets or repeat((None, None)))) for one in sentences]


def _describe_token(position: int, token: str, offsets: tuple[int | None, int | None]) -> dict[str, Any]:
    return {"id": position, "text": token, "special": False, "start": offsets[0], "stop": offsets[1]}


async def read_sentences(service: Service, inputs: Text | Sequence[Text]) -> list[LocatedSentence]:
    """Return the inputs of a request as sentences, each with its tokens."""
    texts = as_list(inputs)
    check_number(texts, service.limits.max_inputs)
    sentences = await service.read_texts(locate_sentences, texts)
    for sentence in sentences:
        service.metrics.input_length.observe(len(sentence.tokens))
    return sentences


async def compute_layers(
    service: Service, sentences: Sequence[LocatedSentence], layers: Sequence[Layer]
) -> list[Vectors]:
    """Return the chosen layers of sentences, (len(layers), T, D) each."""
    reduce = partial(_pick, layers=layers)
    items = [(sentence.tokens, reduce) for sentence in sentences]
    return await service.queue.compute(
        service.models.run_layers, items, [len(sentence.tokens) + 2 for sentence in sentences]
    )


def encode_base64(array: np.ndarray[Any, Any]) -> str:
    """Return the little-endian bytes of an array as base64."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(np.ascontiguousarray(little).tobytes()).decode()


def _pool(layers_LTD: Vectors, *, layer: Layer, pooling: Pooling) -> Vectors:
    return pool_tokens(pick_layers(layers_LTD, layer), pooling)


def _pick(layers_LTD: Vectors, *, layers: Sequence[Layer]) -> Vectors:
    picked: Vectors = np.stack([pick_layers(layers_LTD, layer) for layer in layers])
    return picked


def _vectors_to_text(vectors_ND: Vectors) -> str:
    return "".join(" ".join(f"{value:.6g}" for value in vector_D) + "\n" for vector_D in vectors_ND)


def _tokens_to_text(sentences: list[list[dict[str, Any]]]) -> str:
    return "".join(" ".join(token["text"] for token in tokens) + "\n" for tokens in sentences)


ROUTES = (
    Route(
        "/v1/embeddings",
        OpenAIEmbeddings,
        OpenAIEmbeddingList,
        _openai_embeddings,
        "Return one vector of length 1 per text.",
        not_found="The model is not served.",
    ),
    Route("/embed", Embed, list[Vector], _embed, "Return one vector per text.", _vectors_to_text),
    Route(
        "/embed_all",
        EmbedAll,
        list[list[Vector]] | list[list[list[Vector]]],
        _embed_all,
        "Return one vector per token, or one per layer and token.",
    ),
    Route("/similarity", Similarity, Vector, _similarity, "Return the cosines of a text with others."),
    Route("/tokenize", Sentences, list[list[TokenSpan]], _tokenize, "Return the tokens of texts.", _tokens_to_text),
)
