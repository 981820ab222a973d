"""Fitted pooling against plain loops, and as an option of encode."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import TEXT, toy_model

from elmokit.embed.embedder import Embedder
from elmokit.embed.sentence_pooling import SMOOTHING, SentencePooling
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM

WORDS = sorted(set(TEXT.split()))


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    torch.manual_seed(3)
    return Embedder(BiLM(toy_model()))


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    rng = np.random.default_rng(5)
    return [[str(word) for word in rng.choice(WORDS, size=rng.integers(1, 9))] for _ in range(120)]


@pytest.mark.parametrize("layer", [0, 1, "mean"])
def test_a_vector_is_the_weighted_mean_without_common_components(embedder, sentences, layer) -> None:
    pooling = SentencePooling.fit(embedder, sentences, layer=layer, num_components=2)
    counts = Counter(word for tokens in sentences for word in tokens)

    def weighted(tokens: list[str]) -> np.ndarray:
        total, weights = np.zeros(embedder.width), 0.0
        for word, vector in zip(tokens, embedder.embed_tokens([tokens], layer=layer)[0], strict=True):
            weight = SMOOTHING / (SMOOTHING + counts[word] / counts.total())
            total, weights = total + weight * vector, weights + weight
        return total / weights

    fitted = np.array([weighted(tokens) for tokens in sentences])
    _, _, directions = np.linalg.svd(fitted - fitted.mean(axis=0), full_matrices=False)
    test = [[*WORDS[:3], "unheard-of"], sentences[0]]
    for tokens, found in zip(test, embedder.encode(test, pooling=pooling), strict=True):
        expected = weighted(tokens) - fitted.mean(axis=0)
        for direction in directions[:2]:
            expected = expected - (expected @ direction) * direction
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_text_of_strings_and_one_without_tokens(embedder, sentences) -> None:
    pooling = SentencePooling.fit(embedder, sentences, num_components=1)
    text, empty = embedder.encode([" ".join(WORDS[:4]), ""], pooling=pooling)
    tokens = embedder.tokenize(" ".join(WORDS[:4]))
    np.testing.assert_allclose(text, embedder.encode([tokens], pooling=pooling)[0], atol=1e-6)
    assert not empty.any()


def test_a_saved_pooling_is_the_same(embedder, sentences, tmp_path: Path) -> None:
    pooling = SentencePooling.fit(embedder, sentences, layer="mean", num_components=3)
    pooling.save(tmp_path / "pooling.npz")
    loaded = SentencePooling.load(tmp_path / "pooling.npz")
    found, expected = (embedder.encode(sentences[:5], pooling=one) for one in (loaded, pooling))
    np.testing.assert_array_equal(found, expected)
    (tmp_path / "text.npz").write_text("no arrays")
    for name in ("text.npz", "absent.npz"):
        with pytest.raises(InputError, match=f"{name}: no saved pooling"):
            SentencePooling.load(tmp_path / name)


def test_what_does_not_fit_is_rejected(embedder, sentences) -> None:
    with pytest.raises(InputError, match="5 sentences to fit a pooling to; expected 100 or more"):
        SentencePooling.fit(embedder, sentences[:5])
    pooling = SentencePooling.fit(embedder, sentences, num_components=1)
    with pytest.raises(InputError, match="layer 1, but the pooling was fitted to layer 0; leave layer out"):
        embedder.encode(sentences[:1], pooling=pooling, layer=1)
    with pytest.raises(InputError, match="width 2, but the pooling was fitted to width"):
        pooling.pool([["a"]], np.zeros((1, 2)))
