"""The exported graph in ONNX Runtime against the package in PyTorch.

Shapes: B sentences, L layers, T tokens, D width.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from parity_cases import SENTENCES, VARIANTS, largest_gap
from published import PublishedModel, make_published

from elmokit import cli
from elmokit.embed.embedder import Embedder
from elmokit.embed.state import StartStates
from elmokit.errors import InputError, MissingExtraError, OutputError
from elmokit.integrations import onnx as integration
from elmokit.integrations.onnx import check_onnx, export_onnx
from elmokit.text.chars import pad_sentences
from elmokit.weights.folder import save_folder
from elmokit.weights.source import build_bilm, load_saved
from elmokit.weights.start_state import to_tensors

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install 'elmokit[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install 'elmokit[onnx]'")

pytestmark = [pytest.mark.filterwarnings("ignore:.*(was|were) cut"), pytest.mark.long]

TOLERANCE = 1e-5


class Session:
    """An exported model in ONNX Runtime, on one thread."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.max_chars = self.session.get_inputs()[0].shape[2]

    def run(self, char_ids_BTC: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        layers_BLTD, mask_BT = self.session.run(["layers", "mask"], {"char_ids": char_ids_BTC})
        return layers_BLTD, mask_BT

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """Return every sentence's layers, (L, T, D), after a check that padding is zero."""
        layers_BLTD, mask_BT = self.run(pad_sentences(sentences, max_chars=self.max_chars))
        assert mask_BT.sum(axis=1).tolist() == [len(sentence) for sentence in sentences]
        assert not np.where(mask_BT[:, None, :, None], 0, layers_BLTD).any()
        return [layers_BLTD[row, :, : len(sentence)] for row, sentence in enumerate(sentences)]


@pytest.fixture(scope="module")
def exported(published_model: PublishedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the usual small model."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(published_model.pair, path)
    return path


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_layer_of_every_kind_of_model_is_that_of_pytorch(tmp_path: Path, variant: dict[str, Any]) -> None:
    model = make_published(tmp_path, **variant)
    export_onnx(model.pair, tmp_path / "model.onnx")
    expected = Embedder.from_pretrained(model.pair).embed_layers(SENTENCES)
    gap = largest_gap(Session(tmp_path / "model.onnx").embed(SENTENCES), expected)
    assert gap <= TOLERANCE


def test_sentences_of_1_to_200_tokens_run_in_one_batch(exported: Path, published_model: PublishedModel) -> None:
    words = [word for sentence in SENTENCES for word in sentence] * 4
    sentences = [words[start : start + length] for start, length in enumerate([200, 1, 199, 2, 50, 3, 120, 64, 7])]
    expected = Embedder.from_pretrained(published_model.pair).embed_layers(sentences)
    assert largest_gap(Session(exported).embed(sentences), expected) <= TOLERANCE


def test_a_batch_never_changes_a_vector(exported: Path) -> None:
    session = Session(exported)
    alone = [layers for sentence in SENTENCES for layers in session.embed([sentence])]
    assert largest_gap(session.embed(SENTENCES), alone) <= TOLERANCE


@pytest.mark.parametrize("kept", [False, True], ids=["computed", "kept in the folder"])
def test_a_warm_model_starts_every_sentence_as_pytorch_does(
    tmp_path: Path, published_model: PublishedModel, kept: bool
) -> None:
    source: Any = published_model.pair
    if kept:
        saved, source = load_saved(published_model.pair), tmp_path / "folder"
        start = to_tensors(build_bilm(saved).zero_state(1))
        save_folder(replace(saved, start_state={name: part + 0.5 for name, part in start.items()}), source, half=False)
    export_onnx(source, tmp_path / "model.onnx", state="warm")
    found = Session(tmp_path / "model.onnx").embed(SENTENCES)
    warm = Embedder.from_pretrained(source, state="warm").embed_layers(SENTENCES)
    reset = Embedder.from_pretrained(source, state="reset").embed_layers(SENTENCES)
    assert largest_gap(found, warm) <= TOLERANCE
    assert largest_gap(found, reset) > 100 * TOLERANCE


def test_zeros_inside_a_word_count_as_in_pytorch(exported: Path, published_model: PublishedModel) -> None:
    char_ids_BTC = pad_sentences(SENTENCES[:1], max_chars=50)
    char_ids_BTC[0, 2, 1:] = 0
    found_BLTD, _ = Session(exported).run(char_ids_BTC)
    with torch.inference_mode():
        bilm = build_bilm(load_saved(published_model.pair))
        padded = bilm(torch.from_numpy(char_ids_BTC), StartStates("warm", warm=None).begin(bilm, 1))
    assert largest_gap([found_BLTD], [padded.layers_BLTD[:, :, 1:-1].numpy()]) <= TOLERANCE


@pytest.mark.parametrize(("num_sentences", "num_tokens"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_to_read_gives_nothing(exported: Path, num_sentences: int, num_tokens: int) -> None:
    layers_BLTD, mask_BT = Session(exported).run(np.zeros((num_sentences, num_tokens, 50), dtype=np.int64))
    assert layers_BLTD.shape == (num_sentences, 3, num_tokens, 16)
    assert mask_BT.shape == (num_sentences, num_tokens)
    assert not layers_BLTD.any()
    assert not mask_BT.any()


def test_padding_inside_a_sentence_gives_nan_there_and_leaves_other_sentences_alone(exported: Path) -> None:
    session = Session(exported)
    char_ids_BTC = pad_sentences(SENTENCES[:3], max_chars=50)
    right_BLTD, _ = session.run(char_ids_BTC)
    char_ids_BTC[0, 4] = 0
    found_BLTD, _ = session.run(char_ids_BTC)
    assert np.isnan(found_BLTD[0]).all()
    np.testing.assert_allclose(found_BLTD[1:], right_BLTD[1:], atol=TOLERANCE)


def test_the_file_is_valid_and_says_what_it_is(exported: Path) -> None:
    onnx.checker.check_model(exported, full_check=True)
    model = onnx.load(exported)
    assert (model.ir_version, model.opset_import[0].version, model.producer_name) == (8, 17, "elmokit")
    facts = {fact.key: fact.value for fact in model.metadata_props}
    assert facts["state"] == "warm"
    assert '"cell_dim":24' in facts["config"]


def test_weights_too_large_for_one_file_stand_beside_it(
    tmp_path: Path, published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "LARGEST_FILE", 10_000)
    export_onnx(published_model.pair, tmp_path / "model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert (tmp_path / "model.onnx.data").stat().st_size > 10_000
    assert max(len(tensor.raw_data) for tensor in model.graph.initializer) < 1024
    expected = Embedder.from_pretrained(published_model.pair).embed_layers(SENTENCES)
    assert largest_gap(Session(tmp_path / "model.onnx").embed(SENTENCES), expected) <= TOLERANCE


def test_a_file_is_replaced_only_on_request(tmp_path: Path, published_model: PublishedModel) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"model\.onnx: exists"):
        export_onnx(published_model.pair, path)
    assert path.read_text() == "precious"
    export_onnx(published_model.pair, path, overwrite=True)
    assert check_onnx(path, published_model.pair) <= TOLERANCE
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_carried_state_is_rejected(tmp_path: Path, published_model: PublishedModel) -> None:
    with pytest.raises(InputError, match="state 'carry'; expected 'reset' or 'warm'"):
        export_onnx(published_model.pair, tmp_path / "model.onnx", state="carry")  # type: ignore[arg-type]


def test_the_check_rejects_another_model(exported: Path, published_model: PublishedModel, tmp_path: Path) -> None:
    assert check_onnx(exported, published_model.pair) <= TOLERANCE
    with pytest.raises(OutputError, match="differs from PyTorch by"):
        check_onnx(exported, published_model.pair, state="reset")
    with pytest.raises(OutputError, match="differs from PyTorch by"):
        check_onnx(exported, make_published(tmp_path, seed=1).pair)
    with pytest.raises(InputError, match="no such file"):
        check_onnx(tmp_path / "none.onnx", published_model.pair)


@pytest.mark.parametrize("module", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    tmp_path: Path, published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    use = export_onnx if module == "onnx" else lambda source, path: check_onnx(path, source)
    with pytest.raises(MissingExtraError, match=rf"^{module} is not installed.*pip install 'elmokit\[onnx\]'"):
        use(published_model.pair, tmp_path / "model.onnx")


def test_the_command_exports_checks_and_replaces_files_only_on_request(
    tmp_path: Path, published_model: PublishedModel, capfd: pytest.CaptureFixture[str]
) -> None:
    model, path = [str(part) for part in published_model.pair], tmp_path / "model.onnx"
    arguments = ["export", *model, "-o", str(path), "--state", "reset"]
    assert cli.run([*arguments, "--check"]) == 0
    assert "model.onnx: within " in capfd.readouterr().err
    assert check_onnx(path, published_model.pair, state="reset") <= TOLERANCE
    assert cli.run(arguments) == 1
    assert "model.onnx: exists" in capfd.readouterr().err
    assert cli.run([*arguments, "--force"]) == 0
