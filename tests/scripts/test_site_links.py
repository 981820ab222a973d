"""The check of the built site finds links that lead nowhere."""

from pathlib import Path

import pytest


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import site_links

    return site_links


def test_missing_pages_files_and_anchors_are_listed(script, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h1 id="top">A</h1><a href="..">up</a><img src="x.png">')
    (tmp_path / "index.html").write_text(
        '<a href="a/#top"></a><a href="a/#gone"></a><a href="b/"></a><a href="https://x.org/c"></a><a href="#here"></a>'
    )
    assert sorted(script.broken_links(tmp_path)) == [
        "a/index.html: x.png",
        "index.html: #here",
        "index.html: a/#gone",
        "index.html: b/",
    ]
