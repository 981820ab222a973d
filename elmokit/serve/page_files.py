"""The page: plain files of this package, served with a strict content-security policy."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI, Response

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files below ``/page``."""
    for path in sorted(PAGE.iterdir()):
        route = "/" if path.name == INDEX else f"/page/{path.name}"
        app.add_api_route(route, _file_endpoint(path), methods=["GET", "HEAD"], include_in_schema=False)


def _file_endpoint(path: Path) -> Callable[[], Awaitable[Response]]:
    content, media_type = path.read_bytes(), MEDIA_TYPES[path.suffix]

    async def endpoint() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return endpoint
