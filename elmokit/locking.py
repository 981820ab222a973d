"""Exclusive use of a folder by one process."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import ElmokitWarning, OutputError
from elmokit.plain_file import open_descriptor

LOCK = "lock"


@contextmanager
def locked(folder: Path, *, work: str, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a folder; the system releases it when the process ends, however it ends.

    ``work`` completes the error that other processes raise: "another process is training in it". With ``wait`` they
    wait for the lock instead.
    """
    try:
        descriptor = open_descriptor(folder / LOCK)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; write elsewhere") from error
    try:
        _lock(descriptor, folder, work, wait=wait)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Wait for an exclusive lock on a folder, and hold it, without a file of its own in the folder."""
    if sys.platform == "win32":  # a folder cannot be opened there
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; write elsewhere") from error
    try:
        _lock(descriptor, folder, "writing to it", wait=True)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, work: str, *, wait: bool) -> None:
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise OutputError(f"{folder}: another process is {work}; wait for it, or write elsewhere") from None
        except OSError as error:
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}); let no other process work in it",
                ElmokitWarning,
                stacklevel=4,
            )
