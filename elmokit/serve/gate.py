"""Entry of a server: API key, size and time of a request, number of requests at once, metrics, one log line each."""

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.serve.failures import RequestError, answer_failure
from elmokit.serve.limits import Limits
from elmokit.serve.metrics import Metrics

RETRY_AFTER = 1  # seconds
REJECT_DELAY = 0.5  # seconds until a 429 is sent: clients that ask again at once must not take the time of the others
OPEN_PATHS = ("/health", "/")
"""Paths that need no API key, besides the files of the page."""
PAGE_PREFIX = "/page/"

access_log = logging.getLogger("elmokit.serve.access")
log = logging.getLogger("elmokit.serve")


class Gate:
    """ASGI middleware that reads the body of a request and lets it in, or rejects it.

    Args:
        app: the app behind the gate.
        limits: limits of the server.
        metrics: where requests are counted.
        api_keys: accepted keys; every request is accepted if there are none.
        paths: the paths that metrics tell apart; others are counted as one.
        log_texts: log request bodies too.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        api_keys: Sequence[str] = (),
        paths: frozenset[str] = frozenset(),
        log_texts: bool = False,
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._keys, self._paths, self._log_texts = [key.encode() for key in api_keys], paths, log_texts
        self._num_requests = 0
        self.is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        answer = _Answer(send)
        try:
            await self._admit(scope, receive, answer)
        except RequestError as failure:
            if failure.status in (408, 413):
                failure.headers["Connection"] = "close"  # the rest of the body is not read
            await answer_failure(failure, scope["path"])(scope, receive, answer)
            self._metrics.request_failure.labels(failure.kind).inc()
        except _DisconnectError:
            pass
        except Exception as error:
            log.exception("a request to %s failed: %s", scope["path"], type(error).__name__)
            if answer.status is None:
                failed = RequestError(500, "internal", "the server failed to answer; its log has the reason")
                await answer_failure(failed, scope["path"])(scope, receive, answer)
        finally:
            self._count(scope, answer.status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: "_Answer") -> None:
        path = scope["path"]
        is_work = scope["method"] == "POST"
        if self._keys and path not in OPEN_PATHS and not path.startswith(PAGE_PREFIX):
            self._check_key(scope)
        if not is_work:
            await self._app(scope, receive, send)
            return
        if self.is_stopping:
            raise RequestError(503, "unhealthy", "the server is stopping; try again later", retry_after=RETRY_AFTER)
        body = await self._read_body(scope, receive)
        if self._num_requests >= self._limits.max_requests:
            message = f"{self._num_requests} requests are waiting; try again later"
            del body
            await asyncio.sleep(REJECT_DELAY)
            raise RequestError(429, "overloaded", message, retry_after=RETRY_AFTER)
        if self._log_texts:
            log.info("body of %s: %s", path, body.decode(errors="backslashreplace"))
        self._num_requests += 1
        try:
            async with asyncio.timeout(self._limits.timeout), _stopped_by_disconnect(receive):
                await self._app(scope, _replay(body), send)
        except TimeoutError:
            if send.status is None:
                message = f"no answer within {self._limits.timeout:g} s; send fewer texts, or try again later"
                raise RequestError(503, "timeout", message, retry_after=RETRY_AFTER) from None
        finally:
            self._num_requests -= 1

    def _check_key(self, scope: Scope) -> None:
        given = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Bearer ").strip()
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            raise RequestError(401, "unauthorized", "wrong or missing API key; send it as Authorization: Bearer KEY")

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._limits.max_body
        declared = dict(scope["headers"]).get(b"content-length", b"")
        parts: list[bytes] = []
        size = int(declared) if declared.isdigit() else 0
        try:
            async with asyncio.timeout(self._limits.timeout):
                while size <= most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _DisconnectError
                    parts.append(message.get("body", b""))
                    size = max(size, sum(map(len, parts)))
                    if size <= most and not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestError(408, "timeout", f"the body did not arrive within {self._limits.timeout:g} s") from None
        raise RequestError(413, "too_large", f"a body of {size:,} bytes or more; expected at most {most:,}")

    def _count(self, scope: Scope, status: int | None, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.request_count.labels(path).inc()
        self._metrics.request_duration.observe(seconds)
        if status == 200:
            self._metrics.request_success.labels(path).inc()
        access_log.info("%s %s %s %.1f ms", scope["method"], scope["path"], status or "left", 1000 * seconds)


class _Answer:
    """Sends an answer, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class _DisconnectError(Exception):
    """The client has closed the connection before its request was complete."""


@asynccontextmanager
async def _stopped_by_disconnect(receive: Receive) -> AsyncIterator[None]:
    """Stop the block when the client leaves, so that nothing is computed for it any more."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        if (await receive())["type"] == "http.disconnect":
            has_left = True
            task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        raise _DisconnectError from None
    finally:
        watcher.cancel()


def _replay(body: bytes) -> Receive:
    """Return a function that gives the app the whole body in one message."""

    async def replay() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
