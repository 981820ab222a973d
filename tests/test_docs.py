"""Every page of the documentation runs; `pages` has the convention."""

from pathlib import Path

import pytest
from pages import run_page

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.long
@pytest.mark.parametrize("name", ["analysis", "deploying", "migrating", "scoring", "tasks"])
def test_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page((DOCS / f"{name}.md").read_text(encoding="utf-8")) > 0
