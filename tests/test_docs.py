"""Every page of the documentation runs and uses public names only; `pages` has the convention."""

import ast
import re
from pathlib import Path

import pytest
from pages import blocks, names_in, run_page

import elmokit

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PROGRAMS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
EXPORTED = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
IN_MODULES = re.compile(r"^\| `(elmokit\.[\w.]+)` \| (.+?) \|", re.MULTILINE)


def public_names() -> set[tuple[str, str]]:
    """Return (module, name) for every name that docs/api.md lists."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    in_modules = {(module, name) for module, names in IN_MODULES.findall(page) for name in re.findall(r"\w+", names)}
    return {("elmokit", name) for name in EXPORTED.findall(page)} | in_modules


def imported_names(path: Path) -> set[tuple[str, str]]:
    """Return (module, name) for every import from elmokit in a program or in a page's Python blocks."""
    text = path.read_text(encoding="utf-8")
    programs = [block.text for block in blocks(text) if block.language == "python"] if path.suffix == ".md" else [text]
    trees = list(map(ast.parse, programs))
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        (str(node.module), alias.name)
        for node in imports
        if str(node.module).partition(".")[0] == "elmokit"
        for alias in node.names
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["analysis", "deploying", "encoders", "foreign-weights", "index", "migrating", "scoring", "tasks"],
)
def test_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page((DOCS / f"{name}.md").read_text(encoding="utf-8")) > 0


def test_every_export_is_listed_as_public():
    assert sorted(name for module, name in public_names() if module == "elmokit") == elmokit.__all__


def test_every_public_name_exists():
    for module, name in public_names():
        assert name in names_in(module), f"{module}.{name}"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_pages_and_examples_import_public_names_only(path):
    assert imported_names(path) - public_names() == set()


def test_public_modules_are_those_of_public_names():
    assert {module for module, _ in public_names()} - {"elmokit"} == set(elmokit.PUBLIC_MODULES)


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8"))
    for path, anchor in links:
        target = page.parent / path if path else page
        if path.startswith("../../actions"):
            continue
        assert target.exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}
