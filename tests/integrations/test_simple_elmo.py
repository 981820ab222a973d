"""simple_elmo's class under its old names: padded arrays independent of the batch, and archives."""

import copy
import pickle
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import Oracle
from published import PublishedModel, make_published

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.integrations.simple_elmo import ElmoModel
from elmokit.model.language_model import LanguageModel
from elmokit.score.saved_lm import save_language_model
from elmokit.score.scoring import Scorer
from elmokit.text.vocab import Vocab
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import start_state_shapes
from elmokit.weights.source import load_saved

TOLERANCE = 5e-6
TEXTS = ["The bank closed .", ["Play"], "Children play\toutside"]
SENTENCES = [["The", "bank", "closed", "."], ["Play"], ["Children", "play", "outside"]]
NUM_LAYERS, WIDTH = 3, 16  # of the fixture's model
PICK: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "average": lambda layers: layers.mean(axis=0),
    "top": lambda layers: layers[-1],
    "all": lambda layers: layers,
}


@pytest.fixture
def model(published_model: PublishedModel) -> ElmoModel:
    model = ElmoModel()
    model.load(published_model.options_path.parent)
    return model


@pytest.fixture
def expected(published_model: PublishedModel) -> list[np.ndarray]:
    """Return every text's layers from a zero state, (L, T, D)."""
    return Oracle(published_model.arrays, published_model.options).run_bilm(SENTENCES).layers


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("layers", PICK)
def test_vectors_are_padded_with_zeros(model: ElmoModel, expected: list[np.ndarray], layers: str) -> None:
    found = model.get_elmo_vectors(TEXTS, warmup=False, layers=layers)
    assert found.shape == ((3, NUM_LAYERS, 4, WIDTH) if layers == "all" else (3, 4, WIDTH))
    assert found.dtype == np.float32
    for row, layers_LTD in enumerate(expected):
        length = layers_LTD.shape[1]
        np.testing.assert_allclose(found[row, ..., :length, :], PICK[layers](layers_LTD), rtol=0, atol=TOLERANCE)
        assert not found[row, ..., length:, :].any()


@pytest.mark.parametrize("layers", PICK)
def test_averages_are_of_real_tokens_layer_by_layer(model: ElmoModel, expected: list[np.ndarray], layers: str) -> None:
    found = model.get_elmo_vector_average(TEXTS, warmup=False, layers=layers)
    assert found.shape == ((3, NUM_LAYERS, WIDTH) if layers == "all" else (3, WIDTH))
    for row, layers_LTD in enumerate(expected):
        mean = PICK[layers](layers_LTD).mean(axis=-2)
        np.testing.assert_allclose(found[row], unit(mean), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("warmup", [True, False])
def test_an_average_does_not_depend_on_batch_mates_or_history(model: ElmoModel, warmup: bool) -> None:
    alone = model.get_elmo_vector_average(TEXTS[1:2], warmup)
    among_long_ones = model.get_elmo_vector_average([["word"] * 60, TEXTS[1]], warmup)
    np.testing.assert_allclose(among_long_ones[1], alone[0], rtol=0, atol=1e-5)
    assert np.array_equal(model.get_elmo_vector_average(TEXTS[1:2], warmup), alone)


def test_warmup_begins_every_text_in_the_warm_state(model: ElmoModel, published_model: PublishedModel) -> None:
    warm = Embedder.from_pretrained(published_model.pair, state="warm").embed_tokens(SENTENCES, layer=-1)
    found = model.get_elmo_vectors(TEXTS, layers="top")
    np.testing.assert_allclose(found[2, :3], warm[2], rtol=0, atol=1e-5)
    assert np.abs(found - model.get_elmo_vectors(TEXTS, warmup=False, layers="top")).max() > 0.01


def test_a_warm_state_saved_with_the_model_is_used(published_model: PublishedModel, tmp_path: Path) -> None:
    saved = load_saved(published_model.pair)
    start = {name: torch.full(shape, 0.7) for name, shape in start_state_shapes(saved.config).items()}
    save_folder(replace(saved, start_state=start), tmp_path / "ours")
    model = ElmoModel()
    model.load(tmp_path / "ours")
    native = Embedder.from_pretrained(tmp_path / "ours", state="warm").embed_tokens(SENTENCES, layer="mean")
    np.testing.assert_allclose(model.get_elmo_vectors(TEXTS)[0], native[0], rtol=0, atol=1e-5)


def test_texts_without_tokens_are_zeros(model: ElmoModel) -> None:
    assert model.get_elmo_vectors([]).shape == (0, 0, WIDTH)
    assert model.get_elmo_vectors([[], ""], layers="all").shape == (2, NUM_LAYERS, 0, WIDTH)
    assert model.get_elmo_vector_average([], layers="all").shape == (0, NUM_LAYERS, WIDTH)
    averages = model.get_elmo_vector_average(["", "bank"])
    assert not averages[0].any()
    assert np.linalg.norm(averages[1]) == pytest.approx(1, abs=1e-6)


def test_long_texts_are_cut_with_one_warning(published_model: PublishedModel) -> None:
    model = ElmoModel()
    model.load(published_model.options_path.parent, max_batch_size=2, limit=3)
    with pytest.warns(UserWarning, match="1 of 3 texts are longer than 3 tokens") as caught:
        found = model.get_elmo_vectors(TEXTS, warmup=False)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(model.get_elmo_vectors([SENTENCES[0][:3], *SENTENCES[1:]], warmup=False), found)
        model.get_elmo_vectors(TEXTS)  # cut, but said before


# Where a model is loaded from


def folder_with(model: PublishedModel, folder: Path, *weights: str) -> Path:
    folder.mkdir()
    shutil.copy(model.options_path, folder / "options.json")
    for name in weights:
        shutil.copy(model.weights_path, folder / name)
    return folder


def zip_with(archive: Path, names: dict[str, Path | bytes]) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in names.items():
            zipped.writestr(name, content if isinstance(content, bytes) else content.read_bytes())
    return archive


def top_vectors(source: Path | str) -> np.ndarray:
    model = ElmoModel()
    model.load(source)
    return model.get_elmo_vectors(TEXTS, warmup=False, layers="top")


def test_model_hdf5_is_preferred_then_the_first(
    published_model: PublishedModel, model: ElmoModel, tmp_path: Path
) -> None:
    other = make_published(tmp_path / "other", seed=1)
    expected = model.get_elmo_vectors(TEXTS, warmup=False, layers="top")
    preferred = folder_with(published_model, tmp_path / "preferred", "model.hdf5")
    shutil.copy(other.weights_path, preferred / "a.hdf5")
    assert np.array_equal(top_vectors(str(preferred)), expected)
    first = folder_with(published_model, tmp_path / "first", "b.hdf5")
    shutil.copy(other.weights_path, first / "c.hdf5")
    assert np.array_equal(top_vectors(first), expected)


@pytest.mark.parametrize(("inside", "weights"), [("", "model.hdf5"), ("193/", "model.hdf5"), ("", "weights.hdf5")])
def test_an_archive_gives_what_its_folder_gives(
    published_model: PublishedModel, model: ElmoModel, tmp_path: Path, inside: str, weights: str
) -> None:
    members = {
        f"{inside}README": b"about",
        f"{inside}{weights}": published_model.weights_path,
        f"{inside}options.json": published_model.options_path,
        f"__MACOSX/{inside}._{weights}": b"metadata",
        f"__MACOSX/{inside}._options.json": b"metadata",
    }
    archive = zip_with(tmp_path / "193.zip", members)
    assert np.array_equal(top_vectors(archive), model.get_elmo_vectors(TEXTS, warmup=False, layers="top"))


def test_an_archive_writes_nowhere_and_leaves_nothing(
    published_model: PublishedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "deep" / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    members = {"../../options.json": published_model.options_path, "../../../model.hdf5": published_model.weights_path}
    archive = zip_with(tmp_path / "deep" / "hostile.zip", members)
    with pytest.raises(WeightsError, match="leaves the archive"):
        top_vectors(archive)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "hostile.zip", "temporary"]


def test_a_bomb_is_rejected_before_it_is_unpacked(published_model: PublishedModel, tmp_path: Path) -> None:
    members = {"options.json": published_model.options_path, "model.hdf5": bytes(20_000_000)}
    archive = zip_with(tmp_path / "bomb.zip", members)
    with pytest.raises(WeightsError, match=r"claims 20,000,\d+ bytes in an archive of"):
        ElmoModel().load(archive)
    members = {"options.json": bytes(2_000_000), "model.hdf5": published_model.weights_path}
    with pytest.raises(WeightsError, match=r"claims 2,\d+,\d+ bytes in an archive of"):
        ElmoModel().load(zip_with(tmp_path / "options.zip", members))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "expected one model, found none"),
        ({"a/options.json": b"{}", "b/options.json": b"{}", "model.hdf5": b""}, "expected one .*hdf5, found none"),
        ({"options.json": b"{}", "model.hdf5": b"no weights"}, "options.json: no char_cnn"),
    ],
)
def test_an_archive_without_a_model_is_rejected(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    with pytest.raises(ElmokitError, match=message):
        ElmoModel().load(zip_with(tmp_path / "model.zip", dict(members)))


def test_a_damaged_archive_is_rejected(published_model: PublishedModel, tmp_path: Path) -> None:
    members = {"options.json": published_model.options_path, "model.hdf5": published_model.weights_path}
    archive = zip_with(tmp_path / "model.zip", members)
    whole = archive.read_bytes()
    middle = len(whole) // 2
    archive.write_bytes(whole[:middle] + b"damage" + whole[middle + 6 :])
    with pytest.raises(WeightsError, match="cannot be unpacked"):
        ElmoModel().load(archive)
    archive.write_bytes(whole[:middle])
    with pytest.raises(WeightsError, match="not a zip file"):
        ElmoModel().load(archive)


def test_an_encrypted_archive_is_rejected(published_model: PublishedModel, tmp_path: Path) -> None:
    members = {"options.json": published_model.options_path, "model.hdf5": published_model.weights_path}
    archive = zip_with(tmp_path / "model.zip", members)
    content = bytearray(archive.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of each header
        place = content.find(mark)
        while place >= 0:
            struct.pack_into("<H", content, place + offset, 1)
            place = content.find(mark, place + 1)
    archive.write_bytes(content)
    with pytest.raises(WeightsError, match="encrypted"):
        ElmoModel().load(archive)


def test_a_source_that_is_not_there_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        ElmoModel().load(tmp_path / "absent.zip")


@pytest.mark.parametrize(
    "make_copy", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)
def test_a_copied_model_gives_the_same_vectors(model: ElmoModel, make_copy: Callable[..., ElmoModel]) -> None:
    expected = model.get_elmo_vectors(TEXTS)
    np.testing.assert_array_equal(make_copy(model).get_elmo_vectors(TEXTS), expected)


# Rejected arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.get_elmo_vectors(TEXTS, layers="mean"), "layers 'mean'"),
        (lambda model: model.get_elmo_vectors("The bank"), r"a list of texts, such as \['The bank'\]"),
        (lambda model: model.get_elmo_vectors(TEXTS, session=object()), "session is a object"),
        (lambda model: model.get_elmo_vectors([[1, 2]]), "a token is 1"),
        (lambda model: model.get_elmo_vectors([1, 2]), "a text is 1; expected a string or a list of tokens"),
        (lambda model: model.get_elmo_vectors(None), "texts is None; expected a list of texts"),
        (lambda _: ElmoModel().get_elmo_vectors(TEXTS), "call load"),
        (lambda model: model.get_elmo_substitutes(["a b"]), "full=True"),
        (lambda _: ElmoModel().load("model", limit=0), "limit is 0"),
        (lambda _: ElmoModel().load("model", 0), "max_batch_size is 0"),
    ],
)
def test_bad_arguments_are_rejected(model: ElmoModel, call: Callable[[ElmoModel], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(model)


def test_substitutes_are_the_scorers_predictions(tmp_path: Path) -> None:
    vocab = Vocab(["<S>", "</S>", "<UNK>", "the", "bank", "play"])
    folder = tmp_path / "lm"
    torch.manual_seed(0)
    config = BiLMConfig(
        char_encoder=CharEncoderConfig(char_dim=4, filters=((1, 8), (2, 8))), lstm=LSTMConfig(cell_dim=12, proj_dim=6)
    )
    save_language_model(LanguageModel.untrained(config, len(vocab)), vocab, folder)
    model = ElmoModel()
    model.load(folder, full=True)
    found = model.get_elmo_substitutes(["the bank", "play"], topn=2)
    expected = Scorer.from_pretrained(folder).predict([["the", "bank"], ["play"]], top_k=2)
    assert [[word["word"] for word in sentence] for sentence in found] == [["the", "bank"], ["play"]]
    for sentence, places in zip(found, expected, strict=True):
        for word, place in zip(sentence, places, strict=True):
            assert word["forward"]["candidate_words"] == [candidate.word for candidate in place.forward]
            assert word["backward"]["logp"] == [candidate.logprob for candidate in place.backward]
            assert word["forward"]["candidates"] == [vocab.id(candidate.word) for candidate in place.forward]
    with pytest.raises(InputError, match="nodelimiters"):
        model.get_elmo_substitutes(["the"], nodelimiters=False)
    with pytest.raises(InputError, match="texts is the string 'the bank'"):
        model.get_elmo_substitutes("the bank")
