"""Senses and neighbors agree with brute force, in a corpus and in given sentences."""

from dataclasses import replace

import numpy as np
import pytest
from live_server import SENTENCES, Client, serving, toy_models

from elmokit.analysis.index_building import build_index
from elmokit.serve.loaded import open_index

MODELS = toy_models()
WORD = "the"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text("\n".join(SENTENCES), "utf-8")
    build_index([folder / "text.txt"], folder / "index", MODELS.embedder)
    with serving(replace(MODELS, index=open_index(folder / "index", MODELS.embedder))) as started:
        yield started


def places() -> list[tuple[int, int]]:
    return [
        (line, position)
        for line, sentence in enumerate(SENTENCES)
        for position, token in enumerate(sentence.split())
        if token == WORD
    ]


def mixed(weights: list[float]) -> np.ndarray:
    layers = MODELS.embedder.embed_layers(SENTENCES)
    vectors = np.stack([np.einsum("l,ld->d", weights, layers[line][:, position]) for line, position in places()])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("where", [{}, {"sentences": SENTENCES}], ids=["corpus", "sentences"])
def test_neighbors_of_a_mix_are_the_nearest_by_brute_force(client: Client, where):
    weights = [0.2, 0.5, 0.3]
    answer = client.post("/neighbors", {"word": WORD, "weights": weights, "occurrence": 3, "k": 5, **where}).json()
    assert [(one["line"], one["position"]) for one in answer["occurrences"]] == places()
    cosines = mixed(weights) @ mixed(weights)[3]
    others = [row for row in np.argsort(-cosines, kind="stable") if places()[row][0] != places()[3][0]][:5]
    assert [one["similarity"] for one in answer["neighbors"]] == pytest.approx(cosines[others], abs=2e-3)
    nearest = answer["neighbors"][0]
    assert (nearest["line"], nearest["position"]) == places()[others[0]]


@pytest.mark.parametrize("where", [{}, {"sentences": SENTENCES}], ids=["corpus", "sentences"])
def test_a_map_has_every_occurrence_at_every_layer(client: Client, where):
    answer = client.post("/senses", {"word": WORD, **where}).json()
    number = len(places())
    assert answer["num_occurrences"] == len(answer["occurrences"]) == number
    assert [one["layer"] for one in answer["layers"]] == [0, 1, 2]
    for one in answer["layers"]:
        assert len(one["points"]) == len(one["labels"]) == len(one["nearest"]) == number
    assert np.allclose(answer["layers"][0]["points"], 0)  # the token layer knows no context
    unit = mixed([0.0, 0.0, 1.0])
    cosines = unit @ unit.T - 2 * np.eye(number)
    for row, nearest in enumerate(answer["layers"][2]["nearest"]):
        assert nearest[0][1] == pytest.approx(cosines[row].max(), abs=2e-3)


def test_all_words_of_a_corpus_can_be_searched(client: Client):
    answer = client.post("/neighbors", {"word": "boat", "same_word": False, "layer": 0, "k": 3}).json()
    words = {one["tokens"][one["position"]] for one in answer["neighbors"]}
    assert "boat" in words
    assert answer["neighbors"][0]["similarity"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/senses", {"word": "unheard"}, "not a token of the text"),
        ("/senses", {"word": "unheard", "sentences": SENTENCES}, "not a token of the sentences"),
        ("/senses", {"word": ""}, "word"),
        ("/senses", {"word": WORD, "most": 0}, "most"),
        ("/senses", {"word": WORD, "sentences": ["  "]}, "not a token of the sentences"),
        ("/neighbors", {"word": WORD, "occurrence": 999}, "expected 0 to"),
        ("/neighbors", {"word": WORD, "weights": [1.0]}, "mix weights"),
        ("/neighbors", {"word": WORD, "layer": 7}, "layer 7"),
        ("/neighbors", {"word": WORD, "same_word": False, "sentences": SENTENCES}, "leave out sentences"),
    ],
)
def test_wrong_questions_are_rejected(client: Client, path, body, says):
    answer = client.post(path, body)
    assert answer.status == 422
    assert says in answer.json()["error"]


def test_without_a_corpus_sentences_are_needed():
    with serving(MODELS) as client:
        assert client.post("/senses", {"word": WORD}).status == 404
        assert client.get("/info").json()["corpus"] is None
        assert client.post("/senses", {"word": WORD, "sentences": SENTENCES}).status == 200
