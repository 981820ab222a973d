"""What every step of a task run follows from, as JSON values: a run goes on only where all of it is the same."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elmokit.config import FrozenConfig, parse_config
from elmokit.errors import ConfigError
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.task import AnyTask

# How long a run lasts may change when it goes on. Files may be elsewhere by then: their content is compared.
FREE = {"training": {"epochs", "patience"}, "words": {"file"}, "elmo": {"model"}}


def run_origin(recipe: TaskRecipe, fingerprints: Mapping[str, str | None]) -> dict[str, Any]:
    """What a run follows from. ``fingerprints`` are of what it reads, by what that is called in a message."""
    return {"recipe": recipe.model_dump(mode="json"), "fingerprints": dict(fingerprints)}


def check_origin(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that began otherwise."""
    source = "the run in this folder was begun by another version of elmokit"
    recipes = [parse_config(TaskRecipe, origin["recipe"], source=source) for origin in (before, now)]
    old, new = (recipe.model_dump(mode="json", exclude=FREE) for recipe in recipes)
    changed = [
        *(f"{where} was {was}, now {is_now}" for where, was, is_now in _differences(old, new)),
        *(f"another {name}" for name, value in now["fingerprints"].items() if before["fingerprints"][name] != value),
    ]
    if changed:
        raise ConfigError(
            f"the run in this folder began otherwise ({'; '.join(changed)}); "
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
    for name in now.keys() | before.keys():
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{where}{name}.")
        elif old != new:
            yield f"{where}{name}", old, new
