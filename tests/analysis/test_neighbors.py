"""Neighbors are those of a brute-force search."""

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
import torch
from toy import TEXT, toy_model

from elmokit.analysis.neighbors import Neighborhood, find_neighbors, find_static_neighbors, sense_similarity
from elmokit.analysis.occurrences import Occurrence, find_occurrences
from elmokit.embed import reading
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import pick_layers
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM

SENTENCES = [line.split() for line in TEXT.splitlines()]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    torch.manual_seed(2)
    return Embedder(BiLM(toy_model()))


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left.astype(np.float64), right.astype(np.float64)
    return float(left @ right / math.sqrt((left @ left) * (right @ right)))


def plain_search(embedder: Embedder, query: Occurrence, *, layer: int | str) -> dict[tuple[int, int], float]:
    """Return the cosine of every token of the text, by sentence and position."""
    [query_layers] = embedder.embed_layers([query.tokens])
    vector_D = pick_layers(query_layers, layer)[query.position]
    return {
        (number, position): cosine(vector_D, pick_layers(layers_LTD, layer)[position])
        for number, layers_LTD in enumerate(embedder.embed_layers(SENTENCES))
        for position in range(layers_LTD.shape[1])
    }


def places(found: Neighborhood) -> list[tuple[int | None, int]]:
    return [(one.occurrence.sentence, one.occurrence.position) for one in found.neighbors]


@pytest.mark.parametrize(("layer", "same_word"), [*product([1, -1, "mean"], [True, False])])
def test_a_plain_search_finds_the_same(embedder, layer, same_word):
    queries = [*find_occurrences(embedder, SENTENCES, "river", most=2), Occurrence(("a", "fish", "swam"), 1)]
    found = find_neighbors(embedder, SENTENCES, queries, k=4, layer=layer, same_word=same_word)
    for query, one in zip(queries, found, strict=True):
        assert one.query == query
        cosines = plain_search(embedder, query, layer=layer)
        cosines = {place: value for place, value in cosines.items() if place[0] != query.sentence}
        if same_word:
            cosines = {place: value for place, value in cosines.items() if SENTENCES[place[0]][place[1]] == query.token}
        expected = sorted(cosines, key=cosines.__getitem__, reverse=True)[:4]
        assert places(one) == expected
        assert [near.similarity for near in one.neighbors] == pytest.approx([cosines[p] for p in expected], abs=2e-6)
        assert [near.occurrence.tokens for near in one.neighbors] == [tuple(SENTENCES[p[0]]) for p in expected]


def test_the_top_layer_is_taken_unless_another_is_named(embedder):
    [query] = find_occurrences(embedder, SENTENCES, "boat", most=1)
    assert find_neighbors(embedder, SENTENCES, [query]) == find_neighbors(embedder, SENTENCES, [query], layer=2)
    assert find_neighbors(embedder, SENTENCES, [query]) != find_neighbors(embedder, SENTENCES, [query], layer=1)


def test_of_equally_near_tokens_the_earlier_come_first(embedder):
    [query] = find_occurrences(embedder, SENTENCES, "the", most=1)
    [found] = find_neighbors(embedder, SENTENCES, [query], k=5, layer=0)  # which knows no context
    expected = [
        (number, position) for number, tokens in enumerate(SENTENCES) for position, t in enumerate(tokens) if t == "the"
    ]
    assert places(found) == [place for place in expected if place[0] != query.sentence][:5]
    assert {one.similarity for one in found.neighbors} == {1.0}


@pytest.mark.parametrize("k", [1, 3, 50])
def test_equal_sentences_count_once(embedder, k):
    queries = find_occurrences(embedder, SENTENCES, "fish", most=2)
    once = find_neighbors(embedder, SENTENCES, queries, k=k)
    assert find_neighbors(embedder, [*SENTENCES, *reversed(SENTENCES), TEXT.splitlines()[2]], queries, k=k) == once


@pytest.mark.parametrize("same_word", [True, False])
def test_a_query_s_own_sentence_is_left_out_wherever_it_stands(embedder, same_word):
    sentence, other = ["they", "play", "a", "play"], ["we", "play"]
    queries = [Occurrence(tuple(sentence), 1, 0), Occurrence(tuple(other), 1)]
    own, second = find_neighbors(embedder, [sentence, other, sentence], queries, same_word=same_word)
    assert {number for number, _ in places(own)} == {1}
    assert {number for number, _ in places(second)} == {0}


def test_fewer_are_found_where_the_text_has_no_more(embedder):
    queries = find_occurrences(embedder, SENTENCES, "church", most=1)
    [alone] = find_neighbors(embedder, SENTENCES, queries, same_word=True)
    assert alone.neighbors == ()
    [few] = find_neighbors(embedder, [[], ["one", "day"], ""], queries)
    assert sorted(places(few)) == [(1, 0), (1, 1)]


def test_raw_text_is_tokenized(embedder):
    queries = find_occurrences(embedder, ["The fish, old and grey, swam."], "fish", most=1)
    [found] = find_neighbors(embedder, ["no such word", "", "A fish."], queries, same_word=True)
    assert [(one.occurrence.sentence, one.occurrence.tokens) for one in found.neighbors] == [(2, ("A", "fish", "."))]


@pytest.mark.long
def test_memory_does_not_grow_with_the_text(embedder, monkeypatch):
    monkeypatch.setattr(reading, "WINDOW", 64)
    [query] = find_occurrences(embedder, SENTENCES, "fish", most=1)
    words = TEXT.split()
    peaks = []
    for num_sentences in (400, 2000):
        text = ([words[(number * 7 + i * i) % len(words)] for i in range(8)] for number in range(num_sentences))
        tracemalloc.start()
        find_neighbors(embedder, text, [query])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_progress_is_reported_and_ends_with_all(embedder):
    queries = find_occurrences(embedder, SENTENCES, "fish", most=1)
    reported = []
    find_neighbors(embedder, SENTENCES, queries, progress=lambda *numbers: reported.append(numbers))
    assert reported == sorted(reported)
    assert reported[-1] == (len(SENTENCES), len(TEXT.split()))


FAILURES = {
    "no k": ({"k": 0}, "k 0; expected 1 or more"),
    "no query": ({"queries": []}, "no queries; expected one or more"),
    "no layer": ({"layer": 3}, "layer 3; expected 'mean', 0 to 2, or -3 to -1 counted from the top"),
}


@pytest.mark.parametrize(("changed", "message"), FAILURES.values(), ids=FAILURES)
def test_invalid_searches_are_rejected(embedder, changed, message):
    arguments = {"queries": [Occurrence(("a",), 0)], **changed}
    with pytest.raises(InputError, match=message):
        find_neighbors(embedder, SENTENCES, **arguments)


def test_vectors_that_depend_on_their_batch_are_rejected(embedder):
    carrying = Embedder(embedder.bilm, state="carry")
    with pytest.raises(InputError, match="carry"):
        find_neighbors(carrying, SENTENCES, [Occurrence(("a",), 0)])


# Static vectors


def test_static_neighbors_are_the_nearest_words():
    words = ["play", "far", "game", "draw", "Play", "zero"]
    vectors_VD = np.array([[1, 0], [-1, 0], [3, 1], [6, 2], [0, 1], [0, 0]], dtype=np.float16)
    vectors = StaticVectors(words, vectors_VD)
    found = find_static_neighbors(vectors, "play", k=3)
    assert [one.word for one in found] == ["game", "draw", "Play"]  # equally near: in the file's order
    assert [one.similarity for one in found] == pytest.approx([3 / math.sqrt(10)] * 2 + [0], abs=1e-6)
    assert [one.word for one in find_static_neighbors(vectors, "PLAY", k=99)] == ["game", "draw", "Play", "zero", "far"]
    assert find_static_neighbors(vectors, "Play", k=1)[0].word == "game"
    with pytest.raises(InputError, match="'chess' has no static vector"):
        find_static_neighbors(vectors, "chess")


def test_many_equally_near_words_keep_the_file_s_order():
    words = [f"w{number}" for number in range(100)]
    found = find_static_neighbors(StaticVectors(words, np.ones((100, 2), dtype=np.float32)), "w50", k=99)
    assert [one.word for one in found] == [word for word in words if word != "w50"]


# A word in two sentences


def test_a_word_is_compared_with_itself_at_every_layer(embedder):
    first, second = "The fish swam.", ["we", "ate", "fish", "and", "fish"]
    found = sense_similarity(embedder, "fish", first, second)
    one, other = embedder.embed_layers([first, second])
    assert found == pytest.approx([cosine(one[layer, 1], other[layer, 2]) for layer in range(3)], abs=1e-6)
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.9999
    assert sense_similarity(embedder, "fish", first, first) == pytest.approx([1.0] * 3)


def test_a_sentence_without_the_word_is_rejected(embedder):
    with pytest.raises(InputError, match="'fish' is not a token of the context 'no'"):
        sense_similarity(embedder, "fish", "The fish swam.", "no")
