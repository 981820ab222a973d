"""ELMo in LangChain, by the library's own tests."""

import pytest

pytestmark = pytest.mark.integration
pytest.importorskip("langchain_core", reason="LangChain is not installed: pip install 'elmokit[langchain]'")
langchain_tests = pytest.importorskip(
    "langchain_tests.unit_tests", reason="langchain-tests is not installed; requirements/integrations-a.txt has it"
)

from elmokit.integrations.langchain import ElmoEmbeddings  # noqa: E402


class TestElmoEmbeddings(langchain_tests.EmbeddingsUnitTests):
    @property
    def embeddings_class(self):
        return ElmoEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "en-small"}


def test_vectors_are_plain_floats_of_the_embedder(model, embedder):
    found = ElmoEmbeddings(model, layer=1, normalize=False)
    vectors = found.embed_documents(["a fish", "The river rose."])
    assert vectors == embedder.encode(["a fish", "The river rose."], layer=1).tolist()
    assert all(type(value) is float for value in vectors[0])
    assert found.embed_query("a fish") == vectors[0]


def test_a_vector_store_finds_the_text(model):
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore.from_texts(["a fish swam", "the boat sank"], ElmoEmbeddings(model))
    assert store.similarity_search("a fish swam", k=1)[0].page_content == "a fish swam"
