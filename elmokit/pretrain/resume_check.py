"""What every step of a run follows from, as JSON values: a run goes on only where all of it is the same."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from elmokit.config import parse_config
from elmokit.errors import ConfigError
from elmokit.pretrain.recipe import Recipe, TrainingSettings

Origin = dict[str, Any]

FINGERPRINTS = {"text", "vocabulary"}
# What a run may change when it goes on: how long it lasts, and how often it looks and saves.
FREE_SETTINGS = {"epochs", "steps", "hours", "evaluate_every", "heldout_tokens", "checkpoint_every", "keep_checkpoints"}
SOME_END = {"steps": 1}  # a recipe has to have one, and a run's origin may have none


def recipe_origin(recipe: Recipe, device: torch.device) -> Origin:
    """What follows from the recipe, and from what it leaves to the device."""
    return _recipe_origin(recipe, precision_on(device, recipe.training))


def check_origin(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run if a part of ``now`` is not what the run began with."""
    if changed := list(_differences(_completed(before), now)):
        raise ConfigError(
            f"the run in this folder began otherwise ({'; '.join(changed)}); "
            "name another run folder, or give the recipe and the text that it began with"
        )


def precision_on(device: torch.device, settings: TrainingSettings) -> Literal["fp32", "bf16"]:
    """Of the large products of a run."""
    if settings.precision != "auto":
        return settings.precision
    # Older GPUs emulate it, which torch counts unless told otherwise.
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"


def _recipe_origin(recipe: Recipe, precision: str) -> Origin:
    free = FREE_SETTINGS
    if recipe.training.schedule != "constant":
        free = free - {"epochs", "steps"}
    return {
        "model": recipe.model.model_dump(mode="json"),
        "softmax": recipe.softmax.model_dump(mode="json"),
        "training": recipe.training.model_dump(mode="json", exclude=free) | {"precision": precision},
    }


def _completed(before: Mapping[str, Any]) -> Origin:
    """An origin with the fields that recipes did not have yet when it was written down: they had their defaults."""
    values = {**{name: before[name] for name in ("model", "softmax")}, "training": SOME_END | before["training"]}
    recipe = parse_config(Recipe, values, source="the run in this folder was begun by another version of elmokit")
    # Before there was a choice, all was in float32.
    precision = "fp32" if recipe.training.precision == "auto" else recipe.training.precision
    return {**before, **_recipe_origin(recipe, precision)}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """What was changed, field by field; a fingerprint says nothing but that it did."""
    for name, new in now.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{where}{name}.")
        elif old != new:
            yield f"another {name}" if name in FINGERPRINTS else f"{where}{name} was {old}, now {new}"
