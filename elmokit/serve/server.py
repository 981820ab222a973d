"""Run an app: one process, or several forked ones that share the weights in memory.

The models are loaded before the fork, so that the workers share their pages. All workers accept connections from one
socket. A worker that dies is replaced.
"""

import logging
import os
import signal
import socket
import sys
import time
from asyncio import BaseTransport
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from elmokit.errors import ElmokitError, InputError
from elmokit.serve.gate import Gate

BACKLOG = 2048
SWITCH_INTERVAL = 0.001  # seconds; the event loop gets the interpreter sooner while the model's thread computes
SHORT_LIFE = 2.0  # seconds; a worker that dies sooner is replaced after a pause
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MakeApp = Callable[[], Gate]

log = logging.getLogger("elmokit.serve")


class Server(uvicorn.Server):
    """Server that tells its gate when it stops."""

    def __init__(self, gate: Gate, *, timeout: float) -> None:
        super().__init__(
            uvicorn.Config(
                gate,
                http=_Protocol,
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                ws="none",
                timeout_keep_alive=max(int(timeout), 1),
                timeout_graceful_shutdown=int(timeout) + 5,
            )
        )
        self._gate = gate

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept no more work, finish what was accepted, then stop; a second Ctrl-C stops at once."""
        del frame
        self._gate.is_stopping = True
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


class _Protocol(HttpToolsProtocol):
    """HTTP protocol that sends answers at once, and closes a connection without a complete request header in time."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        # asyncio leaves the delay on for sockets of `socket.create_server`: the body of an answer, sent after its
        # header, would wait for the client's acknowledgement, which systems delay by 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.call_later(self.timeout_keep_alive, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on {host}:{port}: {reason}; choose another --host or --port") from None


def run_server(make_app: MakeApp, listening: socket.socket, *, num_workers: int, timeout: float) -> None:
    """Serve until SIGTERM or SIGINT; work that was accepted is finished first."""
    if num_workers == 1:
        _run_worker(make_app, listening, timeout=timeout)
        return
    if not hasattr(os, "fork"):
        raise ElmokitError("several workers need a system with fork; start one worker, or several servers")
    _Supervisor(lambda: _run_worker(make_app, listening, timeout=timeout), num_workers).run()


def _run_worker(make_app: MakeApp, listening: socket.socket, *, timeout: float) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    Server(make_app(), timeout=timeout).run(sockets=[listening])


class _Supervisor:
    """Parent of forked workers."""

    def __init__(self, work: Callable[[], None], num_workers: int) -> None:
        self._work = work
        self._num_workers = num_workers
        self._started: dict[int, float] = {}
        self._is_stopping = False

    def run(self) -> None:
        """Start the workers, replace those that die, and return when all have stopped on request."""
        before = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        try:
            for _ in range(self._num_workers):
                self._start()
            while self._started:
                pid, status = os.wait()
                since = self._started.pop(pid, 0.0)
                if self._is_stopping:
                    continue
                log.error("worker %d ended with status %d; starting another", pid, os.waitstatus_to_exitcode(status))
                if time.monotonic() - since < SHORT_LIFE:
                    time.sleep(SHORT_LIFE)
                if not self._is_stopping:
                    self._start()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self) -> None:
        # A signal that comes before the worker has handlers of its own must end it, not run those of the parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid:
            self._started[pid] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            return
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        code = 1
        try:
            self._work()
            code = 0
        finally:  # the child must never return into the code of its parent
            logging.shutdown()
            os._exit(code)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        for pid in self._started:
            os.kill(pid, signal.SIGTERM)
