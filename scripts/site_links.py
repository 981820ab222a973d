"""Check the links of the built site: every page, file and anchor exists. `make docs` runs this after zensical.

python scripts/site_links.py [build/site]
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the link or anchor of a tag."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif value and (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")}:
                self.links.add(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for every link of a page that leads nowhere within the site."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links start at the root of the server
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            missing = not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors)
            if missing and not anchor.startswith("__"):  # the theme's own
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")
    found = broken_links(site)
    if found:
        sys.exit("links that lead nowhere:\n" + "\n".join(found))


if __name__ == "__main__":
    main()
