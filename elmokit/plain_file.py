"""Open a file of ours in a folder that may come from someone else.

What is written is never reached through a symbolic link. What is read is a regular file: a FIFO would be waited for
without end.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from elmokit.errors import OutputError

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def open_descriptor(path: Path) -> int:
    """Return a descriptor for reading and writing; the file is created if absent, and never truncated."""
    try:
        if path.is_symlink():  # also where the system has no O_NOFOLLOW
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.open(path, _FLAGS, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OutputError(
            f"{path}: is a symbolic link, but must be a plain file; remove the link, or write elsewhere"
        ) from error


def open_at(path: Path, num_bytes: int) -> BinaryIO:
    """Open a file for writing after its first ``num_bytes``; the rest is cut off."""
    file = os.fdopen(open_descriptor(path), "r+b")
    try:
        file.truncate(num_bytes)
        file.seek(num_bytes)
    except BaseException:
        file.close()
        raise
    return file


def open_end(path: Path) -> BinaryIO:
    """Open a file for writing at its end."""
    file = os.fdopen(open_descriptor(path), "r+b")
    file.seek(0, os.SEEK_END)
    return file


def read_plain(path: Path, *, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file, at most ``max_bytes`` of it."""
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read(-1 if max_bytes is None else max_bytes)
