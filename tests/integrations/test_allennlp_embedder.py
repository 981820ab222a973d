"""AllenNLP's ElmoEmbedder: carried states, batches, and files of vectors."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from oracle import Oracle
from published import PublishedModel

from elmokit.errors import InputError, OutputError
from elmokit.integrations.allennlp import ElmoEmbedder

TOLERANCE = 5e-6
SENTENCES = [["The", "bank", "closed", "."], ["Play"], ["Children", "play", "outside"]]
NUM_LAYERS, WIDTH = 3, 16  # of the fixture's model
BATCHES = [SENTENCES, SENTENCES[:1], SENTENCES[1:]]  # rows missing from a batch keep their state


@pytest.fixture
def embedder(published_model: PublishedModel) -> ElmoEmbedder:
    return ElmoEmbedder(*published_model.pair)


def oracle(model: PublishedModel) -> Oracle:
    return Oracle(model.arrays, model.options)


def close(found: Any, expected: Any, *, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(torch.as_tensor(found).detach(), expected, rtol=0, atol=tolerance)


def test_embedder_carries_its_state_as_the_original(published_model: PublishedModel, embedder: ElmoEmbedder) -> None:
    for batch, layers in zip(BATCHES, oracle(published_model).run_carrying(BATCHES), strict=True):
        for found, expected in zip(embedder.embed_batch(batch), layers, strict=True):
            assert found.dtype == np.float32
            close(found, expected)


def test_embedder_cuts_a_stream_into_batches_in_order(published_model: PublishedModel, embedder: ElmoEmbedder) -> None:
    expected = oracle(published_model).run_carrying([SENTENCES[:2], SENTENCES[2:]])
    for found, layers in zip(embedder.embed_sentences(iter(SENTENCES), 2), [*expected[0], *expected[1]], strict=True):
        close(found, layers)


def test_embedder_without_carried_state_repeats_itself(published_model: PublishedModel) -> None:
    embedder = ElmoEmbedder(*published_model.pair, state="reset")
    first = embedder.embed_sentence(SENTENCES[0])
    embedder.embed_batch(SENTENCES)
    assert np.array_equal(embedder.embed_sentence(SENTENCES[0]), first)


@pytest.mark.parametrize(
    "make_copy", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)
def test_a_copied_embedder_gives_the_same_vectors(
    published_model: PublishedModel, make_copy: Callable[..., Any]
) -> None:
    embedder = ElmoEmbedder(*published_model.pair, state="reset")
    copied = make_copy(embedder)
    for found, expected in zip(copied.embed_batch(SENTENCES), embedder.embed_batch(SENTENCES), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_embedder_gives_padded_tensors_and_a_mask(published_model: PublishedModel, embedder: ElmoEmbedder) -> None:
    layers, mask = embedder.batch_to_embeddings(SENTENCES)
    assert layers.shape == (3, NUM_LAYERS, 4, WIDTH)
    assert mask.tolist() == [[True] * 4, [True] + [False] * 3, [True] * 3 + [False]]
    close(layers[2, :, :3], oracle(published_model).run_bilm(SENTENCES).layers[2])
    assert not layers[1, :, 1:].any()


@pytest.mark.parametrize("batch", [[[]], [["bank"], []]])
def test_an_empty_sentence_has_the_models_own_size(embedder: ElmoEmbedder, batch: list[list[str]]) -> None:
    empty = embedder.embed_batch(batch)[-1]
    assert empty.shape == (NUM_LAYERS, 0, WIDTH)
    assert empty.dtype == np.float32


def test_no_sentences_give_nothing(embedder: ElmoEmbedder) -> None:
    assert embedder.embed_batch([]) == []
    assert embedder.batch_to_embeddings([])[0].shape == (0, NUM_LAYERS, 0, WIDTH)


LINES = ["The bank closed .", "and / or", "Play", "The bank closed ."]


def embed_lines(embedder: ElmoEmbedder, lines: list[str], output: Path, *args: Any, **options: Any) -> dict[str, Any]:
    source = output.with_suffix(".txt")
    source.write_text("".join(f" {line}\n" for line in lines), encoding="utf-8")
    with source.open(encoding="utf-8") as file:
        embedder.embed_file(file, str(output), *args, **options)
    with h5py.File(output) as written:
        return {key: written[key][...] if isinstance(written[key], h5py.Dataset) else None for key in written}


@pytest.mark.parametrize(
    ("output_format", "pick"),
    [("all", lambda layers: layers), ("top", lambda layers: layers[-1]), ("average", lambda layers: layers.mean(0))],
)
def test_a_file_has_one_dataset_per_line(
    published_model: PublishedModel, tmp_path: Path, output_format: str, pick: Callable[[Any], Any]
) -> None:
    embedder = ElmoEmbedder(*published_model.pair)
    found = embed_lines(embedder, LINES, tmp_path / "out.hdf5", output_format, 3)
    sentences = [line.split() for line in LINES]
    first, last = oracle(published_model).run_carrying([sentences[:3], sentences[3:]])
    assert set(found) == {"0", "1", "2", "3", "sentence_to_index"}
    for key, layers in enumerate([*first, *last]):
        assert found[str(key)].dtype == np.float32
        close(found[str(key)], pick(layers))


def test_a_repeated_line_keeps_its_first_number(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    index = embed_lines(embedder, LINES, tmp_path / "out.hdf5")["sentence_to_index"]
    assert index.shape == (1,)
    assert json.loads(index[0]) == {"The bank closed .": "0", "and / or": "1", "Play": "2"}


def test_sentences_can_be_forgotten_or_be_keys(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    assert set(embed_lines(embedder, LINES[:2], tmp_path / "out.hdf5", forget_sentences=True)) == {"0", "1"}
    lines = [LINES[0], LINES[2], "Straße : 北京"]
    found = embed_lines(embedder, lines, tmp_path / "out.hdf5", use_sentence_keys=True)
    assert {key: vectors.shape[1] for key, vectors in found.items()} == {lines[0]: 4, lines[1]: 1, lines[2]: 3}


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a", "", "b", "  "], {}, r"2 blank lines \(line 2, 4\)"),
        (LINES, {"use_sentence_keys": True}, "line 2, 'and / or', is not a valid key"),
        (["a", "b", "a"], {"use_sentence_keys": True}, "line 3, 'a', occurs before"),
        (["a", "."], {"use_sentence_keys": True}, "line 2, '.', is not a valid key"),
        (["a"], {"output_format": "mean"}, "output_format 'mean'"),
        (["a"], {"batch_size": 0}, "batch_size 0"),
    ],
)
def test_a_rejected_file_leaves_the_old_output(
    embedder: ElmoEmbedder, tmp_path: Path, lines: list[str], options: dict[str, Any], message: str
) -> None:
    output = tmp_path / "out.hdf5"
    output.write_text("what was there")
    with pytest.raises(InputError, match=message):
        embed_lines(embedder, lines, output, **options)
    assert output.read_text() == "what was there"


def test_a_full_disk_is_an_error_and_no_crash(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="only POSIX can limit a file's size")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"out.hdf5: cannot be written: File too large"):
            embedder.embed_file(["bank"] * 500, tmp_path / "out.hdf5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_an_output_without_its_directory_is_rejected(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="create the directory"):
        embedder.embed_file(["bank"], tmp_path / "absent" / "out.hdf5")
