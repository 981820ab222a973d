"""int8 vectors beside fp32 ones, with inputs in sixteen bits and in eight, as on CPUs with VNNI."""

import lzma
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from published import PublishedModel

from elmokit.embed.embedder import Embedder
from elmokit.kernels.library import available
from elmokit.kernels.stack import INT8_INPUTS, Precision
from elmokit.text.tokens import tokenize
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import build_bilm, load_saved

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEAN, LOWEST = 0.999, 0.995  # cosines per layer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(was|were) cut"),
    pytest.mark.skipif(not available(), reason="built without kernels"),
]


def read_text(data_dir: Path, num_sentences: int) -> list[list[str]]:
    with lzma.open(data_dir / "lm" / "wiki.test.txt.xz", "rt", encoding="utf-8") as lines:
        return list(islice(filter(None, map(tokenize, lines)), num_sentences))


def cosines(saved: SavedBiLM, sentences: list[list[str]]) -> Iterator[NDArray[np.float64]]:
    """Yield the cosines of fp32 and int8 vectors of every token, layer by layer."""
    exact, rounded = (
        np.concatenate(Embedder(build_bilm(saved), precision=precision, state="reset").embed_layers(sentences), axis=1)
        for precision in ("fp32", "int8")
    )
    assert np.abs(exact[1:] - rounded[1:]).max() > 1e-5  # int8 was really used
    for left_ND, right_ND in zip(exact.astype(np.float64), rounded.astype(np.float64), strict=True):
        norms_N = np.linalg.norm(left_ND, axis=1) * np.linalg.norm(right_ND, axis=1)
        yield (left_ND * right_ND).sum(axis=1) / norms_N


@pytest.mark.long
@pytest.mark.parametrize("input_bits", ["8", "16"])
def test_cosines_of_en_small(data_dir: Path, monkeypatch: pytest.MonkeyPatch, input_bits: str) -> None:
    monkeypatch.setenv(INT8_INPUTS, input_bits)
    for cosine_N in cosines(load_saved(EN_SMALL), read_text(data_dir, 8)):
        assert cosine_N.mean() >= MEAN
        assert cosine_N.min() >= LOWEST


@pytest.mark.slow
@pytest.mark.parametrize("input_bits", ["8", "16"])
def test_cosines_at_the_size_of_the_paper(data_dir: Path, monkeypatch: pytest.MonkeyPatch, input_bits: str) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv(INT8_INPUTS, input_bits)
    workload = import_module("workload")
    config = workload.SIZES["paper"].config
    for cosine_N in cosines(SavedBiLM(config, workload.draw_tensors(config)), read_text(data_dir, 10)):
        assert cosine_N.mean() >= MEAN
        assert cosine_N.min() >= LOWEST


@pytest.mark.parametrize(("precision", "input_bits"), [("fp32", ""), ("int8", "8"), ("int8", "16")])
def test_a_sentence_has_the_same_bits_alone_and_in_any_batch(
    published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch, precision: Precision, input_bits: str
) -> None:
    monkeypatch.setenv(INT8_INPUTS, input_bits)
    embedder = Embedder.from_pretrained(published_model.pair, precision=precision)
    sentences = [[f"word{row}"] * (1 + row % 9) for row in range(40)]
    together = embedder.embed_layers(sentences)
    for row in (0, 7, 26):
        embedder.forget_words()
        np.testing.assert_array_equal(embedder.embed_layers([sentences[row]])[0], together[row])
