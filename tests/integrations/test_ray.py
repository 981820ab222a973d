"""Batches as Ray Data sends them: pickled, in any order, to processes that load the model themselves."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from published import PublishedModel

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.integrations.ray import Batch, EmbedBatch

TEXTS = ["The bank closed. It rained.", "", "Children play", "x"]
ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-5  # a batch of another size is summed in another order


@pytest.fixture(scope="module")
def model(published_model: PublishedModel) -> str:
    return str(published_model.options_path.parent)


def as_batch(column: str, values: list[object]) -> Batch:
    """Return a batch as Ray passes it, with a second column."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return {column: array, "id": np.arange(len(values))}


def test_a_pickled_copy_adds_the_vectors_of_the_embedder(model: str) -> None:
    embed = pickle.loads(pickle.dumps(EmbedBatch(model, layer=1, pool="max", state="warm")))
    batch = embed(as_batch("text", TEXTS))
    expected = Embedder.from_pretrained(model, state="warm").encode(TEXTS, layer=1, pooling="max")
    np.testing.assert_allclose(batch["embedding"], expected, atol=TOLERANCE)
    assert list(batch) == ["text", "id", "embedding"]
    assert batch["text"].tolist() == TEXTS


def test_the_model_never_travels(model: str) -> None:
    embed = EmbedBatch(model)
    before = pickle.dumps(embed)
    embed(as_batch("text", TEXTS))
    assert pickle.dumps(embed) == before
    assert len(before) < 1000


def test_without_pooling_every_token_has_its_vector(model: str) -> None:
    batch = EmbedBatch(model, pool=None, layer=2, output="vectors")(as_batch("text", TEXTS))
    expected = Embedder.from_pretrained(model).embed_tokens(TEXTS, layer=2)
    assert [vectors.shape for vectors in batch["vectors"]] == [(7, 16), (0, 16), (2, 16), (1, 16)]
    for found, wanted in zip(batch["vectors"], expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE)


def test_texts_of_one_length_stay_apart_without_pooling(model: str) -> None:
    batch = EmbedBatch(model, pool=None)(as_batch("text", ["one two", "three four"]))
    assert batch["embedding"].shape == (2,)
    assert batch["embedding"][1].shape == (2, 16)


def test_lists_of_tokens_are_not_tokenized_again(model: str) -> None:
    sentences = [["New York", "."], [], ["don't"]]
    arrays = [np.array(sentence, dtype=object) for sentence in sentences]
    batch = EmbedBatch(model, column="tokens")(as_batch("tokens", arrays))
    expected = Embedder.from_pretrained(model).encode(sentences)
    np.testing.assert_allclose(batch["embedding"], expected, atol=TOLERANCE)


def test_a_missing_column_is_reported_with_the_existing_ones(model: str) -> None:
    with pytest.raises(InputError, match="the data has no column 'text'; its columns are line, id"):
        EmbedBatch(model)(as_batch("line", TEXTS))


def test_a_value_that_is_not_text_is_rejected(model: str) -> None:
    with pytest.raises(InputError, match="column 'text' holds None"):
        EmbedBatch(model)(as_batch("text", ["a", None]))


def test_invalid_options_are_rejected_at_construction() -> None:
    with pytest.raises(InputError, match="state is 'carry'"):
        EmbedBatch("nowhere", state="carry")
    with pytest.raises(InputError, match="pooling 'sum'"):
        EmbedBatch("nowhere", pool="sum")  # type: ignore[arg-type]


@pytest.mark.slow
def test_two_workers_of_a_local_ray_embed_a_file(model: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'elmokit[ray]'")
    from pyarrow import parquet

    texts = [f"Sentence {index} is here." for index in range(100)]
    (tmp_path / "notes.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "examples" / "ray_embed.py"), model, "notes.txt", "vectors", "--workers", "2"]
    # Ray keeps files in the home folder, and would report to its makers.
    environment = os.environ | {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    files = sorted((tmp_path / "vectors").glob("*.parquet"))
    found = {row["text"]: row["embedding"] for file in files for row in parquet.read_table(file).to_pylist()}
    assert sorted(found) == sorted(texts)
    expected = Embedder.from_pretrained(model).encode(texts)
    np.testing.assert_allclose([found[text] for text in texts], expected, atol=TOLERANCE)
