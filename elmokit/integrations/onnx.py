"""Export a biLM to one ONNX file, for platforms and languages without PyTorch.

The input ``char_ids``, int64 (batch, tokens, max_chars), is what `elmokit.text.chars.pad_sentences` and AllenNLP's
``batch_to_ids`` return: no boundaries, right-padded with zeros. The outputs are ``layers``, float32
(batch, layers, tokens, width), zero on padding, and ``mask``, bool (batch, tokens). Batch and tokens are dynamic.

Shapes: B sentences, T tokens, C character ids per word, L layers, D width.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from elmokit.atomic import atomic_file
from elmokit.errors import InputError, OutputError
from elmokit.extras import require
from elmokit.text.chars import pad_sentences
from elmokit.weights.saved import SavedBiLM, check_reads_bytes
from elmokit.weights.source import Source, build_bilm, load_saved
from elmokit.weights.start_state import WARM_TEXT, from_tensors, to_tensors, warm_state

if TYPE_CHECKING:
    from onnx import ModelProto

State = Literal["reset", "warm"]
"""State in which a sentence starts. ``carry`` is not supported: a graph has no memory between two calls."""

TOLERANCE = 1e-5
LARGEST_FILE = 2**31 - 2**24  # protobuf's limit is 2 GiB; larger weights go into a second file
PAGE = 4096  # alignment of tensors in that file, so that it can be mapped into memory
SMALL = 1024  # bytes. Smaller tensors, such as shapes, stay in the graph, which needs them to load


def export_onnx(source: Source, path: str | Path, *, state: State = "warm", overwrite: bool = False) -> None:
    """Write a saved biLM as an ONNX model.

    Args:
        source: A model, as `Embedder.from_pretrained` takes it.
        path: File to write. Weights over 2 GiB, protobuf's limit, go into a second file, ``path`` + ``.data``.
        state: State in which every sentence starts.
        overwrite: Replace an existing file.
    """
    if state not in get_args(State):
        raise InputError(f"state {state!r}; expected 'reset' or 'warm': an ONNX model has no memory between calls")
    if Path(path).exists() and not overwrite:
        raise OutputError(f"{path}: exists; choose another file, or replace it with overwrite=True (--force)")
    require("onnx", extra="onnx")
    from onnx import helper

    from elmokit.integrations.onnx_graph import build_model

    saved = load_saved(source)
    check_reads_bytes(saved.config, purpose="ONNX export")
    weights = {name: tensor.numpy() for name, tensor in saved.tensors.items()}
    start = {name: tensor.numpy() for name, tensor in _start_state(saved, state).items()}
    model = build_model(saved.config, weights, start)
    helper.set_model_props(model, {"state": state, "config": saved.config.model_dump_json()})
    _write(model, Path(path))


def check_onnx(path: str | Path, source: Source, *, state: State = "warm") -> float:
    """Compare an exported model in ONNX Runtime with the biLM in PyTorch; return the largest absolute difference.

    Raises OutputError if it exceeds 1e-5.
    """
    runtime = require("onnxruntime", extra="onnx")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; expected a model written by export_onnx")
    saved = load_saved(source)
    bilm = build_bilm(saved)
    words = " ".join(WARM_TEXT).split()
    sentences = [words[:1], WARM_TEXT[0].split(), [], words]
    char_ids_BTC = pad_sentences(sentences, max_chars=saved.config.char_encoder.max_chars)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [layers_BLTD] = session.run(["layers"], {"char_ids": char_ids_BTC})
    start = from_tensors(_start_state(saved, state)).select(torch.zeros(len(sentences), dtype=torch.long))
    with torch.inference_mode():
        padded = bilm(torch.from_numpy(char_ids_BTC), start)
    expected_BLTD = (padded.layers_BLTD[:, :, 1:-1] * padded.mask_BT[:, None, 2:, None]).numpy()
    gap = float(np.abs(layers_BLTD - expected_BLTD).max())
    if not gap <= TOLERANCE:  # true for NaN, too
        raise OutputError(
            f"{path}: differs from PyTorch by {gap:.1g}; expected at most {TOLERANCE:.0g}. "
            f"Was it exported from this model, with state {state!r}?"
        )
    return gap


def _start_state(saved: SavedBiLM, state: State) -> dict[str, torch.Tensor]:
    """Return the state in which every sentence starts, each part (layers, width)."""
    bilm = build_bilm(saved)
    if state == "reset":
        return to_tensors(bilm.zero_state(1))
    return saved.start_state or to_tensors(warm_state(bilm))


def _write(model: "ModelProto", path: Path) -> None:
    num_bytes = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if num_bytes <= LARGEST_FILE:
        with atomic_file(path) as file:
            file.write_bytes(model.SerializeToString())
        return
    data_path = path.with_name(f"{path.name}.data")
    # The weights are in place before the graph that refers to them.
    with atomic_file(path) as file, atomic_file(data_path) as data:
        _move_weights(model, data, location=data_path.name)
        file.write_bytes(model.SerializeToString())


def _move_weights(model: "ModelProto", data: Path, *, location: str) -> None:
    """Move the large tensors of a model into a file, and record their locations in the model."""
    from onnx.external_data_helper import set_external_data

    with data.open("wb") as file:
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) < SMALL:
                continue
            file.seek(-file.tell() % PAGE, 1)
            set_external_data(tensor, location, offset=file.tell(), length=len(tensor.raw_data))
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
