"""A saved model is found in every form it has, and becomes a module."""

import shutil
from pathlib import Path

import pytest
import torch
from published import PublishedModel

from elmokit.errors import WeightsError
from elmokit.weights.folder import save_folder
from elmokit.weights.known_files import PUBLISHED_FILES, published_name
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import build_bilm, file_hashes, load_saved


@pytest.fixture
def saved(published_model: PublishedModel) -> SavedBiLM:
    return load_saved(published_model.pair)


def place(model: PublishedModel, folder: Path, *names: str) -> Path:
    """Copy the model's files into a folder under other names."""
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(model.options_path if name.endswith(".json") else model.weights_path, folder / name)
    return folder


def assert_same(found: SavedBiLM, expected: SavedBiLM) -> None:
    assert found.config == expected.config
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


@pytest.mark.parametrize(
    "names",
    [
        ("options.json", "weights.hdf5"),
        ("elmo_2x24_8_options.json", "elmo_2x24_8_weights.hdf5"),
        ("options.json", "other_options.json", "model.hdf5"),
    ],
)
def test_a_folder_of_published_files_is_found(
    tmp_path: Path, published_model: PublishedModel, saved: SavedBiLM, names: tuple[str, ...]
) -> None:
    folder = place(published_model, tmp_path, *names)
    assert_same(load_saved(folder), saved)
    assert_same(load_saved(str(folder)), saved)


def test_our_folder_is_found(tmp_path: Path, saved: SavedBiLM) -> None:
    save_folder(saved, tmp_path / "ours")
    assert_same(load_saved(tmp_path / "ours"), saved)


def test_our_folder_comes_before_published_files_beside_it(
    tmp_path: Path, published_model: PublishedModel, saved: SavedBiLM
) -> None:
    save_folder(saved, tmp_path / "ours")
    place(published_model, tmp_path / "ours", "options.json", "weights.hdf5", "more.hdf5")
    assert_same(load_saved(tmp_path / "ours"), saved)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"no model in this folder; looked for config\.json .*options\.json .*\*\.hdf5"),
        (("a.hdf5", "b.hdf5", "options.json"), r"expected one \*\.hdf5, found a\.hdf5, b\.hdf5; give the pair"),
        (("a_options.json", "b_options.json", "a.hdf5"), r"found a_options\.json, b_options\.json"),
        (("options.json",), r"expected one \*\.hdf5, found none"),
        (("weights.hdf5",), r"expected one options\.json or \*options\*\.json, found none"),
    ],
)
def test_a_folder_without_one_clear_model_is_refused_by_what_is_there(
    tmp_path: Path, published_model: PublishedModel, names: tuple[str, ...], message: str
) -> None:
    folder = place(published_model, tmp_path / "folder", *names)
    with pytest.raises(WeightsError, match=message):
        load_saved(folder)


def test_a_missing_model_is_explained_with_the_names_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match=r"^elmo: does not exist; .* or the name of a model \(.*en-small.*\)$"):
        load_saved("elmo")


def test_a_hub_name_without_the_extra_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elmokit.weights.hub.find_spec", lambda _: None)
    with pytest.raises(WeightsError, match=r"allenai/elmo: does not exist here\. .* pip install 'elmokit\[hub\]'"):
        load_saved("allenai/elmo")
    (tmp_path / "models").mkdir()
    with pytest.raises(WeightsError, match=r"models/mine: does not exist; .*en-small.*\)$"):
        load_saved("models/mine")


def test_a_missing_path_or_a_single_file_is_rejected(tmp_path: Path, published_model: PublishedModel) -> None:
    with pytest.raises(WeightsError, match="nowhere: does not exist; expected a folder"):
        load_saved(tmp_path / "nowhere")
    with pytest.raises(WeightsError, match=r"weights\.hdf5: is a file; expected a folder"):
        load_saved(published_model.weights_path)
    with pytest.raises(WeightsError, match="nowhere: no such file; expected the pair"):
        load_saved((published_model.options_path, tmp_path / "nowhere"))


def test_the_module_holds_the_saved_tensors_themselves(saved: SavedBiLM) -> None:
    bilm = build_bilm(saved)
    assert not bilm.training
    parameters = dict(bilm.named_parameters())
    assert parameters.keys() == saved.tensors.keys()
    for name, tensor in saved.tensors.items():
        assert parameters[name].data_ptr() == tensor.data_ptr()


def test_hashes_are_of_the_files_that_are_read(
    tmp_path: Path, published_model: PublishedModel, saved: SavedBiLM
) -> None:
    assert file_hashes(published_model.pair).keys() == {"options.json", "weights.hdf5"}
    save_folder(saved, tmp_path / "ours")
    lines = [line.split() for line in (tmp_path / "ours" / "SHA256SUMS").read_text().splitlines()]
    assert file_hashes(tmp_path / "ours") == {name: value for value, name in lines if name != "README.md"}
    (tmp_path / "ours" / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model\.safetensors: cannot be read"):
        file_hashes(tmp_path / "ours")


def test_a_published_file_is_known_by_hash_and_size() -> None:
    small = PUBLISHED_FILES[0]
    assert published_name(small.sha256.upper(), 54_402_456) == "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5"
    assert published_name(small.sha256, 1) is None
    assert published_name("0" * 64, small.num_bytes) is None
