"""Resume check of task runs: settings and data that every step depends on, as JSON values."""

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

# Limits of a run may change when it is resumed. Files may have moved: their content is compared.
FREE = {"training": {"epochs", "patience"}, "words": {"file"}, "elmo": {"model"}}


def resume_key(recipe: TaskRecipe, fingerprints: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what a run depends on. ``fingerprints`` are those of its data, by their names in messages."""
    return {"recipe": recipe.model_dump(mode="json"), "fingerprints": dict(fingerprints)}


def check_resume(before: Mapping[str, Any], now: Mapping[str, Any], *, folder: Path) -> None:
    """Raise ConfigError if the run in a folder was started with other settings or data."""
    source = f"{folder}: the run in this folder was started by another version of elmokit"
    was, asked = (parse_config(TaskRecipe, key["recipe"], source=source) for key in (before, now))
    if was.task != asked.task:
        raise ConfigError(f"{folder}: is a run of the task {was.task}, not of {asked.task}; name another run folder")
    old, new = (recipe.model_dump(mode="json", exclude=FREE) for recipe in (was, asked))
    changed = [*changed_settings(old, new), *changed_data(before["fingerprints"], now["fingerprints"])]
    if _as_limit(asked.training.patience) < _as_limit(was.training.patience):  # the run might have ended before
        changed.append(f"training.patience was {was.training.patience}, now {asked.training.patience}")
    check_unchanged(changed, folder=folder)


def same_recipe(written: Mapping[str, Any], recipe: TaskRecipe) -> bool:
    """Return whether a recipe equals the one in a run's result; its files may have moved."""
    # Parsed, so that a recipe of an older version gets the defaults of newer settings.
    source = "the recipe of a finished run"
    before = parse_config(TaskRecipe, written, source=source).model_dump(mode="json")
    now = recipe.model_dump(mode="json")
    for part, name in (("words", "file"), ("elmo", "model")):
        for values in (before, now):
            values[part] = {**values[part], name: values[part][name] is not None}
    return before == now


def examples_fingerprint(task: AnyTask, examples: Sequence[Any], labels: FrozenConfig | None) -> str:
    """Return a hash of examples, their tokens and the label space."""
    digest = hashlib.sha256(b"" if labels is None else labels.model_dump_json().encode())
    for example in examples:
        tokens = [[list(tokens) for tokens in column] for column in task.sequences(example)]
        digest.update(json.dumps(tokens).encode())
        digest.update(repr(example).encode())
    return digest.hexdigest()


def _as_limit(patience: int | None) -> float:
    return math.inf if patience is None else patience
