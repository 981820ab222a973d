"""The app: routes, documentation, page and gate around loaded models."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from elmokit import __version__
from elmokit.analysis.index import CorpusIndex
from elmokit.serve import corpus_routes, embedding_routes, model_routes
from elmokit.serve.answers import Info, OpenAIModelList
from elmokit.serve.batching import BatchingQueue
from elmokit.serve.bodies import OpenAIEmbeddings
from elmokit.serve.failures import RequestError, answer_failure
from elmokit.serve.gate import Gate
from elmokit.serve.limits import Limits
from elmokit.serve.loaded import Models
from elmokit.serve.metrics import Metrics
from elmokit.serve.page_files import add_page
from elmokit.serve.routing import JSON, Route, add_routes, encode_json
from elmokit.serve.service import Service
from elmokit.tasks.inputs import mix_weights
from elmokit.tasks.names import TASKS

METRICS_TYPE = "text/plain; version=0.0.4"
DESCRIPTION = "Contextual word vectors from every layer of a biLM, and what the biLM knows about a text."
ROUTES: tuple[Route, ...] = (*embedding_routes.ROUTES, *model_routes.ROUTES, *corpus_routes.ROUTES)


def make_app(
    models: Models,
    *,
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
    log_texts: bool = False,
) -> Gate:
    """Return the ASGI app of a server.

    Args:
        models: the loaded models.
        limits: the limits; the defaults if None.
        api_keys: keys that clients must send; none is needed if there are none.
        cors_origins: origins of other sites whose pages may call the API.
        log_texts: log the bodies of requests, which hold the texts.
    """
    limits, metrics = limits or Limits(), Metrics()
    queue = BatchingQueue(batch_tokens=limits.batch_tokens, metrics=metrics)
    service = Service(models, limits, queue, metrics)
    app = FastAPI(
        title="elmokit",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # both pages would load scripts from the network
        redoc_url=None,
        lifespan=lambda _: _run_queue(queue),
    )
    add_routes(app, service, ROUTES)
    _add_information(app, service)
    add_page(app)
    _add_error_answers(app)
    app.openapi = lambda: _document(app, models)  # type: ignore[method-assign]
    if cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(cors_origins), allow_methods=["*"], allow_headers=["*"])
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    return Gate(app, limits=limits, metrics=metrics, api_keys=api_keys, paths=paths, log_texts=log_texts)


@asynccontextmanager
async def _run_queue(queue: BatchingQueue) -> AsyncIterator[None]:
    queue.start()
    yield
    queue.close()


def _add_information(app: FastAPI, service: Service) -> None:
    started = int(time.time())
    models = service.models

    @app.get("/health", summary="Return 200 while the server answers.", response_class=Response)
    async def health() -> Response:
        return Response()

    @app.get("/metrics", summary="Return metrics for Prometheus.", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type=METRICS_TYPE)

    @app.get("/info", summary="Return the model and the limits of the server.", response_model=Info)
    async def info() -> Response:
        return Response(encode_json(describe(service)), media_type=JSON)

    @app.get("/v1/models", summary="List the served model.", response_model=OpenAIModelList)
    async def list_models() -> Response:
        model = {"id": models.name, "object": "model", "created": started, "owned_by": "elmokit"}
        return Response(encode_json({"object": "list", "data": [model]}), media_type=JSON)


def describe(service: Service) -> dict[str, Any]:
    """Return model and limits as ``/info`` answers."""
    models, limits = service.models, service.limits
    embedder = models.embedder
    return {
        "model_id": models.name,
        "model_type": {"embedding": {"pooling": "mean"}},
        "max_concurrent_requests": limits.max_requests,
        "max_input_length": limits.max_tokens,
        "max_batch_tokens": limits.batch_tokens,
        "max_client_batch_size": limits.max_inputs,
        "version": __version__,
        "num_layers": embedder.num_layers,
        "width": embedder.width,
        "state": embedder.state,
        "precision": embedder.precision,
        "language": embedder.language,
        "can_score": models.scorer is not None,
        "tasks": [
            {
                "name": name,
                "task": model.task.name,
                "reads": TASKS[model.task.name].line if model.task.name in TASKS else "",
                "mixes": [
                    {"place": place, "weights": mix.weights, "gamma": mix.gamma}
                    for place, mix in mix_weights(model.module).items()
                ],
            }
            for name, model in models.tasks.items()
        ],
        "corpus": None if models.index is None else _describe_corpus(models.index),
    }


def _describe_corpus(index: CorpusIndex) -> dict[str, int]:
    info = index.info
    return {"num_sentences": info.num_sentences, "num_tokens": info.num_tokens, "num_words": info.num_words}


def _add_error_answers(app: FastAPI) -> None:
    """Answer unknown paths and methods in the shape of all other errors."""

    @app.exception_handler(HTTPException)
    async def answer(request: Request, error: HTTPException) -> Response:
        kind = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "validation")
        failure = RequestError(error.status_code, kind, f"{request.method} {request.url.path}: {error.detail}")
        failure.headers.update(error.headers or {})
        return answer_failure(failure, request.url.path)


def _document(app: FastAPI, models: Models) -> dict[str, Any]:
    """Return the OpenAPI document with the bodies of all routes and the names of the loaded models."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
        bodies = [(route.body, "validation") for route in ROUTES]
        _, definitions = models_json_schema(bodies, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        document["components"]["schemas"].update(definitions["$defs"])
        definitions["$defs"][OpenAIEmbeddings.__name__]["properties"]["model"]["enum"] = [models.name]
        if models.tasks:
            [name] = document["paths"]["/tasks/{name}"]["post"]["parameters"]
            name["schema"]["enum"] = list(models.tasks)
        app.openapi_schema = document
    return app.openapi_schema
