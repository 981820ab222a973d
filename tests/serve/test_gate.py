"""The gate rejects requests that are too large, too slow, too many or without a key."""

import logging
import socket
import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import pytest
from live_server import SENTENCES, serving, toy_models

from elmokit.serve.gate import REJECT_DELAY
from elmokit.serve.limits import Limits
from elmokit.serve.loaded import Models

MODELS = toy_models()


@dataclass(frozen=True, eq=False)
class HeldModels(Models):
    """Models whose thread waits until it is let go."""

    may_run: Any = None
    is_running: Any = None

    def run_layers(self, items):
        self.is_running.set()
        self.may_run.wait(10)
        return super().run_layers(items)


@pytest.fixture
def held():
    models = HeldModels(MODELS.name, MODELS.embedder, may_run=threading.Event(), is_running=threading.Event())
    yield models
    models.may_run.set()


def wait_until(check) -> None:
    stop = time.monotonic() + 10
    while not check():
        assert time.monotonic() < stop
        time.sleep(0.01)


def in_threads(calls) -> list[threading.Thread]:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def test_more_requests_than_may_wait_get_429_and_the_others_an_answer(held):
    answers = []
    with serving(held, limits=Limits(max_requests=3)) as client:
        threads = in_threads([lambda: answers.append(client.post("/embed", {"inputs": SENTENCES[0]}))] * 8)
        wait_until(lambda: len(answers) == 5)
        assert {answer.status for answer in answers} == {429}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
        held.may_run.set()
        for thread in threads:
            thread.join()
        assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 5
        assert client.post("/embed", {"inputs": SENTENCES[0]}).status == 200


def test_a_rejected_client_that_asks_again_at_once_is_slowed_down(held):
    with serving(held, limits=Limits(max_requests=1)) as client:
        [waiting] = in_threads([lambda: client.post("/embed", {"inputs": SENTENCES[0]})])
        assert held.is_running.wait(10)
        start = time.monotonic()
        assert client.post("/embed", {"inputs": "a"}).status == 429
        assert time.monotonic() - start >= REJECT_DELAY
        assert client.get("/health").status == 200
        held.may_run.set()
        waiting.join()


def test_an_answer_that_takes_too_long_is_503(held):
    with serving(held, limits=Limits(timeout=0.2)) as client:
        answer = client.post("/v1/embeddings", {"input": "a", "model": "toy"})
        assert (answer.status, answer.json()["error"]["code"]) == (503, "timeout")
        held.may_run.set()
        assert client.post("/embed", {"inputs": "a"}).status == 200


def test_large_bodies_are_rejected_before_they_are_read():
    with serving(MODELS, limits=Limits(max_body=1000)) as client:
        assert client.request("POST", "/embed", b" " * 1001).status == 413
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3):
                connection.sendall(b"190\r\n" + b" " * 400 + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_thousands_of_empty_strings_are_rejected_with_the_reason():
    with serving(MODELS) as client:
        for number, reason in ((10_000, "10,000 inputs; expected at most 2,048"), (2048, "'' has no words")):
            answer = client.post("/v1/embeddings", {"input": [""] * number, "model": "toy"})
            assert (answer.status, answer.json()["error"]["code"]) == (422, "validation")
            assert reason in answer.json()["error"]["message"]


def test_slow_and_half_requests_do_not_hold_the_server():
    with serving(MODELS, limits=Limits(timeout=0.3, max_requests=1), timeout=1) as client:
        slow = socket.create_connection(("127.0.0.1", client.port))
        slow.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{")
        gone = socket.create_connection(("127.0.0.1", client.port))
        gone.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{")
        gone.close()
        silent = socket.create_connection(("127.0.0.1", client.port))
        silent.sendall(b"POST /em")
        # A busy machine may need more than the time limit for one answer.
        assert any(client.post("/embed", {"inputs": "a"}).status == 200 for _ in range(10))
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        silent.settimeout(5)
        assert silent.recv(100) == b""
        slow.close(), silent.close()


def test_nothing_is_computed_for_a_client_that_has_left(held):
    with serving(held, limits=Limits(max_requests=2)) as client:
        content = b'{"inputs": "a"}'
        request = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
        for _ in range(5):  # more than may wait
            with socket.create_connection(("127.0.0.1", client.port)) as connection:
                connection.sendall(request)
                time.sleep(0.1)
        wait_until(lambda: "elmokit_request_count_total" in client.get("/metrics").text)
        held.may_run.set()
        assert client.post("/embed", {"inputs": "a"}).status == 200
        assert 'elmokit_request_failure_total{err="overloaded"}' not in client.get("/metrics").text


def test_answers_on_an_open_connection_are_not_delayed():
    seconds = []
    with serving(MODELS) as client:
        connection = HTTPConnection("127.0.0.1", client.port)
        for _ in range(40):  # a system acknowledges the first packets of a connection at once
            start = time.perf_counter()
            connection.request("POST", "/tokenize", b'{"inputs": "a"}')
            connection.getresponse().read()
            seconds.append(time.perf_counter() - start)
        connection.close()
    assert min(seconds[20:]) < 0.03


def test_a_key_is_needed_where_keys_are_set():
    with serving(MODELS, api_keys=["secret", "other"]) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}):
            answer = client.post("/embed", {"inputs": "a"}, **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.post("/v1/embeddings", {}).json()["error"]["type"] == "authentication_error"
        assert client.get("/info").status == 401
        assert client.get("/health").status == 200
        assert client.post("/embed", {"inputs": "a"}, authorization="Bearer other").status == 200


def test_cors_is_off_unless_an_origin_is_named():
    asked = {"origin": "http://here.example", "access_control_request_method": "POST"}
    with serving(MODELS) as client:
        assert "access-control-allow-origin" not in client.request("OPTIONS", "/embed", **asked).headers
    with serving(MODELS, cors_origins=["http://here.example"]) as client:
        headers = client.request("OPTIONS", "/embed", **asked).headers
        assert headers["access-control-allow-origin"] == "http://here.example"


def test_stopping_finishes_what_was_accepted_and_accepts_no_more(held):
    answers = []
    with serving(held) as client:
        threads = in_threads([lambda: answers.append(client.post("/embed", {"inputs": SENTENCES[0]}))])
        wait_until(lambda: "elmokit_queue_size 0.0" in client.get("/metrics").text)
        threads += in_threads([lambda: (time.sleep(0.3), held.may_run.set())])
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200]


def test_logs_hold_no_texts_unless_asked(caplog):
    caplog.set_level(logging.INFO, logger="elmokit.serve")
    with serving(MODELS) as client:
        client.post("/embed", {"inputs": "verysecretword"})
        client.post("/embed", {"inputs": "verysecretword " * 2000})
    assert "POST /embed 200" in caplog.text
    assert "verysecretword" not in caplog.text
    with serving(MODELS, log_texts=True) as client:
        client.post("/embed", {"inputs": "verysecretword"})
    assert "verysecretword" in caplog.text
