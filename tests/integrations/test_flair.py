"""ELMo in flair: vectors of every mode, stacks, and a tagger that is trained, saved and loaded."""

import numpy as np
import pytest

from elmokit.errors import InputError

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]  # flair and its dependencies warn a lot
flair = pytest.importorskip("flair", reason="flair is not installed: pip install 'elmokit[flair]'")

from flair.data import Corpus, Sentence  # noqa: E402
from flair.embeddings import StackedEmbeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402
from flair.trainers import ModelTrainer  # noqa: E402

from elmokit.integrations.flair import ElmoEmbeddings  # noqa: E402

WORDS = ["the", "old", "river", "rose"]


@pytest.mark.parametrize("mode", ["all", "top", "average"])
def test_vectors_are_the_embedder_s(model, embedder, mode):
    embeddings = ElmoEmbeddings(model, mode)
    sentence = Sentence(WORDS)
    embeddings.embed(sentence)
    [layers_LTD] = embedder.embed_layers([WORDS])
    expected = {"all": np.concatenate(layers_LTD, axis=1), "top": layers_LTD[-1], "average": layers_LTD.mean(axis=0)}
    found = np.stack([token.embedding.cpu().numpy() for token in sentence])
    np.testing.assert_allclose(found, expected[mode], atol=1e-6)
    assert embeddings.embedding_length == found.shape[1]


def test_two_modes_stack(model):
    stack = StackedEmbeddings([ElmoEmbeddings(model, "top"), ElmoEmbeddings(model, "average")])
    sentence = Sentence(WORDS)
    stack.embed(sentence)
    assert sentence[0].embedding.shape == (24,)


def test_settings_that_cannot_be(model):
    with pytest.raises(InputError, match="embedding_mode 'last'; expected 'all', 'top' or 'average'"):
        ElmoEmbeddings(model, "last")


@pytest.mark.long
def test_a_tagger_is_trained_saved_and_loaded(tmp_path):
    flair.set_seed(0)
    rng = np.random.default_rng(0)
    sentences = []
    for _ in range(120):
        sentence = Sentence(rng.choice([*WORDS, "boat", "a"], 5).tolist())
        for token in sentence:
            token.add_label("kind", "LONG" if len(token.text) > 3 else "SHORT")
        sentences.append(sentence)
    corpus = Corpus(train=sentences[:100], dev=sentences[100:110], test=sentences[110:], sample_missing_splits=False)
    tagger = SequenceTagger(
        embeddings=ElmoEmbeddings("en-small"),
        tag_dictionary=corpus.make_label_dictionary("kind", add_unk=False),
        tag_type="kind",
        use_rnn=False,
        use_crf=False,
    )
    ModelTrainer(tagger, corpus).train(tmp_path, learning_rate=0.1, mini_batch_size=8, max_epochs=2)
    again = SequenceTagger.load(tmp_path / "final-model.pt")
    sentence = Sentence(WORDS)
    again.predict(sentence)
    assert [token.get_label("kind").value for token in sentence] == ["SHORT", "SHORT", "LONG", "LONG"]
