"""A folder for one run at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.locking import locked
from elmokit.pretrain.distributed import World


@contextmanager
def claimed(folder: Path, world: World) -> Iterator[None]:
    """Make the folder and keep other runs out of it. A process that ends lets go of it, however it ends."""
    if not world.is_first:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; name another folder") from error
    with locked(folder, work="training in it"):
        yield
