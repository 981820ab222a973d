"""A folder for one process at a time."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elmokit.errors import ElmokitWarning, OutputError

LOCK = "lock"


@contextmanager
def locked(folder: Path, *, work: str) -> Iterator[None]:
    """Keep other processes out of a folder; the system lets go of it when this one ends, however it ends.

    ``work`` is what is done in such a folder, for the message to others: "training in it".
    """
    try:
        file = (folder / LOCK).open("wb")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; write elsewhere") from error
    with file:
        _lock(file, folder, work)
        yield


def _lock(file: IO[bytes], folder: Path, work: str) -> None:
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{folder}: another process is {work}; wait for it, or write elsewhere") from None
        except OSError as error:
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}); let no other process work in it",
                ElmokitWarning,
                stacklevel=4,
            )
