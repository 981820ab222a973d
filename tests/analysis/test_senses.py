"""Clusters of a word's occurrences, and their map: deterministic, aligned, and as brute force finds them."""

import numpy as np
import pytest
import torch
from toy import TEXT, toy_model

from elmokit.analysis.clusters import cluster
from elmokit.analysis.index import CorpusIndex
from elmokit.analysis.index_building import build_index
from elmokit.analysis.occurrences import Occurrence, find_occurrences, to_unit_length
from elmokit.analysis.senses import draw_map, embed_senses, find_senses, spread
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM

SIZES = (30, 20, 10)


def groups(seed: int = 0, noise: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around three directions, with a common part, and the group of each."""
    rng = np.random.default_rng(seed)
    labels_N = rng.permutation(np.repeat([0, 1, 2], SIZES))
    vectors_ND = np.eye(16)[labels_N] * 2 + noise * rng.standard_normal((60, 16)) + 5
    return vectors_ND.astype(np.float32), labels_N


def occurrences(num: int) -> list[Occurrence]:
    return [Occurrence(("a", "bank"), 1, number) for number in range(num)]


def plain_silhouette(vectors_ND: np.ndarray, labels_N: np.ndarray) -> float:
    distances_NN = 1 - vectors_ND.astype(np.float64) @ vectors_ND.T.astype(np.float64)
    scores = []
    for one, label in enumerate(labels_N):
        own = [other for other in range(len(labels_N)) if labels_N[other] == label and other != one]
        if not own:
            scores.append(0.0)
            continue
        inside = np.mean([distances_NN[one, other] for other in own])
        outside = min(distances_NN[one, labels_N == other].mean() for other in set(labels_N) - {label})
        scores.append((outside - inside) / max(inside, outside))
    return float(np.mean(scores))


def test_senses_are_the_groups_that_the_vectors_have():
    vectors_ND, labels_N = groups()
    found = find_senses("bank", occurrences(60), vectors_ND, layer=2)
    assert tuple(len(sense.occurrences) for sense in found.senses) == SIZES
    for number, sense in enumerate(found.senses):
        assert {labels_N[one.sentence] for one in sense.occurrences} == {number}
        assert list(sense.typicality) == sorted(sense.typicality, reverse=True)
    assert found.silhouette > 0.3


def test_the_silhouette_is_that_of_a_plain_computation_and_the_largest():
    vectors_ND = to_unit_length(groups(noise=1.5)[0] - 5)
    chosen = cluster(vectors_ND, num_clusters=None, most=6, least_silhouette=-1)
    each = {num: cluster(vectors_ND, num_clusters=num, most=6, least_silhouette=-1) for num in range(2, 7)}
    for found in each.values():
        assert found.silhouette == pytest.approx(plain_silhouette(vectors_ND, found.labels_N), abs=1e-5)
    assert chosen.silhouette == max(found.silhouette for found in each.values())
    sizes = np.bincount(chosen.labels_N)
    assert sizes.tolist() == sorted(sizes, reverse=True)


def test_a_cluster_is_stable_every_vector_is_nearest_to_its_own_center():
    vectors_ND = to_unit_length(groups(noise=1.5)[0] - 5)
    labels_N = cluster(vectors_ND, num_clusters=4, most=6, least_silhouette=0).labels_N
    centers_KD = to_unit_length(np.stack([vectors_ND[labels_N == number].sum(axis=0) for number in range(4)]))
    assert ((vectors_ND @ centers_KD.T).argmax(axis=1) == labels_N).all()


def test_one_sense_where_nothing_separates():
    noise_ND = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    assert len(find_senses("bank", occurrences(40), noise_ND, layer=1).senses) == 1
    same = find_senses("bank", occurrences(5), np.ones((5, 4), dtype=np.float32), layer=0)
    assert [len(sense.occurrences) for sense in same.senses] == [5]
    assert same.silhouette == 0
    [alone] = find_senses("bank", occurrences(1), np.ones((1, 4), dtype=np.float32), layer=1).senses
    assert alone.occurrences[0].sentence == 0


def test_the_number_of_senses_can_be_given():
    vectors_ND, _ = groups()
    assert len(find_senses("bank", occurrences(60), vectors_ND, layer=1, num_clusters=5).senses) == 5
    with pytest.raises(InputError, match="num_clusters 61; expected 1 to 60"):
        find_senses("bank", occurrences(60), vectors_ND, layer=1, num_clusters=61)


def test_a_map_is_aligned_from_layer_to_layer_and_deterministic():
    vectors_ND, labels_N = groups()
    rotated_ND = vectors_ND[:, ::-1] * -1  # the same shape elsewhere: alignment must undo it
    drawn = draw_map("bank", occurrences(60), [np.ones_like(vectors_ND), rotated_ND, vectors_ND])
    bottom, middle, top = drawn.layers
    assert [layer.layer for layer in drawn.layers] == [0, 1, 2]
    np.testing.assert_allclose(middle.points_N2, top.points_N2, atol=1e-6)
    assert not bottom.points_N2.any()
    assert (middle.labels_N == labels_N).all()
    assert (top.labels_N == labels_N).all()
    again = draw_map("bank", occurrences(60), [np.ones_like(vectors_ND), rotated_ND, vectors_ND])
    assert all((one.points_N2 == other.points_N2).all() for one, other in zip(drawn.layers, again.layers, strict=True))


def test_a_map_shows_the_principal_components():
    vectors_ND, _ = groups()
    unit_ND = to_unit_length(vectors_ND).astype(np.float64)
    values, _ = np.linalg.eigh(np.cov(unit_ND.T))
    [layer] = draw_map("bank", occurrences(60), [vectors_ND]).layers
    np.testing.assert_allclose(layer.points_N2.var(axis=0, ddof=1), values[::-1][:2], rtol=1e-5)
    assert layer.explained == pytest.approx(tuple(values[::-1][:2] / values.sum()), rel=1e-5)
    assert abs(np.corrcoef(layer.points_N2.T)[0, 1]) < 1e-6


def test_an_index_and_a_text_give_the_same_senses(tmp_path):
    torch.manual_seed(2)
    embedder = Embedder(BiLM(toy_model()))
    (tmp_path / "text.txt").write_text(TEXT)
    build_index([tmp_path / "text.txt"], tmp_path / "index", embedder)
    index = CorpusIndex.open(tmp_path / "index")
    in_text = find_occurrences(embedder, TEXT.splitlines(), "the", most=99)
    found = index.senses("the", layer=1, num_clusters=2)
    expected = embed_senses(embedder, "the", in_text, layer=1, num_clusters=2)
    assert [set(sense.occurrences) for sense in found.senses] == [set(sense.occurrences) for sense in expected.senses]
    assert found.silhouette == pytest.approx(expected.silhouette, abs=1e-2)
    assert (found.layer, found.num_occurrences) == (1, len(in_text))
    assert len(index.senses("the", layer=0).senses) == 1
    drawn = index.sense_map("the", most=4)
    assert len(drawn.layers) == 3
    assert list(drawn.occurrences) == spread(in_text, 4)
