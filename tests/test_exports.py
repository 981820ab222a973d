"""Names that `import elmokit` exports, and the cost of importing it."""

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import elmokit
from elmokit import errors

HEAVY = {"h5py", "numpy", "pydantic", "rich", "sacremoses", "safetensors", "torch", "typer"}
HELP_SECONDS = 0.3
ROOT = Path(__file__).parent.parent


def heavy_modules_after(code: str) -> set[str]:
    """Run ``code`` in a fresh interpreter; return the heavy packages it has loaded by its end."""
    report = (
        f"import atexit, json, sys\natexit.register(lambda: print(json.dumps([*sys.modules]), file=sys.stderr))\n{code}"
    )
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(run.stderr))


def type_checking_imports() -> dict[str, str]:
    """Return name -> module of the imports that only a type checker sees."""
    tree = ast.parse(Path(elmokit.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_exports_are_sorted_and_unique():
    assert elmokit.__all__ == sorted(set(elmokit.__all__))


@pytest.mark.parametrize("name", elmokit.__all__)
def test_every_export_resolves(name):
    assert getattr(elmokit, name) is not None


def test_exports_are_listed_before_they_are_first_used():
    code = "import elmokit; print(*set(elmokit.__all__) - set(dir(elmokit)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_type_checkers_see_every_export_where_it_lives():
    seen = type_checking_imports()
    assert sorted([*seen, "__version__"]) == elmokit.__all__
    for name, module in seen.items():
        assert getattr(elmokit, name) is getattr(importlib.import_module(module), name)


def test_every_error_is_exported():
    tree = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert tree <= set(elmokit.__all__)


def test_a_misspelt_export_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Embeder'"):
        _ = elmokit.Embeder


def test_importing_the_package_loads_nothing_heavy():
    assert heavy_modules_after("import elmokit; dir(elmokit)") == set()


def test_an_error_can_be_caught_without_loading_anything_heavy():
    assert heavy_modules_after("from elmokit import ElmokitError") == set()


def test_help_never_loads_torch():
    code = "import sys; sys.argv = ['elmokit', '--help']\nfrom elmokit.cli import main\nmain()"
    assert "torch" not in heavy_modules_after(code)


@pytest.mark.long
def test_help_answers_at_once():
    # Processor time, not the clock: on a busy machine even the best of ten runs waits as long as it works.
    seconds = []
    for _ in range(5):
        before = os.times()
        run = subprocess.run([sys.executable, "-m", "elmokit", "--help"], capture_output=True, text=True, check=True)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        seconds.append(used)
        assert "elmokit" in run.stdout
        if 0 < used < HELP_SECONDS:
            return
    pytest.fail(f"help took {seconds} seconds; expected less than {HELP_SECONDS} in one of the runs")


def test_public_modules_are_sorted_and_exist():
    assert list(elmokit.PUBLIC_MODULES) == sorted(elmokit.PUBLIC_MODULES)
    for module in elmokit.PUBLIC_MODULES:
        assert importlib.util.find_spec(module) is not None


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="elmokit")
    assert command.load() is importlib.import_module("elmokit.cli").main


def test_the_changelog_begins_with_this_version():
    changelog = Path(__file__).parent.parent / "CHANGELOG.md"
    versions = re.findall(r"^## (\S+)", changelog.read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == elmokit.__version__
