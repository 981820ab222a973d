"""What every step of a task run follows from, as JSON values: a run goes on only where all of it is the same."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.config import FrozenConfig, parse_config
from elmokit.errors import ConfigError
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask

# How long a run lasts may change when it goes on. Files may be elsewhere by then: their content is compared.
FREE = {"training": {"epochs", "patience"}, "words": {"file"}, "elmo": {"model"}}
MOST_TOLD, LONGEST_TOLD = 3, 60  # differences, and characters of a value, in a message


def run_origin(recipe: TaskRecipe, fingerprints: Mapping[str, str | None]) -> dict[str, Any]:
    """What a run follows from. ``fingerprints`` are of what it reads, by what that is called in a message."""
    return {"recipe": recipe.model_dump(mode="json"), "fingerprints": dict(fingerprints)}


def check_origin(before: Mapping[str, Any], now: Mapping[str, Any], *, folder: Path) -> None:
    """Refuse to go on with a run, in a folder, that began otherwise."""
    source = f"{folder}: the run there was begun by another version of elmokit"
    was, asked = (parse_config(TaskRecipe, origin["recipe"], source=source) for origin in (before, now))
    if was.task != asked.task:
        raise ConfigError(f"{folder}: is a run of the task {was.task}, not of {asked.task}; name another run folder")
    old, new = (recipe.model_dump(mode="json", exclude=FREE) for recipe in (was, asked))
    changed = [
        *(f"{where} was {_short(value)}, now {_short(other)}" for where, value, other in _differences(old, new)),
        *(f"another {name}" for name, value in now["fingerprints"].items() if before["fingerprints"][name] != value),
    ]
    if _as_looks(asked.training.patience) < _as_looks(was.training.patience):  # it might have ended long before
        changed.append(f"training.patience was {was.training.patience}, now {asked.training.patience}")
    if changed:
        told = [*changed[:MOST_TOLD], *([f"and {len(changed) - MOST_TOLD} more"] if len(changed) > MOST_TOLD else [])]
        raise ConfigError(
            f"{folder}: the run there began otherwise ({'; '.join(told)}); "
            "name another run folder, or give the recipe and the data that it began with"
        )


def same_recipe(written: Mapping[str, Any], recipe: TaskRecipe) -> bool:
    """Whether a recipe is the one that a run has written down; its files may be elsewhere by now."""
    before, now = dict(written), recipe.model_dump(mode="json")
    for part, name in (("words", "file"), ("elmo", "model")):
        for values in (before, now):
            values[part] = {**values[part], name: values[part][name] is not None}
    return before == now


def examples_fingerprint(task: AnyTask, examples: Sequence[Any], labels: FrozenConfig | None) -> str:
    """A hash of the examples, of the tokens that they are read as, and of the labels there are."""
    digest = hashlib.sha256(b"" if labels is None else labels.model_dump_json().encode())
    for example in examples:
        tokens = [[list(tokens) for tokens in column] for column in task.sequences(example)]
        digest.update(json.dumps(tokens).encode())
        digest.update(repr(example).encode())
    return digest.hexdigest()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any, Any]]:
    for name in [*now, *(name for name in before if name not in now)]:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{where}{name}.")
        elif old != new:
            yield f"{where}{name}", old, new


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}…"


def _as_looks(patience: int | None) -> float:
    return math.inf if patience is None else patience
