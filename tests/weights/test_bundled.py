"""The English model that comes with the package, used where none is named."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import Elmo, Embedder, Scorer, cli
from elmokit.errors import WeightsError
from elmokit.text.chars import pad_sentences
from elmokit.weights import bundled
from elmokit.weights.bundled import EN_SMALL, find_model
from elmokit.weights.source import load_saved

pytestmark = pytest.mark.long

MOST_BYTES = 40_000_000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.from_pretrained()


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_it_is_small_and_stored_in_half_precision():
    assert sum(path.stat().st_size for path in EN_SMALL.iterdir()) <= MOST_BYTES
    assert all(tensor.dtype == torch.float32 for tensor in load_saved(EN_SMALL).tensors.values())
    assert (EN_SMALL / "softmax.safetensors").stat().st_size < 2.1 * 128 * 60_000


def test_it_is_the_default_everywhere(embedder):
    layers = embedder.embed_layers(["The bank closed early."])[0]
    assert layers.shape == (3, 5, 256)
    elmo = Elmo.from_pretrained(dropout=0.0).eval()
    mixed = elmo(torch.from_numpy(pad_sentences([["The", "bank", "closed", "early", "."]], max_chars=50))).mixes[0]
    np.testing.assert_allclose(mixed[0].detach(), layers.mean(axis=0), atol=1e-5)
    assert len(Scorer.from_pretrained().vocab) == 60_000


def test_a_word_differs_between_senses_more_than_within_one(embedder):
    sentences = [
        ["She", "borrowed", "the", "money", "from", "a", "bank", "in", "London", "."],
        ["He", "took", "the", "loan", "from", "a", "bank", "in", "Paris", "."],
        ["They", "walked", "in", "the", "evening", "along", "the", "bank", "of", "the", "river", "."],
    ]
    loan, other_loan, river = (
        layers[2, sentence.index("bank")]
        for layers, sentence in zip(embedder.embed_layers(sentences), sentences, strict=True)
    )
    assert cosine(loan, other_loan) > cosine(loan, river) + 0.1


def test_sense_scores_above_nonsense():
    good, bad = Scorer.from_pretrained().score(["The bank closed early .".split(), "early The . closed bank".split()])
    assert good.perplexity < bad.perplexity / 10


def test_commands_use_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The bank closed early.\nThey sat on the bank of a river.\n")
    assert cli.run(["embed", "text.txt", "-o", "out.npy"]) == 0
    assert np.load("out.npy").shape == (14, 3, 256)
    assert cli.run(["score", "text.txt", "--json"]) == 0
    assert cli.run(["neighbors", "bank", "--in", "text.txt", "--json", "-k", "1"]) == 0
    assert cli.run(["info", "en-small", "--json"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out.splitlines()[0])["perplexity"] < 2000


def test_a_folder_of_the_same_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model("en-small") == EN_SMALL
    Path("en-small").mkdir()
    assert find_model("en-small") == Path("en-small")
    with pytest.raises(WeightsError, match="no model in this folder"):
        Embedder.from_pretrained("en-small")
    assert Embedder.from_pretrained().num_layers == 3  # the default is the bundled one, wherever one is


def test_paths_are_no_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model("other") == Path("other")
    assert find_model("folder/en-small") == Path("folder/en-small")
    assert find_model("") == Path()


def test_a_package_without_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.weights.source.BUNDLED", tmp_path / "bundled")
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path / "bundled")
    with pytest.raises(WeightsError, match="does not exist; it should come with elmokit"):
        load_saved(tmp_path / "bundled" / "en-small")


def test_its_files_are_as_they_were_saved(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(EN_SMALL, copy)
    path = copy / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="SHA256SUMS"):
        load_saved(copy)


def test_the_demo_runs(capfd):
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    out, err = capfd.readouterr()
    assert "Nearest to" in out
    assert err == ""


def test_the_wheel_carries_it():
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds wheels, and is not installed")
    carried = {file.distribution_path for file in wheel.WheelBuilder(str(ROOT)).recurse_project_files()}
    assert {f"elmokit/bundled/en-small/{path.name}" for path in EN_SMALL.iterdir()} <= carried
