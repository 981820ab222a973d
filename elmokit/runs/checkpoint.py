"""Checkpoints: everything that a run's next step depends on.

A checkpoint is a folder, ``step-000012000``, with tensors, other facts as JSON, and checksums. It gets its name only
when it is complete and on disk. A run is resumed from the newest intact checkpoint.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmokit.atomic import atomic_folder, remove_leftovers
from elmokit.errors import ElmokitError, ElmokitWarning, OutputError, WeightsError
from elmokit.weights.sums import check_sums, write_sums

TENSORS, FACTS = "state.safetensors", "state.json"
NAME = "step-{step:09d}"
MAX_REASON = 200  # characters in a message


@dataclass(frozen=True)
class Checkpoint:
    """A copy of a run's state after some step."""

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(checkpoint: Checkpoint, folder: Path, *, keep: int) -> None:
    """Save a checkpoint, then remove all but the ``keep`` newest up to it.

    Later ones are removed too: the run skipped them because they were damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be created: {error.strerror}; name another run folder") from error
    place = folder / NAME.format(step=checkpoint.step)
    with atomic_folder(place, replace=True, follow_link=False) as new:
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
    """Return the newest intact checkpoint, or None if there is no checkpoint. Skip damaged ones with a warning."""
    found = checkpoints(folder)
    for place in reversed(found):
        try:
            return load_checkpoint(place)
        except WeightsError as error:
            warnings.warn(f"{error}; resuming from the checkpoint before it", ElmokitWarning, stacklevel=2)
    if found:
        raise WeightsError(f"{folder}: none of its {len(found)} checkpoints is intact; start again in another folder")
    return None


def newest_facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts of the newest checkpoint whose facts are intact; its tensors are not read."""
    for place in reversed(checkpoints(folder)):
        try:
            check_sums(place, (FACTS,))
            return _read_facts(place)
        except (ValueError, OSError, RecursionError):  # ValueError: also a WeightsError
            continue  # `load_newest` warns of it
    return None


def load_checkpoint(place: Path) -> Checkpoint:
    """Load one checkpoint and verify its checksums."""
    check_sums(place, (TENSORS, FACTS))
    try:
        facts = _read_facts(place)
        return Checkpoint(facts.pop("step"), load_file(place / TENSORS), facts)
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise WeightsError(f"{place}: cannot be read: {error}") from error


def _read_facts(place: Path) -> dict[str, Any]:
    facts = json.loads((place / FACTS).read_text("utf-8"))
    step = facts.get("step") if isinstance(facts, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ValueError(f"{FACTS} has no number of steps")
    return dict(facts)


@contextmanager
def facts_explained(folder: Path) -> Iterator[None]:
    """Raise ``WeightsError`` where a checkpoint has not the values that its run needs.

    Its checksums are right, so it was written by another kind of run, another version, or by hand.
    """
    try:
        yield
    except ElmokitError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" in str(error):
            raise  # torch's, without a type of its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_REASON]
        raise WeightsError(
            f"{folder}: its newest checkpoint is not one of this kind of run, or of this version ({reason}); "
            "name another run folder, or start again with this one empty"
        ) from error


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-" + "[0-9]" * 9))


def clear_unfinished(folder: Path) -> None:
    """Remove what an interrupted save left behind. Nothing may be saving in ``folder`` meanwhile."""
    if folder.is_dir():
        remove_leftovers(folder)


def tensors_of_kind(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix such as ``model/``, without it."""
    return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
