"""Exclusive use of a run's folder."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.locking import LOCK, locked
from elmokit.runs.world import World


@contextmanager
def claimed(folder: Path, world: World, *, work: str = "training in it") -> Iterator[None]:
    """Create the folder and lock it against other runs. The lock is released however the process ends.

    A folder that was created here and is still empty after an error is removed again.
    """
    if not world.is_first:
        yield
        return
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; name another folder") from error
    with locked(folder, work=work):
        try:
            yield
        except BaseException:
            if is_new and [path.name for path in folder.glob("*")] == [LOCK]:  # rejected before anything was written
                shutil.rmtree(folder, ignore_errors=True)
            raise
