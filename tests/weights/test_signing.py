"""Signed model folders: only what was signed is loaded where signatures are required."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from published import PublishedModel
from toy_datasets import save_toy_bilm

from elmokit import cli
from elmokit.embed.embedder import Embedder
from elmokit.errors import ConfigError, MissingExtraError, WeightsError
from elmokit.weights import signing
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.source import load_saved

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("model_signing") is None or shutil.which("openssl") is None,
    reason="needs the extra sign and openssl",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_toy_bilm(tmp_path / "bilm")
    return tmp_path / "bilm"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Folder with two pairs of keys, mine and other."""
    for name in ("mine", "other"):
        private = tmp_path / f"{name}.pem"
        make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)]
        subprocess.run(make, check=True, capture_output=True)
        publish = ["openssl", "ec", "-in", str(private), "-pubout", "-out", str(tmp_path / f"{name}.pub")]
        subprocess.run(publish, check=True, capture_output=True)
    return tmp_path


def test_without_the_extra_its_name_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.sig").touch()
    for name in ("model_signing", "model_signing.signing", "model_signing.verifying"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[sign\]'"):
        signing.sign_folder(folder, key=folder / "key")
    monkeypatch.setenv(signing.REQUIRED_KEY, "key.pub")
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[sign\]'"):
        load_saved(folder)


def test_single_files_are_rejected_where_signatures_are_required(
    published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(signing.REQUIRED_KEY, "key.pub")
    with pytest.raises(WeightsError, match="a signature is required, and single files have none"):
        load_saved(published_model.pair)


def test_a_model_of_the_package_needs_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.REQUIRED_KEY, "no-such-key.pub")
    signing.check_required_signature(EN_SMALL)


def edit_card(folder: Path) -> None:
    (folder / "README.md").write_text("another card", "utf-8")


def add_file(folder: Path) -> None:
    (folder / ".gitignore").write_text("*", "utf-8")


def remove_file(folder: Path) -> None:
    (folder / "README.md").unlink()


def break_signature(folder: Path) -> None:
    (folder / "model.sig").write_text("{}", "utf-8")


def remove_signature(folder: Path) -> None:
    (folder / "model.sig").unlink()


@needs_extra
@pytest.mark.filterwarnings("ignore:.*the model card was changed")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit_card, r"Hash mismatch for .*README\.md"),
        (add_file, "Extra files found in model 'bilm': .gitignore"),
        (remove_file, "Missing files in model 'bilm': README.md"),
        (break_signature, "does not match the key"),
        (remove_signature, "is not signed"),
    ],
)
def test_a_signed_folder_is_loaded_and_a_changed_one_is_not(
    folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], message: str
) -> None:
    assert signing.sign_folder(folder, key=keys / "mine.pem") == folder / "model.sig"
    monkeypatch.setenv(signing.REQUIRED_KEY, str(keys / "mine.pub"))
    assert Embedder.from_pretrained(folder).num_layers == 3
    renamed = folder.rename(folder.parent / "renamed")
    load_saved(renamed)
    renamed.rename(folder)
    change(folder)
    with pytest.raises(WeightsError, match=message):
        load_saved(folder)
    monkeypatch.delenv(signing.REQUIRED_KEY)
    load_saved(folder)


@needs_extra
def test_the_command_line_signs_and_requires(
    folder: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keys)
    assert cli.run(["info", folder.name, "--require-signature", "mine.pub"]) == 1
    assert "is not signed (no model.sig)" in capsys.readouterr().err
    assert cli.run(["sign", "bilm", "--key", "mine.pem"]) == 0
    assert cli.run(["info", "bilm", "--require-signature=mine.pub"]) == 0
    assert cli.run(["--require-signature", "other.pub", "info", "bilm"]) == 1
    assert "its signature does not match the key other.pub (Key mismatch" in capsys.readouterr().err
    assert cli.run(["info", "bilm"]) == 0
    assert cli.run(["info", "bilm", "--require-signature"]) == 2


@needs_extra
def test_keys_that_cannot_be_used_are_named(folder: Path, keys: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.pub: not a private key that can be used"):
        signing.sign_folder(folder, key=keys / "mine.pub")
    with pytest.raises(ConfigError, match=r"absent: cannot be read: No such file"):
        signing.sign_folder(folder, key=keys / "absent")
    signing.sign_folder(folder, key=keys / "mine.pem")
    with pytest.raises(ConfigError, match=r"mine\.pem: not a public key that can be used"):
        signing.verify_folder(folder, key=keys / "mine.pem")


@needs_extra
def test_the_signature_of_a_task_model_covers_its_bilm(
    folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = folder.parent / "task"
    outer.mkdir()
    folder.rename(outer / "bilm")
    signing.sign_folder(outer, key=keys / "mine.pem")
    monkeypatch.setenv(signing.REQUIRED_KEY, str(keys / "mine.pub"))
    load_saved(outer / "bilm")
    (outer / "other").write_text("new", "utf-8")
    with pytest.raises(WeightsError, match="Extra files found in model 'task': other"):
        load_saved(outer / "bilm")
