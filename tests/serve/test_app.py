"""The routes answer what the library computes, and reject what they cannot use."""

import base64
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from live_server import SENTENCES, Client, serving, toy_models
from safetensors.numpy import load as load_tensors
from toy_task import RHYMES, VerseLabels, recipe, verses

from elmokit.serve.limits import Limits
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.task_model import build_task_model

MODELS = toy_models()
LIMITS = Limits(max_inputs=8, max_tokens=40, max_body=20_000, max_values=2_000)


@pytest.fixture(scope="module")
def client():
    with serving(MODELS, limits=LIMITS) as started:
        yield started


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_embed_returns_what_encode_computes(client: Client):
    texts = ["the old man. he took a boat! fish", *SENTENCES[:3]]
    found = np.array(client.post("/embed", {"inputs": texts, "normalize": False}).json(), dtype=np.float32)
    np.testing.assert_allclose(found, MODELS.embedder.encode(texts), atol=1e-6)
    asked = {"inputs": texts, "layer": 1, "pooling": "max", "dimensions": 5}
    found = np.array(client.post("/embed", asked).json(), dtype=np.float32)
    expected = MODELS.embedder.encode(texts, layer=1, pooling="max", truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_truncation_keeps_the_chosen_end(client: Client):
    words = " ".join(SENTENCES[:9]).split()
    assert len(words) > LIMITS.max_tokens
    assert client.post("/embed", {"inputs": " ".join(words)}).status == 422
    for direction, kept in (("Left", words[-40:]), ("right", words[:40])):
        asked = {"inputs": " ".join(words), "truncate": True, "truncation_direction": direction, "normalize": False}
        found = np.array(client.post("/embed", asked).json())
        np.testing.assert_allclose(found, MODELS.embedder.encode([kept]), atol=1e-6)


def test_embed_all_and_layers_return_the_vectors_of_tokens(client: Client):
    texts = [SENTENCES[0], SENTENCES[1].split()[:4]]
    expected = MODELS.embedder.embed_layers(texts)
    for found, layers in zip(client.post("/embed_all", {"inputs": texts}).json(), expected, strict=True):
        np.testing.assert_allclose(found, layers.mean(axis=0), atol=1e-6)
    for found, layers in zip(
        client.post("/embed_all", {"inputs": texts, "layers": [2, 0]}).json(), expected, strict=True
    ):
        np.testing.assert_allclose(found, layers[[2, 0]], atol=1e-6)
    for found, layers in zip(client.post("/layers", {"inputs": texts}).json(), expected, strict=True):
        np.testing.assert_array_equal(np.array(found["layers"], dtype=np.float32), layers)
    asked = {"inputs": texts, "encoding_format": "base64", "dtype": "float16"}
    for found, layers in zip(client.post("/layers", asked).json(), expected, strict=True):
        decoded = np.frombuffer(base64.b64decode(found["layers"]), dtype="<f2").reshape(found["shape"])
        np.testing.assert_array_equal(decoded, layers.astype(np.float16))
    answer = client.post("/layers", {"inputs": texts}, accept="application/vnd.safetensors")
    assert answer.headers["content-type"] == "application/vnd.safetensors"
    tensors = load_tensors(answer.content)
    for index, layers in enumerate(expected):
        np.testing.assert_array_equal(tensors[str(index)], layers)


def test_tokens_have_offsets_in_the_raw_text(client: Client):
    text = "The bank — “closed”…"
    [tokens] = client.post("/tokenize", {"inputs": text}).json()
    assert [token["text"] for token in tokens] == MODELS.embedder.tokenize(text)
    assert [text[token["start"] : token["stop"]] for token in tokens] == ["The", "bank", "—", "“", "closed", "”", "…"]


def test_openai_embeddings_are_base64_or_numbers(client: Client):
    expected = unit(MODELS.embedder.encode(SENTENCES[:5]))
    body = {"input": SENTENCES[:5], "model": "toy"}
    answer = client.post("/v1/embeddings", body).json()
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-6)
    num_tokens = sum(len(sentence.split()) for sentence in SENTENCES[:5])
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    answer = client.post("/v1/embeddings", {**body, "encoding_format": "base64"}).json()
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in answer["data"]]
    np.testing.assert_allclose(decoded, expected, atol=1e-6)


def test_similarities_are_cosines(client: Client):
    asked = {"inputs": {"source_sentence": SENTENCES[0], "sentences": SENTENCES[1:4]}}
    vectors = unit(MODELS.embedder.encode(SENTENCES[:4]))
    np.testing.assert_allclose(client.post("/similarity", asked).json(), vectors[1:] @ vectors[0], atol=1e-6)


def test_scores_and_substitutes_are_the_scorers(client: Client):
    [expected], [places] = MODELS.scorer.score(SENTENCES[:1]), MODELS.scorer.predict(SENTENCES[:1], top_k=8)
    [score] = client.post("/score", {"inputs": SENTENCES[0]}).json()
    np.testing.assert_allclose(score["forward_logprobs"], expected.forward_logprobs, atol=1e-5)
    assert score["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
    [found] = client.post("/substitutes", {"inputs": SENTENCES[0], "top_k": 5}).json()
    for place, one in zip(places, found["places"], strict=True):
        wanted = place.without_special_words(5)
        assert [candidate["word"] for candidate in one["both"]] == [candidate.word for candidate in wanted.both]
        assert one["both_logprob"] == pytest.approx(place.both_logprob, abs=1e-5)


def test_text_in_text_out(client: Client):
    content = f"{SENTENCES[0]}\n\n{SENTENCES[1]}\n".encode()
    answer = client.request("POST", "/tokenize", content, content_type="text/plain; charset=utf-8")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == f"{SENTENCES[0]}\n{SENTENCES[1]}\n"
    rows = client.request("POST", "/score", content, content_type="text/plain").text.splitlines()
    assert rows[0].startswith("perplexity\t")
    assert rows[1].endswith(SENTENCES[0])
    places = client.request("POST", "/substitutes", content, content_type="text/plain").text.splitlines()
    assert places[0].startswith("the\t")
    numbers = client.request("POST", "/embed", content, content_type="text/plain").text.splitlines()
    assert [len(row.split()) for row in numbers] == [MODELS.embedder.width] * 2


@pytest.mark.long
def test_vectors_do_not_depend_on_who_else_asks(client: Client):
    def layers_of(sentence: str) -> np.ndarray:
        return np.array(client.post("/layers", {"inputs": sentence}).json()[0]["layers"])

    alone = {sentence: layers_of(sentence) for sentence in SENTENCES}
    wrong = []

    def ask(first: int) -> None:
        for step in range(15):
            sentence = SENTENCES[(first + step) % len(SENTENCES)]
            if not np.allclose(layers_of(sentence), alone[sentence], rtol=0, atol=1e-5):
                wrong.append(sentence)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/embed", b"{", "Invalid JSON"),
        ("/embed", b"\xff\xfe", "Invalid JSON"),
        ("/embed", b'{"inputs": "\\ud800"}', "Invalid JSON"),
        ("/embed", b'{"inputs": ' + b"[" * 5000, "Invalid JSON"),
        ("/embed", b"[]", "object"),
        ("/embed", b'{"inputs": 3}', "inputs"),
        ("/embed", b'{"inputs": "a", "shade": 1}', "shade"),
        ("/embed", b'{"inputs": ""}', "no words"),
        ("/embed", b'{"inputs": []}', "no inputs"),
        ("/embed", b'{"inputs": [["a b"]]}', "white space"),
        ("/embed", b'{"inputs": "a", "layer": 9}', "layer 9"),
        ("/embed", b'{"inputs": "a", "layer": true}', "layer"),
        ("/embed", b'{"inputs": "a", "dimensions": 99}', "dimensions"),
        ("/embed", json.dumps({"inputs": ["a"] * 9}).encode(), "9 inputs"),
        ("/embed", json.dumps({"inputs": "a " * 41}).encode(), "41 tokens"),
        ("/embed", json.dumps({"inputs": "a" * 641}).encode(), "641 characters"),
        ("/layers", json.dumps({"inputs": ["a " * 30] * 8}).encode(), "240 tokens"),
        ("/similarity", b'{"inputs": {"source_sentence": "a", "sentences": []}}', "no inputs"),
        ("/substitutes", b'{"inputs": "a", "top_k": 0}', "top_k"),
        ("/v1/embeddings", json.dumps({"input": [""] * 10_000, "model": "toy"}).encode(), None),
        ("/v1/embeddings", b'{"input": [[1, 2]], "model": "toy"}', "check_embedding_ctx_length=False"),
    ],
)
def test_wrong_bodies_are_rejected_with_the_reason(client: Client, path: str, content: bytes, says: str | None):
    answer = client.request("POST", path, content, content_type="application/json")
    assert answer.status == (413 if says is None else 422)
    body = answer.json()
    message = body["error"]["message"] if path.startswith("/v1/") else body["error"]
    assert says is None or says in message


def test_a_task_answers_as_its_model_predicts():
    asked = recipe(bilm=None)
    columns = ColumnMaker(
        asked, learn_inputs([one.tokens for one in verses(9, seed=1)], asked), vectors=None, layers=None
    )
    model = build_task_model(RHYMES, asked, VerseLabels(tags=("plain", "rhyme")), columns)
    texts = ["ba bo be", "la ma na no", "ke"]
    with serving(replace(MODELS, tasks={"rhymes": model})) as client:
        found = client.post("/tasks/rhymes", {"inputs": texts}).json()
        expected = model.predict(texts)
        assert [one["input"] for one in found] == [0, 1, 2]
        assert [one["prediction"] for one in found] == [json.loads(json.dumps(one.json)) for one in expected]
        plain = client.request("POST", "/tasks/rhymes", "\n".join(texts).encode(), content_type="text/plain").text
        assert plain == "".join(f"{one}\n" for one in expected)
        assert client.post("/tasks/rhymes", {"inputs": " "}).status == 422
        assert [task["name"] for task in client.get("/info").json()["tasks"]] == ["rhymes"]
        [name] = client.get("/openapi.json").json()["paths"]["/tasks/{name}"]["post"]["parameters"]
        assert name["schema"]["enum"] == ["rhymes"]


def test_unknown_names_are_not_found(client: Client):
    answer = client.post("/v1/embeddings", {"input": "a", "model": "other"})
    assert (answer.status, answer.json()["error"]["code"]) == (404, "model_not_found")
    for answer in (client.post("/tasks/ner", {"inputs": "a"}), client.get("/nothing")):
        assert (answer.status, answer.json()["error_type"]) == (404, "not_found")
    assert client.get("/embed").status == 405


def test_a_model_without_output_layer_cannot_score():
    with serving(replace(MODELS, scorer=None)) as client:
        answer = client.post("/score", {"inputs": "a"})
        assert answer.status == 404
        assert "no output layer" in answer.json()["error"]
        assert client.get("/info").json()["can_score"] is False
        assert client.post("/embed", {"inputs": "a"}).status == 200


def test_the_server_describes_itself(client: Client):
    info = client.get("/info").json()
    assert (info["model_id"], info["num_layers"], info["width"]) == ("toy", 3, 12)
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["toy"]
    assert client.get("/health").status == 200
    assert 'elmokit_request_success_total{path="/embed"}' in client.get("/metrics").text
    document = client.get("/openapi.json").json()
    bodies = {path: one["post"]["requestBody"] for path, one in document["paths"].items() if "post" in one}
    for body in bodies.values():
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert name in document["components"]["schemas"]
