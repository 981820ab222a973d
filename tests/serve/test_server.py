"""Server processes: signals, workers, crashes."""

import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from commands import Command, start_command
from live_server import SENTENCES, Client, toy_models

pytestmark = pytest.mark.long
MODELS = toy_models()


@cache
def expected() -> dict[str, np.ndarray]:
    return dict(zip(SENTENCES, MODELS.embedder.encode(SENTENCES), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "toy"
    MODELS.embedder.save_pretrained(path)
    return path


@contextmanager
def started(folder: Path, *options: str, port: int = 0) -> Iterator[tuple[Client, Command]]:
    command = ["serve", "--model", str(folder), "--state", "reset", "--port", str(port), "--quiet", *options]
    server = start_command(*command)
    try:
        line = server.stderr.readline().strip()
        found = re.search(r":(\d+)$", line)
        assert found, f"the server did not start: {line!r}"
        client = Client(int(found[1]))
        stop = time.monotonic() + 60
        while time.monotonic() < stop:
            try:
                assert client.get("/health").status == 200
                break
            except OSError:
                time.sleep(0.05)
        yield client, server
    finally:
        server.kill()
        server.communicate()


def port_for_restart() -> int:
    """Return a free port that clients are never given: one that connects to itself would keep it from a server."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    pytest.skip("no free port below 30,000")


def ask_until(client: Client, stop: threading.Event, first: int, log: list[str]) -> None:
    """Ask for one sentence after the other; log each answer as right, refused or wrong."""
    step = first
    while not stop.is_set():
        sentence = SENTENCES[step % len(SENTENCES)]
        step += 1
        try:
            answer = client.post("/embed", {"inputs": sentence, "normalize": False})
        except OSError:
            log.append("refused")
            time.sleep(0.02)
            continue
        except Exception as error:  # noqa: BLE001  a half answer: http.client has many names for it
            log.append(
                "refused" if "IncompleteRead" in repr(error) or "RemoteDisconnected" in repr(error) else repr(error)
            )
            continue
        is_right = answer.status == 200 and np.allclose(answer.json()[0], expected()[sentence], atol=1e-5)
        log.append("right" if is_right else f"wrong: {answer.status}")


def wait_for_right_answer(log: list[str], *, since: int) -> None:
    stop = time.monotonic() + 60
    while "right" not in log[since:] and time.monotonic() < stop:
        time.sleep(0.1)


@pytest.mark.slow
def test_after_kill_9_clients_see_refused_connections_and_never_a_wrong_answer(folder):
    stop, log = threading.Event(), []
    threads = []
    try:
        with started(folder, port=port_for_restart()) as (client, server):
            threads += [threading.Thread(target=ask_until, args=(client, stop, k, log)) for k in range(6)]
            for thread in threads:
                thread.start()
            wait_for_right_answer(log, since=0)
            server.kill()
        time.sleep(0.2)
        before = len(log)
        with started(folder, port=client.port) as (_, server):
            wait_for_right_answer(log, since=before)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(log) == {"right", "refused"}
    assert "right" in log[:before]
    assert "right" in log[before:]


def test_sigterm_finishes_and_exits_with_0(folder):
    with started(folder) as (client, server):
        stop, log = threading.Event(), []
        threads = [threading.Thread(target=ask_until, args=(client, stop, k, log)) for k in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        stop.set()
        for thread in threads:
            thread.join()
    assert set(log) <= {"right", "refused", "wrong: 503"}
    assert "right" in log


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork") or not Path("/proc").is_dir(), reason="needs fork and /proc")
def test_workers_share_their_memory_and_are_replaced(folder):
    with started(folder, "--workers", "2") as (client, server):
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        assert len(workers) == 2
        answers = [client.post("/embed", {"inputs": SENTENCES[0], "normalize": False}).json() for _ in range(8)]
        assert all(np.allclose(answer[0], expected()[SENTENCES[0]], atol=1e-5) for answer in answers)
        assert "elmokit_request_count_total" in client.get("/metrics").text
        for pid in workers:
            sizes = dict(re.findall(r"^(\w+): +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
            assert int(sizes["Pss"]) < 0.7 * int(sizes["Rss"])
        os.kill(workers[0], signal.SIGKILL)
        stop = time.monotonic() + 30
        while time.monotonic() < stop:
            now = [int(pid) for pid in children.read_text().split()]
            if len(now) == 2 and workers[0] not in now:
                break
            time.sleep(0.1)
        assert len(now) == 2
        assert client.post("/embed", {"inputs": SENTENCES[0]}).status == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
