"""Curves of a run for TensorBoard, if it is installed. ``log.jsonl`` has the same numbers in any case.

Events are written at once and in this thread. TensorBoard's own writer has a thread, which prints a traceback when the
disk is full.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

AddValues = Callable[[int, Mapping[str, float]], None]
"""Add the values of one step, by the names of their curves."""
VERSION = "brain.Event:2"  # of the format, in the first event of every file


@contextmanager
def open_curves(folder: Path) -> Iterator[AddValues]:
    """Yield a function that adds a step's values to the curves in ``folder``; it does nothing without TensorBoard.

    The first step added hides later steps of an earlier session, because the run repeats them. A full disk costs the
    curves only.
    """
    has_tensorboard = find_spec("tensorboard") is not None
    writer: _Writer | None = None

    def add(step: int, values: Mapping[str, float]) -> None:
        nonlocal writer
        if not has_tensorboard or not values:
            return
        with suppress(OSError):
            if writer is None:
                writer = _Writer(folder, first_step=step)
            writer.add(step, values)

    try:
        yield add
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()


class _Writer:
    """Writes one event file."""

    def __init__(self, folder: Path, *, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file: BinaryIO = (folder / name).open("wb")
        self._records, self._event = RecordWriter(self._file), Event
        self._write(file_version=VERSION)
        self._write(step=first_step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        parts = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=step, summary=Summary(value=parts))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
