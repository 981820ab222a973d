"""The recipes of the tasks: complete, installed and found by name."""

from pathlib import Path

import pytest

from elmokit.config import find_recipe, parse_config, read_recipe
from elmokit.errors import ConfigError
from elmokit.tasks.names import TASKS, get_task
from elmokit.tasks.recipe import TaskRecipe

# classify and tag are not in the paper.
RECIPES = [f"{task}{end}" for task in TASKS for end in ("", "-paper") if task not in ("classify", "tag") or not end]


@pytest.mark.parametrize("name", RECIPES)
def test_every_task_has_recipes_that_fit_it(name):
    recipe, task = read_recipe(TaskRecipe, find_recipe(name, folder="tasks"), []), name.removesuffix("-paper")
    assert recipe.task == task
    parse_config(get_task(task).settings, recipe.model, source="model")
    assert recipe.elmo.place != "none"


def test_a_recipe_is_found_inside_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "elmokit" / "recipes" / "tasks").mkdir(parents=True)
    (tmp_path / "elmokit" / "recipes" / "tasks" / "chess.toml").touch()
    monkeypatch.setattr("elmokit.config.__file__", str(tmp_path / "elmokit" / "config.py"))
    assert find_recipe("chess", folder="tasks").name == "chess.toml"
    with pytest.raises(ConfigError, match="no recipe 'ner'; name a TOML file, or one of ours: chess"):
        find_recipe("ner", folder="tasks")


def test_the_wheel_carries_the_recipes():
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds wheels, and is not installed")
    builder = wheel.WheelBuilder(str(Path(__file__).parents[2]))
    carried = {file.distribution_path for file in builder.recurse_forced_files(builder.config.get_force_include())}
    assert {f"elmokit/recipes/tasks/{name}.toml" for name in RECIPES} <= carried
    assert "elmokit/recipes/encoders/cove.toml" in carried
    assert "elmokit/recipes/small.toml" in carried
