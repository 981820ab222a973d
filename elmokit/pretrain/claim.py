"""A folder for one run at a time."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elmokit.errors import ElmokitWarning, OutputError
from elmokit.pretrain.distributed import World

LOCK = "lock"


@contextmanager
def claimed(folder: Path, world: World) -> Iterator[None]:
    """Make the folder and keep other runs out of it. A process that ends lets go of it, however it ends."""
    if not world.is_first:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("wb")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; name another folder") from error
    with file:
        _lock(file, folder)
        yield


def _lock(file: IO[bytes], folder: Path) -> None:
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: another process is training in it; wait for it, or name another folder"
            ) from None
        except OSError as error:
            warnings.warn(
                f"{folder}: its file system has no locks ({error.strerror}); let no other process train in it",
                ElmokitWarning,
                stacklevel=4,
            )
