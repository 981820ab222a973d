"""Every page of the documentation runs and uses public names only; `pages` has the convention."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import blocks, names_in, run_page
from typer.exceptions import TyperException
from typer.main import get_command

import elmokit
from elmokit.cli.app import REQUIRE, app

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


def shown_commands(page: str) -> Iterator[list[str]]:
    """Yield the words of every elmokit command in the code blocks of a page, run or not."""
    for block in re.findall(r"^ *```[^\n]*\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"\s*(?:\$ )?elmokit (\w.*)", line)
            if match and "…" not in line and not line.startswith("elmokit:"):
                command = re.split(r" (?:[|>]|&&|2>) ?", match[1])[0]
                yield shlex.split(command, comments=True)


def parse(words: list[str]) -> None:
    """Raise TyperException if the command line does not know these arguments."""
    if REQUIRE in words:  # `run` takes it and its key out, wherever it stands
        at = words.index(REQUIRE)
        words = words[:at] + words[at + 2 :]
    command, context, name = get_command(app), None, "elmokit"
    while hasattr(command, "resolve_command"):
        context = command.context_class(command, info_name=name, parent=context)
        name, command, words = command.resolve_command(context, words)
    command.make_context(name, list(words), parent=context)


@pytest.mark.long
@pytest.mark.usefixtures("no_install")
@pytest.mark.parametrize(
    "name",
    [
        "analysis",
        "deploying",
        "embedding",
        "encoders",
        "foreign-weights",
        "index",
        "install",
        "migrating",
        "scoring",
        "tasks",
        "tutorials/allennlp",
        "tutorials/embed",
        "tutorials/pytorch",
    ],
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


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_every_command_that_a_page_shows_can_be_parsed(page):
    for words in shown_commands(page.read_text(encoding="utf-8")):
        parse(words)


def test_a_shown_command_with_an_unknown_option_is_found():
    [words] = shown_commands("```\n$ elmokit embed a.txt \\\n    --no-such-option\n```\n")
    with pytest.raises(TyperException, match="no-such-option"):
        parse(words)


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
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
