"""The documentation site: every page is reachable, every link leads to a page of the site."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return the folder of the assembled sources."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))  # it imports notebooks.py
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "SITE", tmp_path)
    script.main()
    return tmp_path


def nav_pages(nav):
    """Return the pages that a navigation lists."""
    return [
        page
        for entry in nav
        for target in entry.values()
        for page in (nav_pages(target) if isinstance(target, list) else [target])
    ]


def test_every_page_of_docs_is_in_the_navigation(built):
    nav = nav_pages(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    assert [page for page in nav if not (built / page).is_file()] == []
    pages = [path for ending in ("md", "ipynb") for path in (ROOT / "docs").rglob(f"*.{ending}")]
    docs = {path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for path in pages}
    assert docs - set(nav) == set()
    top = {path.name for path in built.glob("*.md")}
    assert top - set(nav) == set()


def test_links_lead_to_pages_of_the_site(built):
    for page in built.rglob("*.md"):
        if "source" in page.parts and page.name != "index.md":
            continue  # a file as it is
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


def test_the_help_of_every_verb_is_a_section(built):
    page = (built / "reference" / "commands.md").read_text(encoding="utf-8")
    assert {"elmokit embed", "elmokit task train"} <= set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    assert page.count("Usage: ") == page.count("\n## ")


def test_notebooks_are_pages_with_outputs_and_a_download(built):
    page = (built / "notebooks" / "senses.md").read_text(encoding="utf-8")
    assert (built / "notebooks" / "senses.ipynb").is_file()
    assert "(senses.ipynb)" in page
    assert "```{ .text .output }" in page
    [picture] = re.findall(r"!\[.+?\]\((senses-cell-\d+\.png)\)", page)
    assert (built / "notebooks" / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_site_builds_without_a_warning():
    pytest.importorskip("zensical", reason="needs the extra docs; `make docs` installs it")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "site.py")], check=True)
    subprocess.run([str(Path(sys.executable).parent / "zensical"), "build", "--strict"], check=True, cwd=ROOT)
