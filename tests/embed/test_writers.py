"""Every format gives back what was written, in its documented shape."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from elmokit.embed.writers import (
    FORMATS,
    EmbeddedLine,
    Layout,
    Unfinished,
    find_format,
    to_stored,
)
from elmokit.errors import InputError

NUM_LAYERS, WIDTH = 3, 5


def make_lines(lengths: list[int], layout: Layout, first: int = 0) -> list[EmbeddedLine]:
    """Lines of random vectors, in the shape and type that the layout says."""
    rng = np.random.default_rng(0)
    layers = () if layout.num_layers is None else (layout.num_layers,)
    lines = []
    for number, length in enumerate(lengths, start=first):
        tokens = () if layout.pooled else (length,)
        vectors = rng.normal(size=(*layers, *tokens, layout.width)).astype(np.float32)
        lines.append(EmbeddedLine(number, [f"w{i}" for i in range(length)], to_stored(vectors, layout)))
    return lines


def write(folder: Path, name: str, lines: list[EmbeddedLine], layout: Layout) -> Path:
    """Write the lines in one format; return the finished file."""
    form, target = FORMATS[name], folder / f"out.{name}"
    folder.mkdir(exist_ok=True)
    sizes = {}
    parts = {}
    for part, reserved in form.reserved.items():
        (folder / part).write_bytes(bytes(reserved))
        parts[part] = (folder / part).open("r+b")
        parts[part].seek(reserved)
    for line in lines:
        form.write_line(parts, line, layout)
    for part, file in parts.items():
        sizes[part] = file.tell()
        file.close()
    first = lines[0].number if lines else 0
    work = Unfinished(folder, target, layout, first, len(lines), sizes, {"state": "reset"})
    once = form.finish(work).read_bytes()
    finished = form.finish(work)  # as after an interruption
    assert finished.read_bytes() == once
    finished.rename(target)
    return target


def token_rows(line: EmbeddedLine, layout: Layout) -> NDArray[np.floating[Any]]:
    return line.vectors if layout.num_layers is None else line.vectors.swapaxes(0, 1)


def test_safetensors_hold_the_token_of_every_row(tmp_path):
    layout = Layout("float16", None, WIDTH, pooled=False)
    lines = make_lines([2, 0, 3], layout)
    lines[0] = EmbeddedLine(0, ["naïve", ""], lines[0].vectors)
    tensors = load_file(write(tmp_path / "a", "safetensors", lines, layout))
    text, ends = tensors["tokens"].tobytes(), tensors["token_offsets"].tolist()
    tokens = [text[start:end].decode() for start, end in pairwise(ends)]
    assert tokens == ["naïve", "", "w0", "w1", "w2"]
    assert len(tokens) == len(tensors["vectors"])


def test_a_pooled_line_has_one_vector_and_no_tokens(tmp_path):
    layout = Layout("float32", None, WIDTH, pooled=True)
    lines = make_lines([2, 1], layout)
    assert load_file(write(tmp_path / "a", "safetensors", lines, layout)).keys() == {"vectors"}
    first = json.loads(write(tmp_path / "b", "jsonl", lines, layout).read_text().splitlines()[0])
    assert first.keys() == {"line", "tokens", "vector"}
    np.testing.assert_allclose(first["vector"], lines[0].vectors)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("num_layers", [None, NUM_LAYERS])
def test_offsets_cut_each_line_out_of_the_vectors(tmp_path, dtype, num_layers):
    layout = Layout(dtype, num_layers, WIDTH, pooled=False)
    lines = make_lines([4, 0, 1, 0], layout)
    tensors = load_file(write(tmp_path / "a", "safetensors", lines, layout))
    path = write(tmp_path / "b", "npy", lines, layout)
    arrays = {"vectors": np.load(path), "offsets": np.load(path.with_name("out.offsets.npy"))}
    for found in (tensors, arrays):
        assert found["offsets"].tolist() == [0, 4, 4, 5, 5]
        assert found["vectors"].dtype == dtype
        for i, line in enumerate(lines):
            rows = found["vectors"][found["offsets"][i] : found["offsets"][i + 1]]
            assert np.array_equal(rows, token_rows(line, layout))


@pytest.mark.parametrize("num_layers", [None, NUM_LAYERS])
def test_pooled_lines_are_rows_without_offsets(tmp_path, num_layers):
    layout = Layout("float32", num_layers, WIDTH, pooled=True)
    lines = make_lines([4, 0, 1], layout)
    expected = np.stack([line.vectors for line in lines])
    tensors = load_file(write(tmp_path / "a", "safetensors", lines, layout))
    assert tensors.keys() == {"vectors"}
    assert np.array_equal(tensors["vectors"], expected)
    path = write(tmp_path / "b", "npy", lines, layout)
    assert np.array_equal(np.load(path, mmap_mode="r"), expected)
    assert not path.with_name("out.offsets.npy").exists()


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("num_layers", [None, NUM_LAYERS])
def test_hdf5_has_a_dataset_a_line_named_by_its_number(tmp_path, num_layers, pooled):
    layout = Layout("float32", num_layers, WIDTH, pooled=pooled)
    lines = make_lines([2, 0, 3], layout, first=1024)
    with h5py.File(write(tmp_path, "hdf5", lines, layout)) as file:
        assert set(file) == {"1024", "1025", "1026"}
        for line in lines:
            assert file[str(line.number)].shape == line.vectors.shape
            assert np.array_equal(file[str(line.number)], line.vectors)


@given(value=st.floats(width=16, allow_nan=False, allow_infinity=False), dtype=st.sampled_from(["float16", "float32"]))
def test_json_numbers_are_exact(tmp_path_factory, value, dtype):
    layout = Layout(dtype, None, 2, pooled=True)
    vectors = np.array([value, value / 3], dtype=dtype)
    path = write(tmp_path_factory.mktemp("json"), "jsonl", [EmbeddedLine(7, ["é", '"'], vectors)], layout)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["line"], found["tokens"]) == (7, ["é", '"'])
    assert np.array_equal(np.array(found["vector"], dtype=dtype), vectors)


def test_json_has_the_layers_outside(tmp_path):
    layout = Layout("float32", NUM_LAYERS, WIDTH, pooled=False)
    lines = make_lines([2, 0], layout)
    found = [json.loads(line) for line in write(tmp_path, "jsonl", lines, layout).read_text().splitlines()]
    assert np.array_equal(np.array(found[0]["vectors"], dtype=np.float32), lines[0].vectors)
    assert found[1]["vectors"] == [[]] * NUM_LAYERS


@pytest.mark.parametrize("name", FORMATS)
def test_no_lines_at_all_is_a_whole_file(tmp_path, name):
    path = write(tmp_path, name, [], Layout("float16", NUM_LAYERS, WIDTH, pooled=False))
    match name:
        case "safetensors":
            assert load_file(path)["vectors"].shape == (0, NUM_LAYERS, WIDTH)
            assert load_file(path)["offsets"].tolist() == [0]
        case "npy":
            assert np.load(path).shape == (0, NUM_LAYERS, WIDTH)
        case "hdf5":
            assert list(h5py.File(path)) == []
        case "jsonl":
            assert path.read_bytes() == b""


def test_a_value_too_large_for_float16_is_an_error_not_infinity():
    with pytest.raises(InputError, match=r"70000, too large for float16; use float32"):
        to_stored(np.array([70_000.0], dtype=np.float32), Layout("float16", None, 1, pooled=False))


def test_the_suffix_says_the_format_unless_it_is_named():
    assert find_format(Path("a.H5"), None).name == "hdf5"
    assert find_format(Path("a.safetensors"), "npy").name == "npy"
    with pytest.raises(InputError, match=r"'\.txt' is no known format; use one of \.safetensors"):
        find_format(Path("a.txt"), None)
    with pytest.raises(InputError, match="format 'zip'; expected one of"):
        find_format(Path("a.npy"), "zip")  # type: ignore[arg-type]
