"""Our folder: saved whole, checked at load, never half-written."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from published import PublishedModel
from safetensors.torch import load_file, save_file

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.errors import ConfigError, ElmokitError, ElmokitWarning, OutputError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.text.vocab import SPECIAL_WORDS, Vocab
from elmokit.weights import folder as folder_module
from elmokit.weights.bilm_tf import read_bilm_tf
from elmokit.weights.folder import load_folder, save_folder
from elmokit.weights.saved import SavedBiLM, SavedSoftmax, start_state_shapes
from elmokit.weights.source import load_softmax


@pytest.fixture(scope="module")
def saved() -> SavedBiLM:
    torch.manual_seed(0)
    config = BiLMConfig(
        char_encoder=CharEncoderConfig(filters=((1, 4), (2, 8)), num_highway=1, char_dim=3),
        lstm=LSTMConfig(cell_dim=10, proj_dim=6, cell_clip=None),
    )
    start_state = {name: torch.randn(shape) for name, shape in start_state_shapes(config).items()}
    return SavedBiLM(config, BiLM(config).state_dict(), start_state=start_state)


@pytest.fixture
def folder(tmp_path: Path, saved: SavedBiLM) -> Path:
    save_folder(saved, tmp_path / "model")
    return tmp_path / "model"


def sign(folder: Path) -> None:
    """Write the hashes anew, so that what was changed is looked at and not only its hash."""
    lines = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "model.safetensors", "softmax.safetensors", "vocab.txt")
        if (folder / name).exists()
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def edit_config(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | changes))
    sign(folder)


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")
    sign(folder)


def assert_same(found: SavedBiLM, expected: SavedBiLM) -> None:
    assert (found.config, found.options) == (expected.config, expected.options)
    for part, other in ((found.tensors, expected.tensors), (found.start_state or {}, expected.start_state or {})):
        assert part.keys() == other.keys()
        assert all(torch.equal(part[name], tensor) for name, tensor in other.items())


def test_what_is_saved_is_loaded_bit_for_bit(folder: Path, saved: SavedBiLM) -> None:
    assert_same(load_folder(folder), saved)


def test_a_published_model_keeps_its_options_and_has_no_start_state(
    tmp_path: Path, published_model: PublishedModel
) -> None:
    saved = read_bilm_tf(*published_model.pair)
    save_folder(saved, tmp_path / "model")
    found = load_folder(tmp_path / "model")
    assert found.options == published_model.options
    assert found.start_state is None
    assert_same(found, saved)


def test_half_precision_is_loaded_as_float32_near_the_original(tmp_path: Path, saved: SavedBiLM) -> None:
    save_folder(saved, tmp_path / "half", half=True)
    found = load_folder(tmp_path / "half")
    for name, tensor in saved.tensors.items():
        assert found.tensors[name].dtype == torch.float32
        assert torch.equal(found.tensors[name], tensor.half().float())
    assert saved.start_state is not None
    assert found.start_state is not None
    assert all(torch.equal(found.start_state[name], tensor) for name, tensor in saved.start_state.items())


def test_the_same_model_gives_the_same_bytes(tmp_path: Path, folder: Path, saved: SavedBiLM) -> None:
    (tmp_path / "other").mkdir()
    save_folder(saved, tmp_path / "other" / "model")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "other" / "model" / path.name).read_bytes()


def test_training_a_loaded_model_does_not_change_its_file(folder: Path, saved: SavedBiLM) -> None:
    for tensor in load_folder(folder).tensors.values():
        tensor.add_(1.0)
    assert_same(load_folder(folder), saved)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum on this system")
def test_sha256sum_can_check_the_folder(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)


def test_every_file_has_the_rights_that_the_umask_leaves(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "plain").touch()
    expected = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(
        ("README.md", "SHA256SUMS", "config.json", "model.safetensors"), expected
    )


def test_the_card_says_what_the_model_is_and_a_changed_one_is_warned_of(tmp_path: Path, saved: SavedBiLM) -> None:
    save_folder(saved, tmp_path / "model", description="Trained on *novels*.")
    card = (tmp_path / "model" / "README.md").read_text()
    num_parameters = sum(tensor.numel() for tensor in saved.tensors.values())
    for words in ("Trained on *novels*.", f"{num_parameters:,}", '.from_pretrained("model")', "10 cells", "cell none"):
        assert words in card
    (tmp_path / "model" / "README.md").write_text("mine")
    with pytest.warns(ElmokitWarning, match=r"README\.md: the model card was changed"):
        load_folder(tmp_path / "model")
    sums = tmp_path / "model" / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if "README" not in line))
    with warnings.catch_warnings():  # as in folders of older versions
        warnings.simplefilter("error")
        load_folder(tmp_path / "model")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_file_is_refused_by_name_and_hashes(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 1
    (folder / name).write_bytes(content)
    found = hashlib.sha256(content).hexdigest()[:12]
    with pytest.raises(WeightsError, match=rf"{name}: its SHA-256 is {found}…, SHA256SUMS says [0-9a-f]{{12}}…"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "SHA256SUMS"])
def test_a_missing_file_is_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(WeightsError, match=f"{name}: missing"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{'0' * 64}  ../../etc/passwd", "outside the folder"),
        (f"{'0' * 64}  /etc/passwd", "outside the folder"),
        (f"{'0' * 64}  ..", "outside the folder"),
        (f"{'0' * 64}  c:\\x", "outside the folder"),
        ("hello", "is not one of sha256sum's"),
    ],
)
def test_a_bad_line_of_hashes_is_refused(folder: Path, line: str, message: str) -> None:
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(WeightsError, match=message):
        load_folder(folder)


def test_a_file_without_a_hash_is_refused(folder: Path) -> None:
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    (folder / "SHA256SUMS").write_text("\n".join(line for line in sums if "safetensors" not in line))
    with pytest.raises(WeightsError, match=r"no line for model\.safetensors"):
        load_folder(folder)


def test_other_files_in_the_folder_are_left_alone(folder: Path, saved: SavedBiLM) -> None:
    (folder / "notes.txt").write_text("mine")
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  vocab.txt\n")
    assert_same(load_folder(folder), saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version 3; this elmokit knows up to 2: pip install --upgrade"),
        ({"version": "new"}, "version = 'new'"),
        ({"format": "other"}, r"format is 'other'; expected 'elmokit\.bilm'"),
        ({"bilm": {"lstm": {"cell_dim": 0}}}, r"bilm\.lstm\.cell_dim = 0"),
        ({"surprise": 1}, "surprise: there is no such key"),
        ({"options": {}}, "no char_cnn"),
    ],
)
def test_a_config_that_cannot_be_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    edit_config(folder, **changes)
    with pytest.raises(ConfigError, match=rf"config\.json.*{message}"):
        load_folder(folder)


def test_options_of_another_model_are_refused(folder: Path, published_model: PublishedModel) -> None:
    edit_config(folder, options=published_model.options)
    with pytest.raises(ConfigError, match="options and bilm are of different models"):
        load_folder(folder)


EMBEDDING = "char_encoder.char_embedding"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop(EMBEDDING), f"{EMBEDDING} missing"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "more unknown"),
        (
            lambda tensors: tensors.update({EMBEDDING: torch.zeros(262, 3)}),
            r"shape \(262, 3\); the config says \(261, 3\)",
        ),
        (
            lambda tensors: tensors.update({EMBEDDING: torch.zeros(261, 3).double()}),
            "stored as F64; expected F32 or F16",
        ),
        (lambda tensors: tensors[EMBEDDING][5].fill_(torch.nan), f"{EMBEDDING} holds NaN"),
        (lambda tensors: tensors.pop("start_state.forward.cell"), r"start_state\.forward\.cell missing"),
    ],
)
def test_tensors_that_do_not_fit_the_config_are_refused_by_name(
    folder: Path, edit: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    edit_tensors(folder, edit)
    with pytest.raises(WeightsError, match=rf"model\.safetensors: .*{message}"):
        load_folder(folder)


@pytest.mark.parametrize("words", [["the"], ["the", "river", "rose"]])
def test_a_vocabulary_of_another_length_than_the_output_layer_is_refused_by_name(
    tmp_path: Path, saved: SavedBiLM, words: list[str]
) -> None:
    softmax = SavedSoftmax(torch.zeros(5, 6), torch.zeros(5), Vocab([*SPECIAL_WORDS, "the", "river"]))
    save_folder(saved, tmp_path / "model", softmax=softmax)
    (tmp_path / "model" / "vocab.txt").write_text("\n".join([*SPECIAL_WORDS, *words]) + "\n")
    sign(tmp_path / "model")
    message = rf"vocab\.txt: has {3 + len(words)} words, but softmax\.safetensors has 5 rows.*the vocab\.txt that"
    with pytest.raises(WeightsError, match=message):
        load_softmax(tmp_path / "model")


def test_an_output_layer_that_does_not_fit_the_config_is_refused(tmp_path: Path, saved: SavedBiLM) -> None:
    softmax = SavedSoftmax(torch.zeros(5, 7), torch.zeros(5), Vocab([*SPECIAL_WORDS, "the", "river"]))
    save_folder(saved, tmp_path / "model", softmax=softmax)
    with pytest.raises(WeightsError, match=r"weight has shape \(5, 7\); the config says \(5, 6\)"):
        load_softmax(tmp_path / "model")
    save_file({"weight": torch.zeros(5, 6)}, tmp_path / "model" / "softmax.safetensors")
    sign(tmp_path / "model")
    with pytest.raises(WeightsError, match="bias missing"):
        load_softmax(tmp_path / "model")


def test_a_file_that_is_no_safetensors_is_refused(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for content in (b"", b"junk", whole[:100], whole[:-1], b"\xff" * 8 + whole):
        (folder / "model.safetensors").write_bytes(content)
        sign(folder)
        with pytest.raises(WeightsError, match="not a safetensors file, or a damaged one"):
            load_folder(folder)


def test_an_older_model_is_replaced(folder: Path, saved: SavedBiLM) -> None:
    changed = replace(saved, tensors={name: tensor + 1 for name, tensor in saved.tensors.items()}, start_state=None)
    (folder / "vocab.txt").write_text("of the older model")
    save_folder(changed, folder)
    assert_same(load_folder(folder), changed)
    assert not (folder / "vocab.txt").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["notes.txt", ".git"])
def test_a_model_beside_other_files_is_not_replaced(folder: Path, saved: SavedBiLM, name: str) -> None:
    (folder / name).write_text("mine")
    with pytest.raises(OutputError, match=f"also holds {re.escape(name)}"):
        save_folder(saved, folder)
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("content", ['{"format": "other"}', "junk", "[]"])
def test_a_folder_of_someone_else_is_not_replaced(tmp_path: Path, saved: SavedBiLM, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(OutputError, match="folder with files in it"):
        save_folder(saved, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_model_that_cannot_be_saved_leaves_the_older_one(folder: Path, saved: SavedBiLM) -> None:
    short = {name: tensor for name, tensor in saved.tensors.items() if name != EMBEDDING}
    broken = saved.tensors | {EMBEDDING: torch.full((261, 3), torch.inf)}
    large = saved.tensors | {EMBEDDING: torch.full((261, 3), 1e6)}
    for tensors, half in ((short, False), (broken, False), (large, True)):
        with pytest.raises(ElmokitError, match=EMBEDDING):
            save_folder(replace(saved, tensors=tensors), folder, half=half)
    assert_same(load_folder(folder), saved)


def test_a_disk_that_fills_up_leaves_the_older_model(folder: Path, saved: SavedBiLM) -> None:
    """A limit on file size stands in for a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    try:
        with pytest.raises(OutputError, match="cannot be written"):
            save_folder(saved, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_same(load_folder(folder), saved)
    assert os.listdir(folder.parent) == ["model"]


def test_a_file_that_changes_while_it_is_loaded_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mapped must be what was hashed."""
    check = folder_module.check_sum

    def check_and_replace(place: Path, name: str, sums: dict[str, str]) -> None:
        check(place, name, sums)
        if name == "model.safetensors":
            (place / "other").write_bytes((place / name).read_bytes())
            (place / "other").replace(place / name)

    monkeypatch.setattr(folder_module, "check_sum", check_and_replace)
    with pytest.raises(WeightsError, match=r"model\.safetensors: was changed while it was loaded; load it again"):
        load_folder(folder)
