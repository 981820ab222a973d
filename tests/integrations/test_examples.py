"""Every example and tutorial of an integration runs, and docs/integrations.md shows the code of the examples."""

import runpy
from pathlib import Path

import pytest
from pages import blocks, run_page

from elmokit.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "atlas_export": "pyarrow",
    "flair_embeddings": "flair",
    "gensim_vectors": "gensim",
    "langchain_search": "langchain_core",
    "sentence_transformers_search": "sentence_transformers",
    "sklearn_classifier": "sklearn",
    "spacy_vectors": "spacy",
    "transformers_model": "transformers",
}


def code_of(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.integration
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip(EXAMPLES[name], reason=f"{EXAMPLES[name]} is not installed; `make integrations` installs it")
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.filterwarnings("default")
def test_the_spacy_tutorial_runs(tmp_path, monkeypatch):
    pytest.importorskip("spacy", reason="spacy is not installed; `make integrations` installs it")
    monkeypatch.chdir(tmp_path)
    assert run_page((ROOT / "docs" / "tutorials" / "spacy.md").read_text(encoding="utf-8")) > 0


def test_the_page_shows_the_examples():
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    shown = [block.text.strip() for block in blocks(page) if block.language == "python"]
    codes = [code_of(name) for name in EXAMPLES]
    assert len(shown) == len(EXAMPLES)
    assert [block for block in shown if not any(block in code for code in codes)] == []
