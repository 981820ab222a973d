"""Routes as a table: body, answer and handler. JSON goes in and out, or plain text where a route reads it."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError

from elmokit.errors import InputError
from elmokit.serve.failures import (
    OPENAI_PREFIX,
    Error,
    OpenAIError,
    RequestError,
    answer_failure,
    from_input_error,
    from_validation,
    invalid,
)
from elmokit.serve.service import Service

JSON, TEXT, SAFETENSORS = "application/json", "text/plain", "application/vnd.safetensors"
REJECTIONS = {
    401: "The API key is missing or wrong.",
    408: "The request body came too slowly.",
    413: "The request body is too large.",
    422: "The request body is invalid.",
    429: "Too many requests are waiting; try again after Retry-After seconds.",
    503: "The server is stopping, or the answer took too long.",
}


@dataclass(frozen=True)
class Encoded:
    """An answer that is already bytes."""

    content: bytes
    media_type: str


Handler = Callable[[Service, Any, Request], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """A POST route.

    Args:
        path: its path.
        body: model of the request body.
        answer: type of the answer, for the documentation.
        handle: async function from service, body and request to the answer.
        summary: one line for the documentation.
        to_text: formats an answer as plain text; None for routes that only speak JSON.
        media_types: other media types that the route answers with.
        not_found: what a 404 of this route means; None if it never answers so.
    """

    path: str
    body: type[BaseModel]
    answer: Any
    handle: Handler
    summary: str
    to_text: Callable[[Any], str] | None = None
    media_types: tuple[str, ...] = ()
    not_found: str | None = None


def add_routes(app: FastAPI, service: Service, routes: Sequence[Route]) -> None:
    """Register routes with an app, and put their bodies into its OpenAPI document."""
    for route in routes:
        app.add_api_route(
            route.path,
            _endpoint(service, route),
            methods=["POST"],
            summary=route.summary,
            response_model=None,
            responses=_document_answers(route),
            openapi_extra={
                "requestBody": {"required": True, "content": _document_body(route)},
                "parameters": [
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in re.findall(r"{(\w+)}", route.path)
                ],
            },
        )


def encode_json(value: Any) -> bytes:
    """Return JSON; arrays become lists of numbers."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def accepts(request: Request, media_type: str) -> bool:
    """Return True if a client asks for a media type by name."""
    return media_type in request.headers.get("accept", "")


def _endpoint(service: Service, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            is_text = _media_type(request) == TEXT
            body = _read_body(route, await request.body(), is_text=is_text)
            answer = await route.handle(service, body, request)
        except InputError as error:
            return answer_failure(from_input_error(error), request.url.path)
        except RequestError as failure:
            return answer_failure(failure, request.url.path)
        if isinstance(answer, Encoded):
            return Response(answer.content, media_type=answer.media_type)
        if route.to_text is not None and (accepts(request, TEXT) or (is_text and not accepts(request, JSON))):
            return Response(route.to_text(answer), media_type=TEXT)
        return Response(encode_json(answer), media_type=JSON)

    endpoint.__name__ = route.path.strip("/").replace("/", "_").replace("{", "").replace("}", "")
    return endpoint


def _read_body(route: Route, content: bytes, *, is_text: bool) -> Any:
    try:
        if is_text and route.to_text is not None:
            lines = [line for line in content.decode().splitlines() if line.strip()]
            return route.body.model_validate({"inputs": lines})
        return route.body.model_validate_json(content)
    except UnicodeDecodeError as error:
        raise invalid(f"the text is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValidationError as error:
        failure = from_validation(error)
        if error.errors()[0]["type"] == "json_invalid" and route.to_text is not None:
            failure.message += "; for plain text, one sentence per line, set the header Content-Type: text/plain"
        raise failure from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _document_body(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}}}
    if route.to_text is not None:
        content[TEXT] = {"schema": {"type": "string", "description": "One sentence per line."}}
    return content


def _document_answers(route: Route) -> dict[int | str, dict[str, Any]]:
    error = OpenAIError if route.path.startswith(OPENAI_PREFIX) else Error
    content: dict[str, Any] = {media_type: {"schema": {"type": "string"}} for media_type in route.media_types}
    if route.to_text is not None:
        content[TEXT] = {"schema": {"type": "string"}}
    answers: dict[int | str, dict[str, Any]] = {200: {"model": route.answer, "content": content}}
    for status, description in REJECTIONS.items():
        answers[status] = {"model": error, "description": description}
    if route.not_found is not None:
        answers[404] = {"model": error, "description": route.not_found}
    for status in (429, 503):
        schema = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        answers[status]["headers"] = {"Retry-After": schema}
    return answers
