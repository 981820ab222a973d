"""Exclusive use of a folder by one process."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import ElmokitWarning, OutputError

LOCK = "lock"

# The file may come from someone else, with the folder: it is never emptied, and a link is never followed.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def locked(folder: Path, *, work: str) -> Iterator[None]:
    """Hold an exclusive lock on a folder; the system releases it when the process ends, however it ends.

    ``work`` completes the error that other processes raise: "another process is training in it".
    """
    path = folder / LOCK
    try:
        if path.is_symlink():  # also where the system has no O_NOFOLLOW
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        descriptor = os.open(path, _FLAGS, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OutputError(
                f"{path}: is a symbolic link, but must be a plain file; remove the link, or write elsewhere"
            ) from error
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; write elsewhere") from error
    try:
        _lock(descriptor, folder, work)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, work: str) -> None:
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{folder}: another process is {work}; wait for it, or write elsewhere") from None
        except OSError as error:
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}); let no other process work in it",
                ElmokitWarning,
                stacklevel=4,
            )
