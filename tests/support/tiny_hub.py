"""A hub of models on loopback: the routes of the Hugging Face hub that a download and an upload use."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class TinyHub:
    """Repositories as dicts of files, and what is wrong with the hub."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.cut = 0
        """Bytes that the end of every file lacks."""
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    @property
    def hub(self) -> TinyHub:
        return self.server.hub

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.requests.append(f"POST {self.path}")
        self._answer(_post(self.hub, self.path, content))

    def _serve(self, *, body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(f"{self.command} {path}")
        for name, files in self.hub.repos.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                self._answer([_describe(file, content) for file, content in files.items()])
                return
            if path in (f"/api/models/{name}", *[f"/api/models/{name}/revision/{r}" for r in ("main", COMMIT)]):
                siblings = [{"rfilename": file, "size": len(content)} for file, content in files.items()]
                self._answer({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": []})
                return
            for revision in ("main", COMMIT):
                prefix = f"/{name}/resolve/{revision}/"
                if path.startswith(prefix) and path.removeprefix(prefix) in files:
                    self._send_file(files[path.removeprefix(prefix)], body=body)
                    return
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, content: bytes, *, body: bool) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content[: len(content) - self.hub.cut] if self.hub.cut else content)
            self.close_connection = bool(self.hub.cut)

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def run_hub() -> Iterator[TinyHub]:
    """Run a hub as long as the block runs."""
    hub = TinyHub()

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = hub
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _describe(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}


def _post(hub: TinyHub, path: str, content: bytes) -> dict[str, Any]:
    if path == "/api/repos/create":
        asked = json.loads(content)
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        hub.repos.setdefault(name, {})
        return {"url": f"{hub.url}/{name}", "id": "1", "name": name}
    if path == "/api/validate-yaml":
        return {"errors": [], "warnings": []}
    name = path.removeprefix("/api/models/").partition("/preupload")[0].partition("/commit")[0]
    if "/preupload/" in path:
        return {
            "files": [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(content)["files"]
            ]
        }
    for line in content.splitlines():
        entry = json.loads(line)
        if entry["key"] == "file":
            hub.repos[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
    return {"commitUrl": f"{hub.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
