"""The command in a process of its own, to be interrupted or killed; a server that has torch loaded forks it.

A fresh interpreter spends three seconds of processor time on its imports. Tests of the start and of the very end of
the process need one; others use `start_command`, whose process begins where the imports end.
"""

import os
import signal
import sys
import threading
from multiprocessing import reduction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO

from processes import SERVER


class Command:
    """A running command, with the parts of `subprocess.Popen` that tests use."""

    def __init__(self, process: BaseProcess, streams: list[IO[str] | None]) -> None:
        self._process = process
        self.stdin, self.stdout, self.stderr = streams

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float = 120) -> int:
        """Return the exit code."""
        self._process.join(timeout)
        assert self.returncode is not None, f"still running after {timeout} s"
        return self.returncode

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """Read the rest of both outputs, and wait for the end."""
        if self.stdin is not None:
            self.stdin.close()
        rest: dict[str, str] = {}

        def read(name: str, stream: IO[str]) -> None:
            with stream:
                rest[name] = stream.read()

        threads = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in (("out", self.stdout), ("err", self.stderr))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        self.wait(timeout)
        return rest["out"], rest["err"]


def start_command(
    *args: str, has_input: bool = False, output: Path | None = None, max_file_bytes: int | None = None
) -> Command:
    """Start ``elmokit`` with these arguments in the current folder.

    Its outputs are pipes, and with ``has_input`` its input too. ``output`` replaces the pipe of standard output.
    """
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    if output is not None:
        os.close(out_end)
        out_end = os.open(output, os.O_WRONLY)
    in_end, stdin = os.pipe() if has_input else (os.open(os.devnull, os.O_RDONLY), None)
    ends = [in_end, out_end, err_end]
    process = SERVER.Process(target=_run, args=(list(args), Path.cwd(), max_file_bytes, *map(_Descriptor, ends)))
    process.start()
    for end in ends:
        os.close(end)
    streams = [None if stdin is None else os.fdopen(stdin, "w", encoding="utf-8")]
    return Command(process, [*streams, *(os.fdopen(end, encoding="utf-8") for end in (out, err))])


class _Descriptor:
    """An open file that travels to the forked process."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (reduction.DupFd(self.number),)


def _received(duplicate: "reduction.DupFd") -> int:
    return int(duplicate.detach())


def _run(args: list[str], folder: Path, max_file_bytes: int | None, *descriptors: int) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", buffering=1 if number == 2 else -1)
        for number, mode in enumerate(("r", "w", "w"))
    )
    os.chdir(folder)
    # Where the tests run in the background or under nohup, both are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if max_file_bytes is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from elmokit.cli import main

    torch.set_num_threads(1)
    sys.argv = ["elmokit", *args]
    main()
