"""Rules about imports, dependencies and sizes that import-linter cannot express."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "elmokit", "examples", "scripts", "tests")
MAX_FILE_LINES, MAX_BODY_LINES = 400, 50


def imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (module, names taken from it) for every import in a file; no names for a plain ``import``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module), [alias.name for alias in node.names]


@cache
def package_imports() -> list[tuple[str, str, list[str]]]:
    files = sorted((ROOT / "elmokit").rglob("*.py"))
    return [(str(path.relative_to(ROOT)), module, names) for path in files for module, names in imports(path)]


def test_rooms_import_each_other_directly_not_through_the_front_door():
    # `from elmokit import BiLM` finds its room at run time, out of import-linter's sight.
    through_the_front_door = [
        (path, module, names)
        for path, module, names in package_imports()
        if module == "elmokit" and names != ["__version__"]
    ]
    assert through_the_front_door == []


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for extra, names in project["optional-dependencies"].items() if extra != "dev" for name in names]
    declared = {re.match(r"[\w-]+", name)[0].replace("-", "_") for name in project["dependencies"] + extras}
    known = declared | sys.stdlib_module_names | {"elmokit"}
    undeclared = [(path, module) for path, module, _ in package_imports() if module.partition(".")[0] not in known]
    assert undeclared == []


def test_every_direct_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [name for names in project["optional-dependencies"].values() for name in names]
    files = [ROOT / "constraints.txt", *(ROOT / "requirements").glob("integrations-*.txt")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert {re.match(r"[\w-]+", name)[0].lower() for name in wanted} <= pinned


def test_no_file_is_longer_than_400_lines():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {str(path): length for path, length in lengths.items() if length > MAX_FILE_LINES} == {}


@pytest.mark.long
def test_no_function_body_is_longer_than_50_lines():
    bodies = [
        (path.name, node.name, node.end_lineno - (node.body[1:] or node.body)[0].lineno + 1)
        for path in (ROOT / "elmokit").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [body for body in bodies if body[2] > MAX_BODY_LINES] == []
