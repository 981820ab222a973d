"""Values that every step of a pretraining run depends on. A run is resumed only if all of them are unchanged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from elmokit.config import parse_config
from elmokit.errors import ConfigError
from elmokit.kernels.library import load
from elmokit.pretrain.recipe import PretrainSettings, Recipe
from elmokit.pretrain.schedule import decay_start, planned_steps
from elmokit.runs.precision import precision_on
from elmokit.runs.resume_check import ADVICE, changed_data, changed_settings, check_unchanged
from elmokit.text.corpus import Corpus

ResumeKey = dict[str, Any]
"""JSON values, as a checkpoint stores them."""

FINGERPRINTS = {"text", "vocabulary"}
# A resumed run may change how long it lasts, and how often it evaluates and saves.
FREE_SETTINGS = {
    "epochs",
    "steps",
    "hours",
    "evaluate_every",
    "heldout_tokens",
    "checkpoint_every",
    "keep_checkpoints",
    "keep_models",
}
LENGTH = {"epochs", "steps"}
SOME_END = {"steps": 1}  # a recipe must have an end; a key may have none
CHOICE = "machine_chooses_precision"


def recipe_key(recipe: Recipe, device: torch.device) -> ResumeKey:
    """Return the part of the key that depends on the recipe, and on the device where the recipe leaves a choice."""
    key = _recipe_key(recipe, precision_on(device, recipe.training.precision))
    return key | {CHOICE: recipe.training.precision == "auto"}


def check_resume(before: Mapping[str, Any], now: Mapping[str, Any], *, folder: Path, advice: str = ADVICE) -> None:
    """Raise ConfigError if any value of ``now`` differs from the run's key; ``now`` may be a part of a key.

    A precision that the recipe leaves to the machine may differ: the run has moved.
    """
    before, now = _without_choice(before, now)
    before = {name: value for name, value in _completed(before).items() if name in now}
    if "training" in now:
        before, now = _without_length(before, now)
    settings = {name: value for name, value in now.items() if name not in FINGERPRINTS}
    data = {name: value for name, value in now.items() if name in FINGERPRINTS}
    old_settings = {name: value for name, value in before.items() if name not in FINGERPRINTS}
    differences = [*changed_settings(old_settings, settings), *changed_data(before, data)]
    check_unchanged(differences, folder=folder, advice=advice)


def check_length(before: Mapping[str, Any], recipe: Recipe, corpus: Corpus, *, step: int, folder: Path) -> None:
    """Raise ConfigError if a constant-linear run changed its length after a step that depends on it.

    ``step`` is the number of steps taken. Before the decay, no step depends on the length.
    """
    if recipe.training.schedule != "constant-linear":
        return  # `check_resume` compares the length as a setting, or it is free
    old, new = (planned_steps(training, corpus) for training in (_parse_key(before).training, recipe.training))
    assert old is not None  # the schedule needs one
    assert new is not None
    if old != new and step > min(decay_start(old), decay_start(new)):
        raise ConfigError(
            f"{folder}: the run in this folder had {old:,} steps and now has {new:,}, but it has taken {step:,}, and "
            f"its learning rate decays after step {min(decay_start(old), decay_start(new)):,}; "
            f"give the steps or epochs that it was started with, or name another run folder"
        )


def machine_kind(device: torch.device, settings: PretrainSettings) -> str:
    """Return what the rounding of a step depends on besides the recipe. A run is repeated bit for bit on one kind."""
    kernels = load()
    compiled = "no kernels" if kernels is None else f"{kernels.isa} kernels"
    kind = f"CPU, torch {torch.backends.cpu.get_cpu_capability()}, {compiled}"
    if device.type != "cpu":
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"{kind}, {precision_on(device, settings.precision)}"


def _without_choice(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[ResumeKey, ResumeKey]:
    """Return both keys without the precision if the machine chooses it, and without that fact."""
    both = [{name: value for name, value in key.items() if name != CHOICE} for key in (before, now)]
    if now.get(CHOICE):
        both[1]["training"] = now["training"] | {"precision": _completed(both[0])["training"]["precision"]}
    return both[0], both[1]


def _recipe_key(recipe: Recipe, precision: str) -> ResumeKey:
    free = FREE_SETTINGS
    if recipe.training.schedule != "constant":
        free = free - LENGTH
    return {
        "input": recipe.input,
        "model": recipe.model.model_dump(mode="json"),
        "softmax": recipe.softmax.model_dump(mode="json"),
        "training": recipe.training.model_dump(mode="json", exclude=free) | {"precision": precision},
    }


def _without_length(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[ResumeKey, ResumeKey]:
    """Return both keys without their lengths if those cannot be compared, or `check_length` compares them."""
    schedules = {key["training"]["schedule"] for key in (before, now)}
    if len(schedules) == 1 and "constant-linear" not in schedules:
        return dict(before), dict(now)
    both = [
        {**key, "training": {name: value for name, value in key["training"].items() if name not in LENGTH}}
        for key in (before, now)
    ]
    return both[0], both[1]


def _parse_key(key: Mapping[str, Any]) -> Recipe:
    parts = {name: key[name] for name in ("input", "model", "softmax") if name in key}  # older keys have no input
    values = {**parts, "training": SOME_END | key["training"]}
    return parse_config(Recipe, values, source="the run in this folder was started by another version of elmokit")


def _completed(before: Mapping[str, Any]) -> ResumeKey:
    """Return a key with the fields that recipes got after it was written; those had their defaults."""
    recipe = _parse_key(before)
    # Before there was a choice, everything was in float32.
    precision = "fp32" if recipe.training.precision == "auto" else recipe.training.precision
    return {**before, **_recipe_key(recipe, precision)}
