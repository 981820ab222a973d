"""ELMo in gensim: word vectors that can be searched and saved."""

import numpy as np
import pytest

from elmokit.errors import InputError

pytestmark = pytest.mark.integration
models = pytest.importorskip("gensim.models", reason="gensim is not installed: pip install 'elmokit[gensim]'")

from elmokit.integrations.gensim import keyed_vectors, mean_vectors  # noqa: E402

SENTENCES = [["the", "fish", "swam"], "A fish, a boat.", ["the", "boat", "sank"]]


def test_the_token_layer_is_keyed_by_word(embedder, tmp_path):
    vectors = keyed_vectors(embedder, ["fish", "boat", "fishes", "fish"])
    assert vectors.index_to_key == ["fish", "boat", "fishes"]
    np.testing.assert_allclose(vectors["fish"], embedder.embed_layers([["a", "fish"]])[0][0, 1], atol=1e-6)
    assert {word for word, _ in vectors.most_similar("fish")} == {"boat", "fishes"}
    vectors.save_word2vec_format(tmp_path / "vectors.txt")
    again = models.KeyedVectors.load_word2vec_format(tmp_path / "vectors.txt")
    np.testing.assert_allclose(again["boat"], vectors["boat"], atol=1e-6)


def test_means_are_over_all_contexts(embedder):
    vectors = mean_vectors(embedder, iter(SENTENCES), layer=2)
    first, second, third = embedder.embed_tokens(SENTENCES, layer=2)
    np.testing.assert_allclose(vectors["fish"], (first[1] + second[1]) / 2, atol=1e-6)
    np.testing.assert_allclose(vectors["boat"], (second[4] + third[1]) / 2, atol=1e-6)
    assert vectors.get_vecattr("fish", "count") == 2
    assert set(mean_vectors(embedder, SENTENCES, min_count=2).index_to_key) == {"the", "fish", "boat"}
    assert mean_vectors(embedder, SENTENCES, words=["sank"]).index_to_key == ["sank"]


def test_no_words_are_rejected(embedder):
    with pytest.raises(InputError, match="no words"):
        keyed_vectors(embedder, [])
    with pytest.raises(InputError, match="no word occurs 9 times"):
        mean_vectors(embedder, SENTENCES, min_count=9)
