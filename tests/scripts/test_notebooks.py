"""The notebooks run, and show what they have stored; `scripts/notebooks.py` runs them without Jupyter."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MAX_BYTES = 150_000


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import notebooks

    return notebooks


@pytest.fixture
def make_notebook(tmp_path):
    def make(*sources, outputs=()):
        cells = [{"cell_type": "code", "source": source, "outputs": list(outputs)} for source in sources]
        path = tmp_path / "a.ipynb"
        path.write_text(json.dumps({"cells": cells}))
        return path

    return make


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_shows_what_it_computes(script, path, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    assert script.differences(script.stored_outputs(path), script.run_notebook(path, tmp_path)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_small_and_holds_outputs(script, path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < MAX_BYTES
    assert any(script.stored_outputs(path))
    assert all(cell["id"] and not cell["metadata"] for cell in json.loads(text)["cells"])


def test_cells_share_names_print_and_show_their_last_value(script, make_notebook, tmp_path):
    path = make_notebook("x = 2\nprint('two')\nx", "!printf 'shell\\n'\ny = x + 1", "None")
    found = script.run_notebook(path, tmp_path)
    assert [[script.text_of(output) for output in cell] for cell in found] == [["two\n", "2"], ["shell\n"], []]


def test_a_failing_command_is_an_error(script, make_notebook, tmp_path):
    with pytest.raises(RuntimeError, match="`false` ended with 1"):
        script.run_notebook(make_notebook("!false"), tmp_path)


@pytest.mark.parametrize(
    ("stored", "found", "same"),
    [("a 10.0 b", "a 10.8 b", True), ("a 10.0", "a 11.5", False), ("a 1", "b 1", False), ("1", "1 2", False)],
)
def test_numbers_may_differ_a_little_and_words_not_at_all(script, stored, found, same):
    cells = [[[{"output_type": "stream", "text": text}]] for text in (stored, found)]
    assert (script.differences(*cells) == []) is same


def test_outputs_are_stored_and_read_back(script, make_notebook, tmp_path):
    path = make_notebook("1 + 1")
    found = script.run_notebook(path, tmp_path)
    assert len(script.differences(script.stored_outputs(path), found)) == 1
    script.store(path, found)
    assert script.differences(script.stored_outputs(path), found) == []
    assert script.to_markdown(path) == "```python\n1 + 1\n```\n\n```{ .text .output }\n2\n```\n"
