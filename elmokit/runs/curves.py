"""Curves of a run for TensorBoard, if it is installed. ``log.jsonl`` has the same numbers in any case."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

AddValues = Callable[[int, Mapping[str, float]], None]
"""Add the values of one step, by the names of their curves."""


@contextmanager
def open_curves(folder: Path) -> Iterator[AddValues]:
    """Yield a function that adds a step's values to the curves in ``folder``; it does nothing without TensorBoard.

    The first step added hides later steps of an earlier session, because the run repeats them. A full disk costs the
    curves only.
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
