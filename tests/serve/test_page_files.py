"""The page consists of plain local files, and its policy forbids everything else."""

import re

from live_server import serving, toy_models

from elmokit.serve.page_files import PAGE


def test_the_page_and_its_files_are_served_with_a_strict_policy():
    with serving(toy_models(), api_keys=["secret"]) as client:
        page = client.get("/")
        assert page.status == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        files = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
        assert len(files) > 8
        for name in files:
            answer = client.get(f"/{name}")
            assert answer.status == 200
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert {f"page/{path.name}" for path in PAGE.iterdir()} - {"page/index.html"} == set(files)


def test_no_file_has_inline_code_or_a_foreign_address():
    html = (PAGE / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", html)
    for path in PAGE.iterdir():
        addresses = re.findall(r"https?://[^\s\"'`)]+", path.read_text("utf-8"))
        assert {address for address in addresses if not re.search("www.w3.org|localhost", address)} == set(), path.name
