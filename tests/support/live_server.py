"""A server in a thread of the test, and a small client for it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

import torch
from toy import TEXT, toy_model

from elmokit.embed.embedder import Embedder
from elmokit.model.bilm import BiLM
from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.score.scoring import Scorer
from elmokit.serve.app import make_app
from elmokit.serve.loaded import Models
from elmokit.serve.server import Server, bind
from elmokit.text.vocab import SPECIAL_WORDS, Vocab

SENTENCES = TEXT.splitlines()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode()


class Client(NamedTuple):
    """A client that opens one connection per request."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, content: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, named)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.request("POST", path, json.dumps(body).encode(), **({"content_type": "application/json"} | headers))


def toy_models(**parts: Any) -> Models:
    """Untrained models with random weights."""
    torch.manual_seed(3)
    bilm = BiLM(toy_model())
    vocab = Vocab([*SPECIAL_WORDS, *sorted(set(TEXT.split()))])
    softmax = Softmax(len(vocab), toy_model().lstm.proj_dim)
    with torch.no_grad():
        for parameter in [*bilm.parameters(), *softmax.parameters()]:
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    scorer = Scorer(LanguageModel(bilm, softmax), vocab, state="reset")
    return Models("toy", Embedder(bilm, state="reset"), scorer, **parts)


@contextmanager
def serving(models: Models, *, timeout: float = 10, **options: Any) -> Iterator[Client]:
    """Run a server on a free port until the end of the block."""
    with bind("127.0.0.1", 0) as listening:
        server = Server(make_app(models, **options), timeout=timeout)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            yield Client(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
