"""Every layer against the original TensorFlow program, in any clone.

`tests/assets/golden` holds weights and sentences of our own, and the layers that bilm-tf computed from them: from a
zero state (``reset``), and in batches of four with the state carried between them (``carry``). Correct
implementations agree within 6e-6. The cheapest known mistake costs 7e-3.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from kernel_paths import kernel_path, runnable_paths
from numpy.typing import NDArray
from parity_cases import largest_gap

from elmokit.embed.elmo import Elmo
from elmokit.embed.embedder import Embedder
from elmokit.integrations.allennlp import ElmoEmbedder
from elmokit.integrations.onnx import export_onnx
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.chars import pad_sentences
from elmokit.text.grouping import windows
from elmokit.weights.folder import save_folder
from elmokit.weights.source import build_bilm, load_saved

# One word is longer than the model reads, on purpose.
pytestmark = [pytest.mark.filterwarnings("ignore:.*(was|were) cut"), pytest.mark.long]

GOLDEN = Path(__file__).parents[1] / "assets" / "golden"
SENTENCES: list[list[str]] = json.loads((GOLDEN / "sentences.json").read_text(encoding="utf-8"))
BATCH = 4
TOLERANCE = 1e-5
NOTICED = 100 * TOLERANCE

Pair = tuple[Path, Path]
Policy = Literal["reset", "carry"]
Layers = list[NDArray[np.float32]]
Reader = Callable[[Pair, Policy], Layers]


def with_embedder(pair: Pair, state: Policy) -> Layers:
    return Embedder.from_pretrained(pair, state=state).embed_layers(SENTENCES, batch_size=BATCH)


def with_folder(pair: Pair, state: Policy) -> Layers:
    """Convert the files to a folder of ours first."""
    folder = pair[0].parent / f"{pair[0].stem} folder {state}"
    save_folder(load_saved(pair), folder)
    return Embedder.from_pretrained(folder, state=state).embed_layers(SENTENCES, batch_size=BATCH)


def with_shim(pair: Pair, state: Policy) -> Layers:
    return list(ElmoEmbedder(*pair, state=state).embed_sentences(SENTENCES, batch_size=BATCH))


def with_bilm(pair: Pair, state: Policy) -> Layers:
    with torch.no_grad():
        return run_bilm(build_bilm(load_saved(pair)), state)


def with_trainable_bilm(pair: Pair, state: Policy) -> Layers:
    """Run the forward pass of training, which keeps what the backward pass needs."""
    return run_bilm(build_bilm(load_saved(pair)).requires_grad_(), state)


def run_bilm(bilm: BiLM, state: Policy) -> Layers:
    found: Layers = []
    final: BiLMState | None = None
    for batch in windows(SENTENCES, BATCH):
        padded = bilm(char_ids(batch), final if state == "carry" else None)
        final = padded.final
        layers_BLTD = padded.layers_BLTD.detach().numpy()
        found += [layers_BLTD[row, :, 1 : len(sentence) + 1] for row, sentence in enumerate(batch)]
    return found


def with_elmo(pair: Pair, state: Policy) -> Layers:
    """Take every layer out by a mix of this layer alone."""
    modules = [Elmo.from_pretrained(pair, state=state, only_layer=layer).eval() for layer in range(3)]
    found: Layers = []
    for batch in windows(SENTENCES, BATCH):
        outputs = [module(char_ids(batch)) for module in modules]
        layers_BLTD = torch.stack([output.mixes[0] for output in outputs], dim=1).detach().numpy()
        found += [layers_BLTD[row, :, : len(sentence)] for row, sentence in enumerate(batch)]
    return found


def char_ids(sentences: list[list[str]]) -> torch.Tensor:
    return torch.from_numpy(pad_sentences(sentences, max_chars=50))


READERS: dict[str, Reader] = {
    "Embedder": with_embedder,
    "Embedder of a folder": with_folder,
    "AllenNLP's ElmoEmbedder": with_shim,
    "BiLM": with_bilm,
    "BiLM with gradients": with_trainable_bilm,
    "Elmo": with_elmo,
}


@pytest.fixture(params=runnable_paths())
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernel_path(request.param):
        yield request.param


@pytest.fixture(params=["", "_noskip"], ids=["skip connections", "no skip connections"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def golden_pair(suffix: str, folder: Path, **lstm: Any) -> Pair:
    """Write the options into ``folder``, with other values if any are given; return them with the weights."""
    options = json.loads((GOLDEN / f"options{suffix}.json").read_text(encoding="utf-8"))
    options["lstm"] |= lstm
    path = folder / "options.json"
    path.write_text(json.dumps(options), encoding="utf-8")
    return path, GOLDEN / "weights.hdf5"


def golden_layers(suffix: str, state: Policy) -> Layers:
    with np.load(GOLDEN / f"expected{suffix}.npz") as arrays:
        return [arrays[f"{state}_{index}"] for index in range(len(SENTENCES))]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("state", ["reset", "carry"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_layer_is_that_of_the_original_program(read: Reader, state: Policy, suffix: str, tmp_path: Path) -> None:
    found = read(golden_pair(suffix, tmp_path), state)
    assert {layers.dtype for layers in found} == {np.dtype(np.float32)}
    assert largest_gap(found, golden_layers(suffix, state)) <= TOLERANCE


def test_the_onnx_graph_computes_every_layer_of_the_original_program(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="ONNX is not installed: pip install 'elmokit[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install 'elmokit[onnx]'")
    export_onnx(golden_pair(suffix, tmp_path), tmp_path / "model.onnx", state="reset")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    [layers_BLTD] = session.run(["layers"], {"char_ids": char_ids(SENTENCES).numpy()})
    found = [layers_BLTD[row, :, : len(sentence)] for row, sentence in enumerate(SENTENCES)]
    assert largest_gap(found, golden_layers(suffix, "reset")) <= TOLERANCE


@pytest.mark.parametrize("wrong", [{"cell_clip": 2.9}, {"proj_clip": 2.9}], ids=["cell clip", "projection clip"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_wrong_clip_is_noticed_with_every_reader(read: Reader, wrong: dict[str, float], tmp_path: Path) -> None:
    found = read(golden_pair("", tmp_path, **wrong), "carry")
    assert largest_gap(found, golden_layers("", "carry")) > NOTICED


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_the_wrong_state_or_skip_connections_are_noticed_with_every_reader(read: Reader, tmp_path: Path) -> None:
    found = read(golden_pair("", tmp_path), "reset")
    assert largest_gap(found, golden_layers("", "carry")) > NOTICED
    assert largest_gap(found, golden_layers("_noskip", "reset")) > NOTICED
