"""The data of the picture of senses: its sentences, its projection and its shares."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from elmokit.embed.embedder import Embedder

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import senses_figure

    return senses_figure


def test_every_sense_has_as_many_distinct_sentences_with_the_word_once(script: ModuleType) -> None:
    for word, senses in script.SENSES.items():
        assert {len(sentences) for sentences in senses.values()} == {12}
        sentences = [sentence for group in senses.values() for sentence in group]
        assert len(set(sentences)) == len(sentences)
        assert {sentence.split().count(word) for sentence in sentences} == {1}
        assert script.EXAMPLES[word].keys() == senses.keys()
        for sense, example in script.EXAMPLES[word].items():
            assert any(example in sentence for sentence in senses[sense])


def test_the_share_counts_nearest_vectors_of_the_same_sense(script: ModuleType) -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    assert script.same_sense_share(vectors, ["a", "a", "b", "b"]) == 1.0
    assert script.same_sense_share(vectors, ["a", "b", "a", "b"]) == 0.0
    assert script.same_sense_share(vectors, ["a", "a", "a", "b"]) == 0.5
    assert script.same_sense_share(np.ones((4, 2)), ["a", "a", "b", "b"]) == pytest.approx(1 / 3)


def test_turned_points_keep_their_distances_and_match_the_others(script: ModuleType) -> None:
    points = np.random.default_rng(0).normal(size=(9, 2))
    mirrored = points @ np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(script.turn_towards(mirrored, points), points, atol=1e-12)
    other = script.turn_towards(points, np.random.default_rng(1).normal(size=(9, 2)))
    np.testing.assert_allclose(other @ other.T, points @ points.T, atol=1e-12)


def test_a_projection_keeps_the_two_widest_directions(script: ModuleType) -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 5)) * [3.0, 0.01, 7.0, 0.01, 0.01]
    points = script.project(vectors)
    centered = vectors - vectors.mean(axis=0)
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs(centered[:, 2]), atol=0.3)
    np.testing.assert_array_equal(points, script.project(vectors))


def test_the_bundled_model_tells_the_senses_apart_in_context_only(script: ModuleType) -> None:
    embedder = Embedder.from_pretrained()
    bank, play = (script.panels_of(embedder, word) for word in ("bank", "play"))
    assert [round(panel.same_sense, 2) for panel in (bank[0], play[0])] == [0.48, 0.31]
    assert np.ptp(bank[0].points_N2) < script.COINCIDE < np.ptp(bank[2].points_N2)
    assert bank[2].same_sense > 0.9
    assert play[2].same_sense > 0.8
