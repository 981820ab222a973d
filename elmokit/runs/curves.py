"""A run's numbers as curves for TensorBoard, where that is installed; ``log.jsonl`` has them in any case."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@contextmanager
def curves(folder: Path) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Yield what adds a step's values to the folder's curves; it does nothing without TensorBoard.

    What an earlier piece of the run added from the first step on is dropped: those steps are done again. A disk that is
    full costs the curves and no more.
    """
    has_tensorboard = find_spec("tensorboard") is not None
    writer: SummaryWriter | None = None

    def add(step: int, values: Mapping[str, float]) -> None:
        nonlocal writer
        if not has_tensorboard or not values:
            return
        with suppress(OSError):
            if writer is None:
                from torch.utils.tensorboard import SummaryWriter

                writer = SummaryWriter(folder, purge_step=step)
            for name, value in values.items():
                writer.add_scalar(name, value, step)

    try:
        yield add
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()
