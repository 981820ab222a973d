"""What every step of a task run follows from, as JSON values: a run goes on only where all of it is the same."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.config import FrozenConfig, parse_config
from elmokit.errors import ConfigError
from elmokit.runs.resume_check import changed_data, changed_settings, check_unchanged
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask

# How long a run lasts may change when it goes on. Files may be elsewhere by then: their content is compared.
FREE = {"training": {"epochs", "patience"}, "words": {"file"}, "elmo": {"model"}}


def resume_key(recipe: TaskRecipe, fingerprints: Mapping[str, str | None]) -> dict[str, Any]:
    """What a run follows from. ``fingerprints`` are of what it reads, by what that is called in a message."""
    return {"recipe": recipe.model_dump(mode="json"), "fingerprints": dict(fingerprints)}


def check_resume(before: Mapping[str, Any], now: Mapping[str, Any], *, folder: Path) -> None:
    """Refuse to go on with a run, in a folder, that began otherwise."""
    source = f"{folder}: the run in this folder was started by another version of elmokit"
    was, asked = (parse_config(TaskRecipe, key["recipe"], source=source) for key in (before, now))
    if was.task != asked.task:
        raise ConfigError(f"{folder}: is a run of the task {was.task}, not of {asked.task}; name another run folder")
    old, new = (recipe.model_dump(mode="json", exclude=FREE) for recipe in (was, asked))
    changed = [*changed_settings(old, new), *changed_data(before["fingerprints"], now["fingerprints"])]
    if _as_looks(asked.training.patience) < _as_looks(was.training.patience):  # it might have ended long before
        changed.append(f"training.patience was {was.training.patience}, now {asked.training.patience}")
    check_unchanged(changed, folder=folder)


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


def _as_looks(patience: int | None) -> float:
    return math.inf if patience is None else patience
