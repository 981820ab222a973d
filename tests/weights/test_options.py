"""Published options: read as a config, named in every message, written back."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.errors import ConfigError
from elmokit.weights.options import (
    config_from_options,
    options_from_config,
    read_json_object,
    unknown_option_keys,
)
from elmokit.weights.saved import expected_shapes

SMALL = "elmo_2x1024_128_2048cnn_1xhighway_options.json"


@pytest.fixture
def options() -> dict[str, Any]:
    return {
        "lstm": {
            "use_skip_connections": True,
            "projection_dim": 16,
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": 64,
            "n_layers": 2,
        },
        "char_cnn": {
            "activation": "relu",
            "filters": [[1, 8], [3, 16]],
            "n_highway": 1,
            "embedding": {"dim": 4},
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }


def changed(options: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A copy of the options in which one, by its dotted name, has another value; ``...`` removes it."""
    options = copy.deepcopy(options)
    *parents, key = name.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return options


def test_options_become_the_config(options: dict[str, Any]) -> None:
    encoder = CharEncoderConfig(char_dim=4, filters=((1, 8), (3, 16)), num_highway=1)
    lstm = LSTMConfig(cell_dim=64, proj_dim=16, num_layers=2, cell_clip=3, proj_clip=3, skip_connections=True)
    assert config_from_options(options, source="x") == BiLMConfig(char_encoder=encoder, lstm=lstm)


def test_the_published_small_model_is_understood_whole(data_dir: Path) -> None:
    options = read_json_object(data_dir / "fixtures" / SMALL)
    config = config_from_options(options, source="x")
    assert (config.lstm.cell_dim, config.lstm.proj_dim, config.char_encoder.num_filters) == (1024, 128, 2048)
    assert unknown_option_keys(options) == []
    assert options_from_config(config) == options


filters = st.lists(st.tuples(st.integers(1, 5), st.integers(8, 30)), min_size=1, max_size=3)
clips = st.none() | st.floats(0.1, 10)


@given(
    filters, st.booleans(), st.integers(1, 8), st.integers(8, 40), clips, clips, st.integers(1, 4), st.integers(0, 3)
)
def test_a_config_survives_its_options(
    filters: list[tuple[int, int]],
    skip: bool,
    proj_dim: int,
    cell_dim: int,
    cell_clip: float | None,
    proj_clip: float | None,
    num_layers: int,
    num_highway: int,
) -> None:
    config = BiLMConfig(
        char_encoder=CharEncoderConfig(filters=tuple(filters), num_highway=num_highway, activation="tanh", max_chars=9),
        lstm=LSTMConfig(
            cell_dim=cell_dim,
            proj_dim=proj_dim,
            num_layers=num_layers,
            cell_clip=cell_clip,
            proj_clip=proj_clip,
            skip_connections=skip,
        ),
    )
    assert config_from_options(json.loads(json.dumps(options_from_config(config))), source="x") == config


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("lstm.n_layers", "lstm.num_layers", 1),
        ("lstm.cell_clip", "lstm.cell_clip", None),
        ("lstm.proj_clip", "lstm.proj_clip", None),
        ("lstm.use_skip_connections", "lstm.skip_connections", False),
        ("char_cnn.n_highway", "char_encoder.num_highway", 0),
    ],
)
def test_an_absent_option_has_the_default_of_bilm_tf(
    options: dict[str, Any], name: str, field: str, value: object
) -> None:
    part, key = field.split(".")
    for absent in (..., None):
        config = config_from_options(changed(options, name, absent), source="x")
        assert getattr(getattr(config, part), key) == value


@pytest.mark.parametrize("count", [261, 262, ...])
def test_training_and_prediction_options_are_one_model(options: dict[str, Any], count: object) -> None:
    assert config_from_options(changed(options, "char_cnn.n_characters", count), source="x") == config_from_options(
        options, source="x"
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("char_cnn.n_characters", 60, r"char_cnn\.n_characters = 60; expected 262 \(or 261"),
        ("char_cnn", ..., "no char_cnn, so the model reads word ids"),
        ("char_cnn", None, r"char_cnn = None; expected an object"),
        ("char_cnn.embedding", 4, r"char_cnn\.embedding = 4; expected an object"),
        ("char_cnn.max_characters_per_token", ..., r"char_cnn\.max_characters_per_token is missing"),
        ("char_cnn.activation", "gelu", r"char_cnn\.activation = 'gelu'"),
        ("char_cnn.filters", [], r"char_cnn\.filters = \[\]"),
        ("char_cnn.filters", [[1, 0]], r"char_cnn\.filters\.0\.1 = 0"),
        ("char_cnn.filters", [[60, 32]], r"60 characters wide.*\(char_cnn\.max_characters_per_token\)"),
        ("lstm", [], r"lstm = \[\]; expected an object"),
        ("lstm.dim", ..., r"lstm\.dim is missing"),
        ("lstm.dim", "64", r"lstm\.dim = '64'"),
        ("lstm.dim", True, r"lstm\.dim = True"),
        ("lstm.dim", -1, r"lstm\.dim = -1"),
        ("lstm.dim", 8, r"lstm\.projection_dim 16 is larger than lstm\.dim 8"),
        ("lstm.projection_dim", 60, r"24 filters are fewer than lstm\.projection_dim 60"),
        ("lstm.cell_clip", 0, r"lstm\.cell_clip = 0"),
        ("bidirectional", False, "bidirectional = False; a biLM needs both directions"),
    ],
)
def test_an_impossible_option_is_refused_by_its_own_name(
    options: dict[str, Any], name: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"my options: .*{message}"):
        config_from_options(changed(options, name, value), source="my options")


def test_unknown_options_are_reported_by_their_dotted_names(options: dict[str, Any]) -> None:
    options |= {"reverse": True, "n_epochs": 10, "dropout": 0.1, "extra": {"deep": 1}}
    options["lstm"]["peepholes"] = False
    options["char_cnn"]["embedding"]["rows"] = 5
    assert unknown_option_keys(options) == ["char_cnn.embedding.rows", "extra", "lstm.peepholes", "reverse"]
    config_from_options(options, source="x")


@pytest.mark.parametrize("name", ["lstm.n_layers", "char_cnn.n_highway", "lstm.dim"])
def test_a_model_too_large_to_be_one_is_refused_before_its_tensors_are_listed(
    options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=r"^the file: .*(of up to 100|more than 100,000,000,000)"):
        expected_shapes(config_from_options(changed(options, name, 10**12), source="x"), source="the file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"lstm": ', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1, 2]", "holds a JSON list; expected an object"),
        (b'{"clip": NaN}', "NaN is not finite"),
        (b'{"clip": -Infinity}', "-Infinity is not finite"),
        (b'{"clip": 1e999}', "1e999 is not finite"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b" " * (2**20 + 1), "larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_json_object_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "options.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"options\.json: .*{message}"):
        read_json_object(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read: No such file"):
        read_json_object(tmp_path / "none.json")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1.5}')
    assert read_json_object(path) == {"a": 1.5}
