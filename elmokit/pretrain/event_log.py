"""The run's numbers for TensorBoard, where that is installed; ``log.jsonl`` has them in any case."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from elmokit.pretrain.run import HeldOut, LogLine, RunPlan

Entry = RunPlan | LogLine | HeldOut


@contextmanager
def event_log(folder: Path, *, writes: bool) -> Iterator[Callable[[Entry], None]]:
    """Yield what adds an entry to the folder's curves; it does nothing without TensorBoard."""
    if not writes or find_spec("tensorboard") is None:
        yield lambda _: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder) as events:

        def add(entry: Entry) -> None:
            if isinstance(entry, RunPlan):
                return
            for name, value in asdict(entry).items():
                if isinstance(value, float):
                    events.add_scalar(_curve(name, entry), value, entry.step)

        yield add


def _curve(name: str, entry: Entry) -> str:
    if isinstance(entry, HeldOut):
        return f"heldout/{name}"
    is_sampled = isinstance(entry, LogLine) and entry.sampled and name.endswith("_loss")
    return f"train/{name}_sampled" if is_sampled else f"train/{name}"
