"""The published format: read into the right places, written back bit for bit."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from published import PublishedModel, make_published, read_published

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.errors import ConfigError, ElmokitWarning, OutputError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.weights.bilm_tf import published_shapes, read_bilm_tf, write_bilm_tf
from elmokit.weights.saved import SavedBiLM, expected_shapes, shapes_of

SHAPES: list[dict[str, Any]] = [
    {},
    {"dim": 8, "projection_dim": 8},  # no projection in the LSTM
    {"filters": [(1, 3), (2, 5)], "projection_dim": 8},  # no projection of the token layer
    {"n_layers": 3, "n_highway": 0, "cell_clip": None, "use_skip": False, "activation": "tanh"},
]


def write_again(model: PublishedModel, folder: Path) -> PublishedModel:
    """Read a published model and write it to another place."""
    folder.mkdir()
    write_bilm_tf(read_bilm_tf(*model.pair), folder / "options.json", folder / "weights.hdf5")
    return read_published(folder / "options.json", folder / "weights.hdf5")


def assert_same_bits(found: PublishedModel, expected: PublishedModel) -> None:
    assert found.options == expected.options
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_read_is_written_back_bit_for_bit(tmp_path: Path, shape: dict[str, Any]) -> None:
    model = make_published(tmp_path / "model", **shape)
    assert_same_bits(write_again(model, tmp_path / "again"), model)


def test_the_original_models_files_are_written_back_bit_for_bit(tmp_path: Path, data_dir: Path) -> None:
    fixture = data_dir / "fixtures" / "bilm_skip"
    model = read_published(fixture / "options.json", fixture / "lm_weights.hdf5")
    assert_same_bits(write_again(model, tmp_path / "again"), model)


def test_training_options_come_back_verbatim(tmp_path: Path) -> None:
    model = make_published(tmp_path / "model")
    model.options["char_cnn"]["n_characters"] = 261
    model.options.update({"n_epochs": 10, "all_clip_norm_val": 10.0, "unroll_steps": 20, "bidirectional": True})
    model.options_path.write_text(json.dumps(model.options))
    assert_same_bits(write_again(model, tmp_path / "again"), model)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tensors_are_the_state_of_the_module(tmp_path: Path, shape: dict[str, Any]) -> None:
    saved = read_bilm_tf(*make_published(tmp_path, **shape).pair)
    assert (
        shapes_of(saved.tensors)
        == expected_shapes(saved.config, source="x")
        == shapes_of(BiLM(saved.config).state_dict())
    )
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in saved.tensors.values())


def test_every_array_lands_in_its_place(published_model: PublishedModel) -> None:
    """Compare with the layout written out by hand: gates i, j, f, o become i, f, o, j; all else is transposed."""
    tensors = {name: tensor.numpy() for name, tensor in read_bilm_tf(*published_model.pair).tensors.items()}
    arrays, lstm = published_model.arrays, published_model.options["lstm"]
    cells, width = lstm["dim"], lstm["projection_dim"]
    for number, direction in enumerate(("forward", "backward")):
        cell, layer = f"RNN_{number}/RNN/MultiRNNCell/Cell1/LSTMCell", f"{direction}_lstm.layers.1"
        for block, gate in enumerate((0, 2, 3, 1)):
            ours, theirs = slice(block * cells, (block + 1) * cells), slice(gate * cells, (gate + 1) * cells)
            kernel = arrays[f"{cell}/W_0"][:, theirs]
            assert np.array_equal(tensors[f"{layer}.input_weight"][ours], kernel[:width].T)
            assert np.array_equal(tensors[f"{layer}.recurrent_weight"][ours], kernel[width:].T)
            assert np.array_equal(tensors[f"{layer}.bias"][ours], arrays[f"{cell}/B"][theirs])
        assert np.array_equal(tensors[f"{layer}.projection"], arrays[f"{cell}/W_P_0"].T)
    weight, published = tensors["char_encoder.convs.2.weight"], arrays["CNN/W_cnn_2"]
    for position in np.ndindex(weight.shape):
        assert weight[position] == published[0, position[2], position[1], position[0]]
    assert np.array_equal(tensors["char_encoder.highways.1.gate.weight"], arrays["CNN_high_1/W_carry"].T)
    assert np.array_equal(tensors["char_encoder.highways.1.transform.bias"], arrays["CNN_high_1/b_transform"])
    assert np.array_equal(tensors["char_encoder.projection.weight"], arrays["CNN_proj/W_proj"].T)
    assert np.array_equal(tensors["char_encoder.char_embedding"], arrays["char_embed"])


def test_the_shapes_of_the_paper() -> None:
    shapes = published_shapes(BiLMConfig())
    assert shapes["CNN/W_cnn_6"] == (1, 7, 16, 1024)
    assert shapes["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"] == (1024, 16384)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 93_600_848


def test_a_model_born_here_is_written_with_options_of_its_config(tmp_path: Path) -> None:
    config = BiLMConfig(
        char_encoder=CharEncoderConfig(filters=((1, 4), (2, 8)), num_highway=1),
        lstm=LSTMConfig(cell_dim=10, proj_dim=6, proj_clip=None),
    )
    tensors = BiLM(config).state_dict()
    write_bilm_tf(SavedBiLM(config, tensors), tmp_path / "o.json", tmp_path / "w.hdf5")
    again = read_bilm_tf(tmp_path / "o.json", tmp_path / "w.hdf5")
    assert again.config == config
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in tensors.items())


def test_unknown_options_and_datasets_are_warned_of_once_by_name(tmp_path: Path) -> None:
    model = make_published(tmp_path)
    model.options_path.write_text(json.dumps(model.options | {"reverse": True}))
    with h5py.File(model.weights_path, "a") as file:
        file["softmax/W"] = np.zeros(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = read_bilm_tf(*model.pair)
    assert [warning.category for warning in caught] == [ElmokitWarning]
    assert "options reverse and datasets softmax/W" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert saved.options == model.options | {"reverse": True}


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    one, other = make_published(tmp_path / "one"), make_published(tmp_path / "other", dim=16)
    with pytest.raises(WeightsError, match=r"W_0: has shape \(16, 64\); the options say \(16, 96\)"):
        read_bilm_tf(one.options_path, other.weights_path)


def test_options_that_contradict_the_config_are_not_written(tmp_path: Path, published_model: PublishedModel) -> None:
    saved = read_bilm_tf(*published_model.pair)
    lstm = saved.config.lstm.model_copy(update={"skip_connections": False})
    changed = replace(saved, config=saved.config.model_copy(update={"lstm": lstm}))
    with pytest.raises(ConfigError, match="say otherwise than its config"):
        write_bilm_tf(changed, tmp_path / "o.json", tmp_path / "w.hdf5")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_neither_file(tmp_path: Path, published_model: PublishedModel) -> None:
    saved = read_bilm_tf(*published_model.pair)
    with pytest.raises(OutputError, match="create the directory first"):
        write_bilm_tf(saved, tmp_path / "nowhere" / "o.json", tmp_path / "w.hdf5")
    del saved.tensors["char_encoder.char_embedding"]
    with pytest.raises(WeightsError, match=r"char_encoder\.char_embedding missing"):
        write_bilm_tf(saved, tmp_path / "o.json", tmp_path / "w.hdf5")
    assert list(tmp_path.iterdir()) == []
