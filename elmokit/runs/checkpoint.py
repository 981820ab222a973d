"""A run's memory on disk: everything that the next step follows from.

A checkpoint is a folder, ``step-000012000``, with the tensors, the other facts as JSON, and their hashes. It gets its
name only when it is whole and on the disk. The newest that is intact is the one to go on from.
"""

import json
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmokit.atomic import atomic_folder
from elmokit.errors import ElmokitWarning, OutputError, WeightsError
from elmokit.weights.sums import check_sums, write_sums

TENSORS, FACTS = "state.safetensors", "state.json"
NAME = "step-{step:09d}"


@dataclass(frozen=True)
class Checkpoint:
    """A run after some step."""

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class Writer:
    """Saves on a thread of its own, so that training goes on meanwhile; one thing after the other, in order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._saving: Future[None] | None = None

    def begin(self, save: Callable[[], None]) -> None:
        """Begin a save once the one before is done; what it saves must be a copy that nobody changes any more."""
        self.wait()
        self._saving = self._thread.submit(save)

    def is_free(self, *, within: float) -> bool:
        """Whether the last save is on the disk after so many seconds at most; raises what went wrong with it."""
        if self._saving is not None:
            if not wait([self._saving], timeout=within).done:
                return False
            self.wait()
        return True

    def look(self) -> None:
        """Raise what went wrong with the last save, if that is known by now."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Until the last save is on the disk; raises what went wrong with it."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


def save_checkpoint(checkpoint: Checkpoint, folder: Path, *, keep: int) -> None:
    """Save a checkpoint, then remove all but the ``keep`` newest up to it.

    Later ones go too: a run that stands before them has passed over them, because they were damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made: {error.strerror}; name another run folder") from error
    place = folder / NAME.format(step=checkpoint.step)
    with atomic_folder(place, replace=True) as new:
        try:
            save_file(checkpoint.tensors, new / TENSORS)
        except SafetensorError as error:
            raise OutputError(f"{place}: cannot be written: {error}; free some space, if the disk is full") from error
        facts = {"step": checkpoint.step, **checkpoint.facts}
        (new / FACTS).write_text(json.dumps(facts), "utf-8")
        write_sums(new, (TENSORS, FACTS))
    found = checkpoints(folder)
    upto = found.index(place) + 1
    for other in found[: max(0, upto - keep)] + found[upto:]:
        shutil.rmtree(other, ignore_errors=True)


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest intact checkpoint; None if there never was one. Damaged ones are passed over with a warning."""
    found = checkpoints(folder)
    for place in reversed(found):
        try:
            return load_checkpoint(place)
        except WeightsError as error:
            warnings.warn(f"{error}; going on from the checkpoint before it", ElmokitWarning, stacklevel=2)
    if found:
        raise WeightsError(f"{folder}: none of its {len(found)} checkpoints is intact; start again in another folder")
    return None


def newest_facts(folder: Path) -> dict[str, Any] | None:
    """The facts of the newest checkpoint that has intact ones; its tensors are not looked at."""
    for place in reversed(checkpoints(folder)):
        try:
            check_sums(place, (FACTS,))
            facts: dict[str, Any] = json.loads((place / FACTS).read_text("utf-8"))
        except (WeightsError, ValueError, OSError):
            continue  # whoever loads a checkpoint warns of it
        return facts
    return None


def load_checkpoint(place: Path) -> Checkpoint:
    """Load one checkpoint after a check of its hashes."""
    check_sums(place, (TENSORS, FACTS))
    try:
        facts = json.loads((place / FACTS).read_text("utf-8"))
        return Checkpoint(facts.pop("step"), load_file(place / TENSORS), facts)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise WeightsError(f"{place}: cannot be read: {error}") from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-" + "[0-9]" * 9))
