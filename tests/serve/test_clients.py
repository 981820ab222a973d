"""Clients that people have: openai, huggingface_hub, LangChain's and LlamaIndex's for OpenAI, and curl."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from live_server import SENTENCES, Client, serving, toy_models
from pages import blocks, run_page

pytestmark = pytest.mark.long
MODELS = toy_models()


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return MODELS.embedder.encode(SENTENCES[:3], normalize_embeddings=True)


@pytest.fixture(scope="module")
def client():
    with serving(MODELS, api_keys=["secret"]) as started:
        yield started


def test_the_openai_client_works_with_its_defaults(client: Client, expected: np.ndarray):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    with openai.OpenAI(base_url=f"{client.url}/v1", api_key="secret", max_retries=0) as connected:
        answer = connected.embeddings.create(input=SENTENCES[:3], model="toy")
        np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-6)
        assert answer.usage.prompt_tokens == sum(len(sentence.split()) for sentence in SENTENCES[:3])
        answer = connected.embeddings.create(input=SENTENCES[0], model="toy", encoding_format="float", dimensions=4)
        assert len(answer.data[0].embedding) == 4
        assert [model.id for model in connected.models.list()] == ["toy"]
        with pytest.raises(openai.NotFoundError, match="is not served"):
            connected.embeddings.create(input="a", model="other")
        # LangChain's client sends token ids by default.
        with pytest.raises(openai.UnprocessableEntityError, match="check_embedding_ctx_length=False"):
            connected.embeddings.create(input=[[464, 1097]], model="toy")
    with (
        openai.OpenAI(base_url=f"{client.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError, match="API key"),
    ):
        stranger.embeddings.create(input="a", model="toy")


def test_the_hugging_face_client_extracts_features(client: Client, expected: np.ndarray):
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    connected = hub.InferenceClient(base_url=f"{client.url}/embed", token="secret")
    found = connected.feature_extraction(SENTENCES[0])
    np.testing.assert_allclose(np.asarray(found).reshape(-1), expected[0], atol=1e-6)
    found = connected.feature_extraction(SENTENCES[0], normalize=False, truncate=True)
    np.testing.assert_allclose(np.asarray(found).reshape(-1), MODELS.embedder.encode(SENTENCES[0]), atol=1e-6)


def test_langchains_openai_client_gets_vectors(client: Client, expected: np.ndarray):
    langchain = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    options = {"model": "toy", "base_url": f"{client.url}/v1", "api_key": "secret", "max_retries": 0}
    connected = langchain.OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
    np.testing.assert_allclose(connected.embed_documents(SENTENCES[:3]), expected, atol=1e-6)
    np.testing.assert_allclose(connected.embed_query(SENTENCES[0]), expected[0], atol=1e-6)


def test_llamaindexs_openai_client_gets_vectors(client: Client, expected: np.ndarray):
    llama = pytest.importorskip("llama_index.embeddings.openai", reason="llama-index-embeddings-openai is missing")
    connected = llama.OpenAIEmbedding(
        model_name="toy", api_base=f"{client.url}/v1", api_key="secret", max_retries=0, reuse_client=False
    )
    np.testing.assert_allclose(connected.get_text_embedding(SENTENCES[0]), expected[0], atol=1e-6)
    found = connected.get_text_embedding_batch(SENTENCES[:3])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_curl_sends_and_gets_text(client: Client):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    command = [curl, "-sS", f"{client.url}/tokenize", "-H", "Authorization: Bearer secret"]
    asked = [*command, "-H", "Content-Type: text/plain", "--data-binary", "the boat, red\nthe net"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "the boat , red\nthe net\n"
    as_json = [*command, "-d", '{"inputs": "the boat"}']
    assert '"text":"boat"' in subprocess.run(as_json, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["serving", "tutorials/serve"])
def test_the_python_of_the_pages_runs(name):
    pytest.importorskip("openai", reason="openai is not installed")
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    page = (Path(__file__).parents[2] / "docs" / f"{name}.md").read_text(encoding="utf-8")
    programs = [block.text for block in blocks(page) if block.language == "python"]
    with serving(MODELS) as client:
        whole = "".join(f"```python\n{program}```\n" for program in programs)
        assert "http://127.0.0.1:8080" in whole
        assert run_page(whole.replace("http://127.0.0.1:8080", client.url).replace("en-small", "toy")) == len(programs)
