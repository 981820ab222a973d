"""Models of ELMoForManyLangs against an oracle, through the Embedder, our folder and the old class."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from many_languages import MISTAKES, SIZES, ManyLanguages, make_many_languages

from elmokit.embed.elmo import Elmo
from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.integrations import elmoformanylangs
from elmokit.integrations.onnx import export_onnx
from elmokit.weights.conversion import convert_model
from elmokit.weights.saved import check_saved
from elmokit.weights.source import load_saved

# Words are cut on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*(was|were) cut")

SENTENCES = [["bank", "的", "Bank", "xé"], ["x" * 10, "\u3000", "knab", "ooo"], ["<bos>", "<pad>", "<S>"], ["a"] * 9]
TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ManyLanguages:
    return make_many_languages(tmp_path_factory.mktemp("many") / "159")


def test_every_layer_matches_the_oracle(model: ManyLanguages) -> None:
    found = Embedder.from_pretrained(model.folder, state="reset").embed_layers(SENTENCES)
    for sentence, layers in zip(SENTENCES, found, strict=True):
        np.testing.assert_allclose(layers, model.layers(sentence), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_notices_every_known_mistake(model: ManyLanguages, mistake: str) -> None:
    gaps = [np.abs(model.layers(sentence) - model.layers(sentence, mistake)).max() for sentence in SENTENCES]
    assert max(gaps) > 100 * TOLERANCE


def test_a_folder_of_ours_gives_the_same_vectors(model: ManyLanguages, tmp_path: Path) -> None:
    convert_model(model.folder, tmp_path / "ours", to="elmokit", half=False, overwrite=False)
    expected = Embedder.from_pretrained(model.folder, state="reset").embed_layers(SENTENCES)
    ours = Embedder.from_pretrained(tmp_path / "ours", state="reset")
    for found in (ours, pickle.loads(pickle.dumps(ours)), Embedder.unpack(ours.pack(with_weights=True))):
        for layers, other in zip(found.embed_layers(SENTENCES), expected, strict=True):
            np.testing.assert_array_equal(layers, other)
    assert "ELMoForManyLangs" in (tmp_path / "ours" / "README.md").read_text("utf-8")
    assert ours.fingerprint() == Embedder.from_pretrained(model.folder, state="reset").fingerprint()
    warm, computed = (Embedder.from_pretrained(folder) for folder in (tmp_path / "ours", model.folder))
    np.testing.assert_allclose(
        warm.embed_layers(SENTENCES[:1])[0], computed.embed_layers(SENTENCES[:1])[0], rtol=0, atol=1e-5
    )
    convert_model(tmp_path / "ours", tmp_path / "ours", to="elmokit", half=True, overwrite=True)
    dictionary = tmp_path / "ours" / "dictionary.json"
    dictionary.write_text(dictionary.read_text("utf-8").replace("bank", "bant"), "utf-8")
    with pytest.raises(WeightsError, match=r"dictionary\.json: its SHA-256 is"):
        load_saved(tmp_path / "ours")


def test_the_layer_of_a_task_model_reads_the_same_ids(model: ManyLanguages) -> None:
    elmo = Elmo.from_pretrained(model.folder, state="reset", dropout=0.0, only_layer=2)
    found = elmo(elmo.char_ids(SENTENCES[:2]))
    assert found.mask_BT.sum(dim=1).tolist() == [4, 4]
    for row, sentence in enumerate(SENTENCES[:2]):
        np.testing.assert_allclose(found.mixes[0][row].detach(), model.layers(sentence)[2], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("output_layer", [0, 1, 2, -1, -2])
def test_sents2elmo_returns_what_the_old_class_did(model: ManyLanguages, output_layer: int) -> None:
    embedder = elmoformanylangs.Embedder(str(model.folder), 2)
    found = embedder.sents2elmo(SENTENCES, output_layer=output_layer)
    for sentence, vectors in zip(SENTENCES, found, strict=True):
        layers = model.layers(sentence)
        expected = {-1: layers.mean(axis=0), -2: layers}.get(output_layer, layers[output_layer])
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=TOLERANCE)
    with pytest.raises(InputError, match="output_layer 3; expected"):
        embedder.sents2elmo(SENTENCES, output_layer=3)


def test_published_models_without_their_own_sizes_have_the_published_ones(model: ManyLanguages, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model.folder, tmp_path / "model"))
    (folder / "tiny.json").unlink()
    with pytest.raises(WeightsError, match=r"token_embedder\.pkl: .* missing"):
        load_saved(folder)  # the published sizes, which are not those of this model


def test_an_archive_of_the_repository_loads(model: ManyLanguages, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "159"), "zip", model.folder)
    assert load_saved(archive).config == load_saved(model.folder).config


class Harmful:
    """A pickle that would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code_is_not_opened(model: ManyLanguages, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model.folder, tmp_path / "model"))
    for write in (torch.save, lambda value, path: Path(path).write_bytes(pickle.dumps(value))):
        write(Harmful(tmp_path / "harm"), folder / "encoder.pkl")
        with pytest.raises(WeightsError, match=r"encoder\.pkl: .*(could run code|not a file of torch)"):
            load_saved(folder)
        assert not (tmp_path / "harm").exists()


def change_sizes(folder: Path, part: str, **values: Any) -> None:
    sizes = json.loads(json.dumps(SIZES))
    sizes[part] |= values
    (folder / "tiny.json").write_text(json.dumps(sizes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "encoder.pkl").write_bytes(b"damage"), "not a file of torch|could run code"),
        (lambda folder: (folder / "char.dic").unlink(), r"without char\.dic; download it again"),
        (lambda folder: (folder / "char.dic").write_text("a\tb\tc\n"), r"char\.dic, line 1: 'a\\tb\\tc'; expected"),
        (lambda folder: (folder / "word.dic").write_text("a\t0\n"), r"word\.dic: has no <oov> <bos> <eos>"),
        (lambda folder: (folder / "word.dic").write_text("<oov>\t0\n<bos>\t3\n<eos>\t2\n"), "its ids are not 0 to 2"),
        (lambda folder: change_sizes(folder, "encoder", name="lstm"), r"are \('cnn', 'lstm'\); elmokit runs"),
        (lambda folder: change_sizes(folder, "token_embedder", word_dim=7), r"word_emb_layer.* has shape \(10, 6\)"),
        (lambda folder: change_sizes(folder, "encoder", n_layers=3), "forward_layer_2.* missing"),
        (lambda folder: torch.save({"extra": [1]}, folder / "encoder.pkl"), "expected a state dict, tensors by name"),
    ],
)
def test_damaged_models_are_named(model: ManyLanguages, tmp_path: Path, damage: Any, message: str) -> None:
    folder = Path(shutil.copytree(model.folder, tmp_path / "model"))
    damage(folder)
    with pytest.raises(ElmokitError, match=message):
        load_saved(folder)


def test_exports_without_a_place_for_the_dictionary_are_rejected(model: ManyLanguages, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no place for a dictionary of characters"):
        convert_model(model.folder, tmp_path / "hdf5", to="hdf5", half=False, overwrite=False)
    pytest.importorskip("onnx")
    with pytest.raises(InputError, match="ONNX export supports models that read bytes"):
        export_onnx(model.folder, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_dictionary_of_another_model_is_rejected(model: ManyLanguages) -> None:
    saved = load_saved(model.folder)
    assert saved.dictionary is not None
    shorter = replace(saved.dictionary, words=saved.dictionary.words[1:])
    with pytest.raises(WeightsError, match="the dictionary has 9 words with the special ones; the config says 10"):
        check_saved(replace(saved, dictionary=shorter), source="model")
    with pytest.raises(WeightsError, match="needs a dictionary, and has none"):
        check_saved(replace(saved, dictionary=None), source="model")
