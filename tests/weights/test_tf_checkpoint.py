"""Checkpoints that TensorFlow wrote are read without it: the biLM bit for bit, and its output layer."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_arrays import WORDS, training_variables
from published import make_published

from elmokit.cli import run
from elmokit.embed.embedder import Embedder
from elmokit.errors import ConfigError, WeightsError
from elmokit.score.scoring import Scorer
from elmokit.weights.bilm_tf import read_bilm_tf
from elmokit.weights.conversion import convert_model
from elmokit.weights.crc32c import TABLE, crc32c, unmask
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import file_hashes, has_softmax, load_saved, load_softmax
from elmokit.weights.tf_bundle import open_bundle

ASSET = Path(__file__).parents[1] / "assets" / "tf_checkpoint"
SIZES = {"dim": 12, "projection_dim": 4, "filters": ((1, 4), (2, 6)), "char_dim": 3, "n_highway": 1}
DATA = "model.ckpt-7.data-00000-of-00001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the checkpoint's folder."""
    return Path(shutil.copytree(ASSET, tmp_path / "run"))


def assert_same(found: SavedBiLM, expected: SavedBiLM) -> None:
    assert found.config == expected.config
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


def test_every_tensor_is_read_bit_for_bit() -> None:
    expected = np.load(ASSET / "expected.npz")
    bundle = open_bundle(ASSET / "model.ckpt-7")
    assert set(expected) <= set(bundle.entries)
    assert any(name.endswith("/Adagrad") for name in bundle.entries)
    found = bundle.read({name: expected[name].shape for name in expected})
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_the_checkpoint_is_the_model_that_its_dump_is(folder: Path, tmp_path: Path) -> None:
    dumped = make_published(tmp_path / "dumped", **SIZES)
    assert_same(load_saved(folder), read_bilm_tf(*dumped.pair))
    assert_same(load_saved(folder / "model.ckpt-7"), read_bilm_tf(*dumped.pair))
    assert_same(load_saved((folder / "options.json", folder / "model.ckpt-7")), read_bilm_tf(*dumped.pair))
    assert set(file_hashes(folder)) == {"options.json", "vocab.txt", "model.ckpt-7.index", DATA}


def test_a_checkpoint_scores_and_converts_with_its_output_layer(folder: Path, tmp_path: Path) -> None:
    expected = np.load(ASSET / "expected.npz")
    assert has_softmax(folder)
    softmax = load_softmax(folder)
    assert list(softmax.vocab.words) == WORDS
    np.testing.assert_array_equal(softmax.weight_VP, expected["lm/softmax/W"])
    np.testing.assert_array_equal(softmax.bias_V, expected["lm/softmax/b"])
    convert_model(folder, tmp_path / "ours", to="elmokit", half=False, overwrite=False)
    (here,), (converted,) = (
        Scorer.from_pretrained(path, state="reset").score([["the", "bank"]]) for path in (folder, tmp_path / "ours")
    )
    np.testing.assert_array_equal(here.forward_logprobs, converted.forward_logprobs)


def test_the_newest_checkpoint_of_a_run_is_taken(folder: Path) -> None:
    for path in list(folder.glob("model.ckpt-7.*")):
        shutil.copy(path, folder / path.name.replace("-7.", "-12."))
    (folder / DATA).write_bytes(b"")  # an older step, which is not read
    load_saved(folder)


def test_published_weights_beside_a_checkpoint_take_its_output_layer(folder: Path, tmp_path: Path) -> None:
    dumped = make_published(tmp_path / "dumped", **SIZES)
    shutil.copy(dumped.weights_path, folder)
    assert has_softmax(folder)
    assert len(load_softmax(folder).vocab) == len(WORDS)
    other = make_published(tmp_path / "other", seed=1, **SIZES)
    shutil.copy(other.weights_path, folder)
    with pytest.raises(WeightsError, match="these are two models"):
        load_softmax(folder)


def test_without_its_vocabulary_a_checkpoint_embeds_only(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    Embedder.from_pretrained(folder, state="reset").embed_layers([["the", "bank"]])
    assert not has_softmax(folder)
    with pytest.raises(WeightsError, match=r"has no vocabulary \(vocab\.txt\)"):
        load_softmax(folder)
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    with pytest.raises(WeightsError, match="the vocabulary has 3; use the vocabulary file"):
        load_softmax(folder)


@pytest.mark.parametrize("place", [0, 300, -60, -5])
def test_a_changed_index_is_rejected(folder: Path, place: int) -> None:
    path = folder / "model.ckpt-7.index"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"\.index: not the index of a TensorFlow checkpoint, or a damaged one"):
        load_saved(folder)


def test_cut_and_changed_data_are_named(folder: Path) -> None:
    path = folder / DATA
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="has another checksum than the index says"):
        load_softmax(folder)
    path.write_bytes(content[:100])
    with pytest.raises(WeightsError, match=r"ends inside lm/.*; the file was cut short"):
        load_saved(folder)
    path.unlink()
    with pytest.raises(WeightsError, match="a checkpoint needs all its files"):
        load_saved(folder)


def test_an_index_cut_anywhere_is_rejected(folder: Path) -> None:
    path = folder / "model.ckpt-7.index"
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(WeightsError):
            load_saved(folder)


def test_options_of_another_model_are_named(folder: Path) -> None:
    options = (folder / "options.json").read_text()
    (folder / "options.json").write_text(options.replace('"projection_dim": 4', '"projection_dim": 3'))
    with pytest.raises((WeightsError, ConfigError), match=r"has shape .*; the options say"):
        load_saved(folder)
    (folder / "options.json").write_text(options.replace('"n_highway": 1', '"n_highway": 2'))
    with pytest.raises(WeightsError, match=r"has no lm/CNN_high_1/"):
        load_saved(folder)


def test_the_checksum_is_crc32c_whatever_the_length() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the published check value
    table = TABLE.tolist()
    rng = np.random.default_rng(0)
    for length in (0, 1, 32_767, 32_768, 100_001):
        data = rng.integers(0, 256, length, dtype=np.uint8)
        register = 0xFFFFFFFF
        for byte in data.tolist():
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        assert crc32c(data) == register ^ 0xFFFFFFFF
    rotated = ((0x12345678 >> 15) | (0x12345678 << 17)) & 0xFFFFFFFF
    assert unmask((rotated + 0xA282EAD8) & 0xFFFFFFFF) == 0x12345678


@pytest.mark.slow
@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_what_tensorflow_writes_now_is_read(tmp_path: Path, shards: int | None, n_layers: int) -> None:
    """Needs a Python with TensorFlow, named by the environment variable ELMOKIT_TF_PYTHON."""
    python = os.environ.get("ELMOKIT_TF_PYTHON")
    if python is None:
        pytest.skip("set ELMOKIT_TF_PYTHON to a Python that has TensorFlow")
    model = make_published(tmp_path / "dumped", n_layers=n_layers)
    variables = training_variables(model.arrays, 8, single_layer=n_layers == 1)
    np.savez(tmp_path / "variables.npz", **variables)
    run = tmp_path / "run"
    run.mkdir()
    script = Path(__file__).parents[1] / "support" / "tf_checkpoint.py"
    arguments = [tmp_path / "variables.npz", run / "model.ckpt", 5, *([] if shards is None else [shards])]
    subprocess.run([python, script, *map(str, arguments)], check=True)
    shutil.copy(model.options_path, run)
    (run / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    assert_same(load_saved(run), read_bilm_tf(*model.pair))
    np.testing.assert_array_equal(load_softmax(run).weight_VP, variables["lm/softmax/W"])


@pytest.mark.long
def test_a_checkpoint_is_scored_from_an_archive_and_fine_tuned(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "expected.npz").unlink()
    archive = shutil.make_archive(str(tmp_path / "run"), "zip", folder)
    (tmp_path / "text.txt").write_text("the bank of a river .\n" * 20)
    assert run(["score", str(tmp_path / "text.txt"), "-m", archive]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 21
    arguments = ["--tokenized", "--rows", "2", "-o", str(tmp_path / "tuned")]
    assert run(["finetune", str(folder), str(tmp_path / "text.txt"), *arguments]) == 0
    assert list(load_softmax(tmp_path / "tuned").vocab.words) == WORDS
