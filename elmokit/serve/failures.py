"""Rejected requests: status, headers and body of the answer.

Routes in OpenAI's shape answer with its error object, which its client unwraps. All others answer with
text-embeddings-inference's.
"""

from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, ValidationError

from elmokit.errors import InputError

OPENAI_PREFIX = "/v1/"
MOST_QUOTED = 80
OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}
SHOWN_ERRORS = 3


class RequestError(Exception):
    """A request that gets an error as its answer."""

    def __init__(
        self, status: int, kind: str, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"


class Error(BaseModel):
    """Error of a route in text-embeddings-inference's shape, and of our own routes."""

    error: str
    error_type: str


class OpenAIErrorObject(BaseModel):
    """Content of `OpenAIError`."""

    message: str
    type: str
    code: str
    param: str | None


class OpenAIError(BaseModel):
    """Error of a route in OpenAI's shape."""

    error: OpenAIErrorObject


def invalid(message: str, *, param: str | None = None) -> RequestError:
    """Return the failure of a request with a wrong value."""
    return RequestError(422, "validation", message, param=param)


def from_validation(error: ValidationError) -> RequestError:
    """Return the failure of a body that does not fit its model."""
    details = error.errors(include_url=False, include_context=False)
    shown = [_describe(detail) for detail in details[:SHOWN_ERRORS]]
    more = f"; and {len(details) - SHOWN_ERRORS} more" if len(details) > SHOWN_ERRORS else ""
    place = details[0]["loc"]
    return invalid("; ".join(shown) + more, param=str(place[0]) if place else None)


def from_input_error(error: InputError) -> RequestError:
    """Return the failure of a value that the library rejects."""
    return invalid(str(error))


def answer_failure(failure: RequestError, path: str) -> Response:
    """Return the answer for a failed request to a path."""
    if path.startswith(OPENAI_PREFIX):
        kind = OPENAI_TYPES.get(failure.status, "invalid_request_error")
        body: dict[str, Any] = {
            "error": {"message": failure.message, "type": kind, "code": failure.kind, "param": failure.param}
        }
    else:
        body = {"error": failure.message, "error_type": failure.kind}
    content = orjson.dumps(body)
    return Response(content, failure.status, headers=failure.headers, media_type="application/json")


def quote(text: str) -> str:
    """Return the start of a text for a message."""
    return repr(text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}...")


def _describe(detail: Any) -> str:
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else str(detail["msg"])
