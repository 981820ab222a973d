"""Settings of a run: everything that it depends on besides the content of its inputs, without any path."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elmokit.config import find_recipe
from elmokit.errors import ConfigError
from elmokit.paper.arms import ARMS
from elmokit.paper.plan import ENSEMBLE, NEIGHBORS, SENSES, TAGS, TASK, TUNING, PaperRun, members, task_of
from elmokit.pretrain.finetune import FinetuneSettings
from elmokit.pretrain.recipe import PretrainSettings
from elmokit.tasks.names import get_task
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe, model_settings, resolve_recipe

VECTORS, MODEL = "vectors", "model"  # placeholders of paths in a recipe
# A quarter of the paper's rate, with which short texts get worse: Adagrad's sums start anew (docs/log.md).
TUNING_SETTINGS = FinetuneSettings(training=PretrainSettings(epochs=1.0, num_rows=32, learning_rate=0.05))

# Less data needs more epochs: these are 2,000 steps. Evaluations are counted in steps, since an epoch may be one step.
FRACTION_SETTINGS: dict[float, dict[str, Any]] = {
    0.001: {"training.epochs": 2_000, "training.evaluate_every": 50, "training.patience": 6},
    0.01: {"training.epochs": 1_000, "training.evaluate_every": 50, "training.patience": 6},
    0.1: {"training.epochs": 100, "training.evaluate_every": 100, "training.patience": 5},
}


class Recipes:
    """Recipes of the tasks: elmokit's for this page, or TOML files in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._made: dict[PaperRun, TaskRecipe] = {}

    def recipe(self, run: PaperRun) -> TaskRecipe:
        """Return the recipe of a run, with placeholders for paths."""
        if run not in self._made:
            self._made[run] = self._make(run)
        return self._made[run]

    def settings(self, run: PaperRun) -> dict[str, Any]:
        """Return the settings of a run as JSON values."""
        if run.kind == TASK:
            source = ARMS[run.arm].source
            tuning = {"tuning": tuning_settings()} if source == "tuned" else {}
            return {"kind": TASK, "row": run.row, "source": source, "recipe": _dump(self.recipe(run)), **tuning}
        if run.kind == ENSEMBLE:
            return {"kind": ENSEMBLE, "members": [self.settings(member) for member in members(run)]}
        settings: dict[str, Any] = {"kind": run.kind, "row": run.row, "source": run.arm}
        if run.kind == TUNING:
            settings["tuning"] = tuning_settings()
        if run.kind in (NEIGHBORS, SENSES, TAGS):
            settings["answers"] = "by instance"  # older results have none
        return settings

    def distinct(self, runs: Iterable[PaperRun]) -> list[PaperRun]:
        """Return the runs without those whose settings equal those of an earlier one."""
        found: dict[str, PaperRun] = {}
        for run in runs:
            found.setdefault(json.dumps(self.settings(run), sort_keys=True), run)
        return list(found.values())

    def _make(self, run: PaperRun) -> TaskRecipe:
        task = task_of(run.row)
        assert task is not None
        path = find_recipe(task, folder="reproduce") if self._folder is None else self._folder / f"{task}.toml"
        base = resolve_recipe(task, path, elmo=MODEL, vectors=VECTORS)
        if base.elmo.place == "none":
            raise ConfigError(f"{path}: elmo.place is none; set the place of ELMo")
        settings = {**ARMS[run.arm].settings, **_fraction_settings(run, base, path), "training.seed": run.seed}
        recipe = resolve_recipe(task, path, settings=settings, elmo=MODEL, vectors=VECTORS)
        if recipe.elmo.place == "none":
            recipe = recipe.model_copy(update={"elmo": ElmoSettings(place="none")})
        return recipe


def tuning_settings() -> dict[str, Any]:
    """Return the settings of the biLM's tuning on a row's text."""
    return TUNING_SETTINGS.model_dump(mode="json", exclude_defaults=True)


def _fraction_settings(run: PaperRun, base: TaskRecipe, path: Path) -> dict[str, Any]:
    if run.fraction == 1:
        return {}
    whole = base.training.max_examples
    if whole is None:
        raise ConfigError(f"{path}: has no training.max_examples, of which Figure 1 takes fractions; set it")
    return {**FRACTION_SETTINGS[run.fraction], "training.max_examples": max(1, round(whole * run.fraction))}


def _dump(recipe: TaskRecipe) -> dict[str, Any]:
    """Return a recipe without the values that are defaults: a new option leaves old runs what they were."""
    dumped = recipe.model_dump(mode="json", exclude_defaults=True, exclude={"model"})
    sizes = model_settings(get_task(recipe.task), recipe)
    return {**dumped, "model": sizes.model_dump(mode="json", exclude_defaults=True)}
