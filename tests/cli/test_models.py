"""Converting models on the command line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from published import make_published, read_published
from safetensors.numpy import load_file

from elmokit import cli
from elmokit.embed.embedder import Embedder
from elmokit.text.vocab import Vocab
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedSoftmax
from elmokit.weights.source import load_saved, load_softmax


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small published model."""
    return str(
        make_published(tmp_path_factory.mktemp("model"), dim=8, projection_dim=4, n_layers=1).options_path.parent
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_convert_there_and_back_keeps_every_bit(model):
    pair = [str(Path(model, name)) for name in ("weights.hdf5", "options.json")]
    assert cli.run(["convert", *pair, "-o", "ours"]) == 0
    assert cli.run(["convert", *reversed(pair), "-o", "ours"]) == 1  # it exists
    assert cli.run(["convert", *reversed(pair), "-o", "ours", "--force"]) == 0
    assert cli.run(["convert", "ours", "-o", "back", "--to", "hdf5"]) == 0
    before = read_published(Path(model, "options.json"), Path(model, "weights.hdf5"))
    after = read_published(Path("back/options.json"), Path("back/weights.hdf5"))
    assert after.options == before.options
    assert after.arrays.keys() == before.arrays.keys()
    for name, array in before.arrays.items():
        assert np.array_equal(after.arrays[name], array)
    assert cli.run(["convert", "ours", "-o", "back", "--to", "hdf5", "--force"]) == 0


@pytest.mark.usefixtures("folder")
def test_convert_stores_the_warm_state(model):
    assert cli.run(["convert", model, "-o", "ours", "--dtype", "float16"]) == 0
    stored = load_file("ours/model.safetensors")
    assert stored["start_state.forward.cell"].shape == (1, 8)
    assert stored["char_encoder.char_embedding"].dtype == np.float16
    sentence = [["a", "river"]]
    found = Embedder.from_pretrained("ours", state="warm").embed_layers(sentence)[0]
    expected = Embedder.from_pretrained(model, state="warm").embed_layers(sentence)[0]
    np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.usefixtures("folder")
def test_convert_keeps_the_output_layer(model):
    saved = load_saved(model)
    vocab = Vocab(["<S>", "</S>", "<UNK>", "the"])
    weight = torch.randn(4, saved.config.lstm.proj_dim)
    save_folder(saved, "lm", softmax=SavedSoftmax(weight, torch.zeros(4), vocab))
    assert cli.run(["convert", "lm", "-o", "half", "--dtype", "float16"]) == 0
    kept = load_softmax("half")
    assert kept.vocab.words == vocab.words
    np.testing.assert_allclose(kept.weight_VP, weight, atol=1e-2)


def test_convert_does_not_replace_what_is_not_a_model(folder, model):
    (folder / "work").mkdir()
    (folder / "work" / "thesis.tex").write_text("years")
    for to in ("elmokit", "hdf5"):
        assert cli.run(["convert", model, "-o", "work", "--to", to, "--force"]) == 1
    assert (folder / "work" / "thesis.tex").read_text() == "years"
