"""The package against the original TensorFlow model's own outputs, and against the oracle.

Two witnesses: a small model whose outputs the original TensorFlow code wrote down, and a NumPy oracle that
first proves itself on these outputs and is then asked about the shapes of models that they do not cover.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import MISTAKES, Oracle
from parity_cases import SENTENCES, UNEVEN_BATCHES, VARIANTS, Batch, largest_gap
from published import PublishedModel, make_published, read_published

from elmokit.embed.embedder import Embedder

# The package warns of the over-long words below; that is not at stake here.
pytestmark = [pytest.mark.filterwarnings("ignore:.*(was|were) cut"), pytest.mark.long]

# Sums in float32 differ in the last bits with the order of their terms. In float32 the oracle is within 1.5e-6 of
# TensorFlow, and within 1.7e-6 of itself in float64. The cheapest known mistake costs 1.5e-3.
TOLERANCE = 5e-6


@dataclass(frozen=True)
class TensorFlowRun:
    """A small model, and what the original TensorFlow code made of its sentences and words."""

    model: PublishedModel
    batches: list[Batch]
    top_layers: list[list[NDArray[np.float32]]]
    """One (T, 2P) array for each sentence of each batch, the state of row k carried from batch to batch."""
    words: list[str]
    token_vectors: NDArray[np.float32]


@pytest.fixture(scope="module")
def tensorflow_run(data_dir: Path) -> TensorFlowRun:
    folder = data_dir / "fixtures" / "bilm_skip"
    rows = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    top_layers: list[list[NDArray[np.float32]]] = [[] for _ in rows[0]]
    for row in range(len(rows)):
        with h5py.File(folder / f"lm_embeddings_{row}.hdf5", "r") as file:
            for index, batch in enumerate(top_layers):
                forward, backward = file[str(index)][...]
                batch.append(np.concatenate([forward, backward], axis=1))
    with h5py.File(folder / "elmo_token_embeddings.hdf5", "r") as file:
        token_vectors = file["embedding"][...]
    return TensorFlowRun(
        model=read_published(folder / "options.json", folder / "lm_weights.hdf5"),
        batches=[[sentence.split() for sentence in batch] for batch in zip(*rows, strict=True)],
        top_layers=top_layers,
        words=(folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n"),
        token_vectors=token_vectors,
    )


@pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedModel:
    return make_published(tmp_path, **request.param)


def embed_batches(
    model: PublishedModel, batches: Sequence[Batch], *, state: Literal["reset", "carry"]
) -> list[list[NDArray[np.float32]]]:
    embedder = Embedder.from_pretrained(model.pair, state=state)
    return [embedder.embed_layers(batch, batch_size=len(batch)) for batch in batches]


def flatten(batches: Sequence[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    return [array for batch in batches for array in batch]


def test_oracle_matches_tensorflow_in_every_batch(tensorflow_run: TensorFlowRun) -> None:
    oracle = Oracle(tensorflow_run.model.arrays, tensorflow_run.model.options)
    found = [layers[-1] for layers in flatten(oracle.run_carrying(tensorflow_run.batches))]
    gap = largest_gap(found, flatten(tensorflow_run.top_layers))
    assert gap <= TOLERANCE


def test_oracle_matches_tensorflow_in_the_token_layer(tensorflow_run: TensorFlowRun) -> None:
    oracle = Oracle(tensorflow_run.model.arrays, tensorflow_run.model.options)
    found = oracle.token_vectors(tensorflow_run.words)
    gap = largest_gap([found], [tensorflow_run.token_vectors])
    assert gap <= TOLERANCE


def test_top_layer_matches_tensorflow_in_every_batch_with_carried_state(tensorflow_run: TensorFlowRun) -> None:
    found = embed_batches(tensorflow_run.model, tensorflow_run.batches, state="carry")
    assert len(found) == 10
    for batch, expected in zip(found, tensorflow_run.top_layers, strict=True):
        gap = largest_gap([layers[-1] for layers in batch], expected)
        assert gap <= TOLERANCE


def test_top_layer_matches_tensorflow_in_the_first_batch_from_a_zero_state(tensorflow_run: TensorFlowRun) -> None:
    [found] = embed_batches(tensorflow_run.model, tensorflow_run.batches[:1], state="reset")
    gap = largest_gap([layers[-1] for layers in found], tensorflow_run.top_layers[0])
    assert gap <= TOLERANCE


def test_token_layer_matches_tensorflow_in_both_halves(tensorflow_run: TensorFlowRun) -> None:
    [layers] = embed_batches(tensorflow_run.model, [[[word] for word in tensorflow_run.words]], state="reset")
    found = np.stack([word_layers[0, 0] for word_layers in layers])
    expected = np.concatenate([tensorflow_run.token_vectors] * 2, axis=1)
    gap = largest_gap([found], [expected])
    assert gap <= TOLERANCE


def test_every_layer_matches_the_oracle_from_a_zero_state(variant: PublishedModel) -> None:
    expected = Oracle(variant.arrays, variant.options).run_bilm(SENTENCES).layers
    [found] = embed_batches(variant, [SENTENCES], state="reset")
    gap = largest_gap(found, expected)
    assert gap <= TOLERANCE


def test_every_layer_matches_the_oracle_with_carried_state(variant: PublishedModel) -> None:
    expected = Oracle(variant.arrays, variant.options).run_carrying(UNEVEN_BATCHES)
    found = embed_batches(variant, UNEVEN_BATCHES, state="carry")
    gap = largest_gap(flatten(found), flatten(expected))
    assert gap <= TOLERANCE


def test_state_is_carried_between_the_batches_of_one_call(published_model: PublishedModel) -> None:
    oracle = Oracle(published_model.arrays, published_model.options)
    expected = oracle.run_carrying([SENTENCES[:3], SENTENCES[3:6], SENTENCES[6:]])
    found = Embedder.from_pretrained(published_model.pair, state="carry").embed_layers(SENTENCES, batch_size=3)
    gap = largest_gap(found, flatten(expected))
    assert gap <= TOLERANCE


def test_resetting_the_state_returns_to_zero(published_model: PublishedModel) -> None:
    expected = Oracle(published_model.arrays, published_model.options).run_bilm(SENTENCES).layers
    embedder = Embedder.from_pretrained(published_model.pair, state="carry")
    embedder.embed_layers(SENTENCES)
    gap_carried = largest_gap(embedder.embed_layers(SENTENCES), expected)
    embedder.reset_state()
    gap_reset = largest_gap(embedder.embed_layers(SENTENCES), expected)
    assert gap_carried > 100 * TOLERANCE
    assert gap_reset <= TOLERANCE


@pytest.mark.slow
def test_float32_rounding_alone_stays_below_the_tolerance(variant: PublishedModel) -> None:
    """How far depends on the order in which a machine's library adds up: 0.9e-6 to 3.2e-6 seen."""
    exact = Oracle(variant.arrays, variant.options).run_carrying(UNEVEN_BATCHES)
    rounded = Oracle(variant.arrays, variant.options, dtype=np.float32).run_carrying(UNEVEN_BATCHES)
    gap = largest_gap(flatten(rounded), flatten(exact))
    assert gap <= TOLERANCE


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_each_known_mistake_would_be_noticed(published_model: PublishedModel, mistake: str) -> None:
    right = Oracle(published_model.arrays, published_model.options)
    wrong = Oracle(published_model.arrays, published_model.options, mistakes=frozenset({mistake}))
    gap = largest_gap(flatten(wrong.run_carrying(UNEVEN_BATCHES)), flatten(right.run_carrying(UNEVEN_BATCHES)))
    assert 100 * TOLERANCE < gap < np.inf
