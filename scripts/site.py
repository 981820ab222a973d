"""Assemble the sources of the documentation site in build/docs. `make docs` runs this, then zensical.

The pages of docs/ move to the top of the site. A notebook becomes a page with its stored outputs, and can be
downloaded. README.md is the tour; results, benchmark pages, the changelog and CONTRIBUTING.md keep their paths. A link
to any other file of the repository leads to a page that shows the file, one to a folder leads to a list of its files.
The help of every verb becomes one page.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from notebooks import pictures_of, to_markdown
from typer.main import get_command

from elmokit.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "docs"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".c": "c", ".yml": "yaml", ".sh": "bash", ".jsonl": "json"}
COPIED = {".css", ".png", ".svg"}
NOTEBOOK = ".ipynb"
DOWNLOAD = "*This page is a notebook: [download]({name}) it, and run it in Jupyter.*"
BADGES = re.compile(r"^\[!\[.*\n\n", re.MULTILINE)
WIDE = "---\nhide:\n  - navigation\n  - toc\n---\n\n"  # the landing page has no columns beside it
MAX_SHOWN = 200_000  # characters of a file that a page shows


def pages() -> dict[PurePosixPath, PurePosixPath]:
    """Return the pages, notebooks and pictures of the repository: path there -> path on the site."""
    found = {PurePosixPath("README.md"): PurePosixPath("tour.md")}
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        found[PurePosixPath(name)] = PurePosixPath(name)
    for folder in ("docs", "results", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".md", NOTEBOOK, *COPIED}:
                here = PurePosixPath(path.relative_to(ROOT).as_posix())
                place = here.relative_to("docs") if folder == "docs" else here
                found[here] = place.with_suffix(".md") if path.suffix == NOTEBOOK else place
    return found


class Site:
    """Pages under construction: rewrites links, and collects the files that they lead to."""

    def __init__(self) -> None:
        self.places = pages()
        self._waiting = list(self.places)

    def build(self) -> None:
        """Write every page, and every file that a page links to."""
        while self._waiting:
            source = self._waiting.pop()
            target = SITE / self.places[source]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix in COPIED:
                shutil.copy(ROOT / source, target)
            elif source.suffix == NOTEBOOK:
                shutil.copy(ROOT / source, target.with_suffix(NOTEBOOK))
                target.write_text(self._notebook(source, target.parent), encoding="utf-8")
            else:
                target.write_text(self._page(source), encoding="utf-8")

    def _notebook(self, source: PurePosixPath, folder: Path) -> str:
        title, _, rest = self._relink(source, to_markdown(ROOT / source)).partition("\n")
        for name, picture in pictures_of(ROOT / source):
            (folder / name).write_bytes(picture)
        return f"{title}\n\n{DOWNLOAD.format(name=source.name)}\n{rest}"

    def _page(self, source: PurePosixPath) -> str:
        path = ROOT / source
        if path.is_dir():
            files = sorted(file.name for file in path.iterdir() if file.is_file())
            return self._relink(source, f"# {source}\n\n" + "".join(f"- [{name}]({name})\n" for name in files))
        text = path.read_text(encoding="utf-8")
        if source.suffix == ".md":
            wide = WIDE if self.places[source] == PurePosixPath("index.md") else ""
            return wide + self._relink(source, BADGES.sub("", text, count=1))
        return f"# {source}\n\n````{LANGUAGES.get(source.suffix, 'text')}\n{text[:MAX_SHOWN]}\n````\n"

    def _relink(self, source: PurePosixPath, text: str) -> str:
        return LINK.sub(lambda match: self._link_on_site(source, match), text)

    def _link_on_site(self, source: PurePosixPath, match: re.Match[str]) -> str:
        before, link, anchor, after = match.groups(default="")
        folder = source if (ROOT / source).is_dir() else source.parent
        linked = PurePosixPath(os.path.normpath(folder / link))
        if before.startswith("![") and linked.name.startswith(f"{source.stem}-cell-"):
            return match[0]  # a picture of a notebook
        if not (ROOT / linked).exists():
            raise SystemExit(f"{source}: no such file: {link}")
        if linked not in self.places:
            page = f"{linked}/index.md" if (ROOT / linked).is_dir() else f"{linked}.md"
            self.places[linked] = PurePosixPath("source", page.lstrip("."))  # hidden folders are not built
            self._waiting.append(linked)
        return f"{before}{os.path.relpath(self.places[linked], self.places[source].parent)}{anchor}{after}"


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield (verb, help) for every verb and subverb."""
    command = get_command(app)
    waiting = [("elmokit", command, None)]
    while waiting:
        name, verb, parent = waiting.pop(0)
        context = verb.context_class(verb, info_name=name.split()[-1], parent=parent, **verb.context_settings)
        yield name, verb.get_help(context)
        for sub in getattr(verb, "list_commands", lambda _: [])(context):
            waiting.append((f"{name} {sub}", verb.get_command(context, sub), context))


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    Site().build()
    lines = ["# Command line\n\n`elmokit VERB --help` prints the same.\n"]
    lines += [f"\n## {name}\n\n```text\n{text.strip()}\n```\n" for name, text in help_texts()]
    (SITE / "reference" / "commands.md").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
