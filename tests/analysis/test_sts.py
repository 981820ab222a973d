"""Correlations against scipy's, on real pairs with vectors drawn at random."""

from pathlib import Path

import numpy as np
import pytest
from toy import TEXT, toy_model

from elmokit.analysis import sts
from elmokit.analysis.sts import fit_every_layer, score_sts
from elmokit.embed.embedder import Embedder
from elmokit.embed.sentence_pooling import SentencePooling
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM
from elmokit.readers.sts import SimilarPair, read_sts


def encode(texts: list[str]) -> np.ndarray:
    """Letter counts: crude, and with ties."""
    return np.array([[text.lower().count(letter) for letter in "aeiou"] for text in texts], dtype=np.float32)


@pytest.mark.long
def test_correlations_equal_those_of_scipy(data_dir: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    pairs = list(read_sts(data_dir / "sts" / "sts-dev.csv.xz"))
    assert len(pairs) == 1500
    scores = score_sts(encode, pairs)
    first, second = (encode([getattr(pair, side) for pair in pairs]).astype(float) for side in ("first", "second"))
    cosines = (first * second).sum(1) / np.maximum(
        np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1), 1e-300
    )
    gold = [pair.similarity for pair in pairs]
    assert scores.pearson == pytest.approx(stats.pearsonr(cosines, gold).statistic, abs=1e-12)
    # Cosines that are equal in exact arithmetic may differ in the last bit, which changes their ranks a little.
    assert scores.spearman == pytest.approx(stats.spearmanr(cosines, gold).statistic, abs=1e-4)


def test_a_text_without_a_vector_has_cosine_zero() -> None:
    pairs = [SimilarPair("a", "zzz", 0.0), SimilarPair("a", "a", 5.0)]
    assert score_sts(encode, pairs).spearman == pytest.approx(1.0)


def test_too_few_pairs_and_broken_lines_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 pairs; expected two or more"):
        score_sts(encode, [SimilarPair("a", "b", 1.0)])
    path = tmp_path / "sts.csv"
    for line in ("one\ttwo", "a\tb\tc\t0\tsix\tx\ty", "a\tb\tc\t0\t7.0\tx\ty"):
        path.write_text(line + "\n", "utf-8")
        with pytest.raises(InputError, match=r"sts\.csv, line 1: found .*, expected seven columns"):
            list(read_sts(path))


def test_one_pass_fits_every_layer_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder(BiLM(toy_model()))
    sentences = [line.split() for line in TEXT.splitlines()]
    sentences = [[*sentence, str(number)] for number in range(10) for sentence in sentences]
    monkeypatch.setattr(sts, "FIT_SENTENCES", 120)
    calls: list[int] = []
    found = fit_every_layer(embedder, [[], *sentences], progress=calls.append)
    assert calls == list(range(1, 121))
    for pooling, layer in zip(found, [0, 1, 2, "mean"], strict=True):
        expected = SentencePooling.fit(embedder, sentences[:120], layer=layer)
        assert (pooling.layer, pooling.probabilities) == (layer, expected.probabilities)
        np.testing.assert_allclose(pooling.mean_D, expected.mean_D, atol=1e-6)
