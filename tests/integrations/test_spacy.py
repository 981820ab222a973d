"""ELMo in spaCy: vectors, batches, sentences, saved pipelines, and training on frozen vectors."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elmokit.errors import InputError

pytestmark = pytest.mark.integration
spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install 'elmokit[spacy]'")

from spacy.cli.init_config import fill_config  # noqa: E402
from spacy.tokens import Doc, DocBin  # noqa: E402

from elmokit.integrations.spacy import ElmoPipe  # noqa: E402

hooks_are_lost = pytest.mark.filterwarnings("ignore:.*W109")  # spaCy warns; vectors then come from doc.tensor

TEXT = "The river  rose. A fish swam."
CONFIG = """
[paths]
train = null
dev = null
[nlp]
lang = "en"
pipeline = ["tok2vec","tagger"]
[components]
[components.tok2vec]
factory = "tok2vec"
[components.tok2vec.model]
@architectures = "elmokit.ElmoTok2Vec.v1"
model = "en-small"
layers = 1
width = 256
[components.tagger]
factory = "tagger"
[components.tagger.model]
@architectures = "spacy.Tagger.v2"
[components.tagger.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = 256
[corpora]
[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${paths.train}
[corpora.dev]
@readers = "spacy.Corpus.v1"
path = ${paths.dev}
[training]
max_steps = 60
eval_frequency = 20
[training.optimizer]
@optimizers = "Adam.v1"
learn_rate = 0.005
[training.score_weights]
tag_acc = 1.0
"""


@pytest.fixture
def nlp(model):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": model, "layers": 1})
    return nlp


def test_vectors_are_the_embedder_s_sentence_by_sentence(nlp, embedder):
    doc = nlp(TEXT)
    first, second = embedder.embed_layers([["The", "river", "rose", "."], ["A", "fish", "swam", "."]])
    assert [token.text for token in doc] == ["The", "river", " ", "rose", ".", "A", "fish", "swam", "."]
    expected_LTD = np.concatenate([first[:, :2], np.zeros((3, 1, 12)), first[:, 2:], second], axis=1)
    np.testing.assert_allclose(doc._.elmo_layers, expected_LTD, atol=1e-6)
    np.testing.assert_allclose(doc.tensor, expected_LTD[1], atol=1e-6)
    np.testing.assert_allclose(doc[1].vector, expected_LTD[1, 1], atol=1e-6)
    np.testing.assert_allclose(doc[5:7].vector, expected_LTD[1, 5:7].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(doc.vector, expected_LTD[1].mean(axis=0), atol=1e-6)
    assert doc.has_vector
    assert doc[1].has_vector


def test_without_sentences_a_document_is_one(model, embedder):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": model, "store_layers": False})
    doc = nlp("a fish . A boat")
    np.testing.assert_allclose(doc.tensor, embedder.embed_tokens([["a", "fish", ".", "A", "boat"]])[0], atol=1e-6)
    assert doc._.elmo_layers is None
    assert nlp("").tensor.shape == (0, 12)


def test_similarity_is_the_cosine_and_warns_of_nothing(nlp):
    one, other = nlp("a fish swam"), nlp("the boat sank")
    cosine = one.vector @ other.vector / np.linalg.norm(one.vector) / np.linalg.norm(other.vector)
    assert one.similarity(other) == pytest.approx(cosine)
    assert one[1].similarity(one[1]) == pytest.approx(1)
    assert one[:2].similarity(other[:2]) < 1


def test_pipe_gives_the_same_vectors_in_batches(nlp):
    texts = [TEXT, "a fish", "", "The old man smiled again ."] * 3
    for doc, text in zip(nlp.pipe(texts, batch_size=5), texts, strict=True):
        np.testing.assert_allclose(doc.tensor, nlp(text).tensor, atol=1e-5)


@pytest.mark.long
@hooks_are_lost
def test_pipe_works_in_two_processes(nlp):
    texts = [TEXT, "a fish"] * 4
    found = [doc.tensor for doc in nlp.pipe(texts, n_process=2, batch_size=2)]
    for one, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(one, nlp(text).tensor, atol=1e-5)


def test_a_saved_pipeline_needs_nothing_else(tmp_path, embedder):
    gone = tmp_path / "gone"
    embedder.save_pretrained(gone)
    moved = spacy.blank("en")
    moved.add_pipe("elmo", config={"model": str(gone)})
    moved.to_disk(tmp_path / "pipeline")
    as_bytes = moved.to_bytes()
    expected = moved(TEXT).tensor
    gone.rename(tmp_path / "elsewhere")
    from elmokit.integrations.loading import load_embedder

    load_embedder.cache_clear()
    np.testing.assert_array_equal(spacy.load(tmp_path / "pipeline")(TEXT).tensor, expected)
    again = spacy.blank("en")
    again.add_pipe("elmo", config={"model": str(gone)})
    np.testing.assert_array_equal(again.from_bytes(as_bytes)(TEXT).tensor, expected)


@hooks_are_lost
def test_documents_keep_their_vectors_in_bytes(nlp):
    doc = nlp(TEXT)
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    np.testing.assert_array_equal(again.tensor, doc.tensor)
    np.testing.assert_array_equal(again._.elmo_layers, doc._.elmo_layers)
    np.testing.assert_allclose(again[1].vector, doc[1].vector)


def test_settings_that_cannot_be(model):
    with pytest.raises(InputError, match="layer 9; expected"):
        ElmoPipe(model, layers=9)(spacy.blank("en")("a"))
    with pytest.raises(InputError, match="state is 'carry'"):
        ElmoPipe(model, state="carry")


@pytest.mark.long
def test_spacy_train_learns_a_tagger_from_a_config_file(tmp_path: Path):
    nlp = spacy.blank("en")
    words = "the old man went to a river and took his boat".split()
    rng = np.random.default_rng(0)
    docs = []
    for _ in range(100):
        chosen = rng.choice(words, 6).tolist()
        docs.append(Doc(nlp.vocab, words=chosen, tags=["LONG" if len(word) > 3 else "SHORT" for word in chosen]))
    DocBin(docs=docs[:80]).to_disk(tmp_path / "train.spacy")
    DocBin(docs=docs[80:]).to_disk(tmp_path / "dev.spacy")
    (tmp_path / "base.cfg").write_text(CONFIG)
    fill_config(tmp_path / "config.cfg", tmp_path / "base.cfg")
    paths = ["--paths.train", str(tmp_path / "train.spacy"), "--paths.dev", str(tmp_path / "dev.spacy")]
    run = subprocess.run(
        [sys.executable, "-m", "spacy", "train", str(tmp_path / "config.cfg"), "-o", str(tmp_path / "out"), *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    trained = spacy.load(tmp_path / "out" / "model-best")
    tagged = trained(Doc(trained.vocab, words=["the", "river", "took", "his", "boat"]))
    assert [token.tag_ for token in tagged] == ["SHORT", "LONG", "LONG", "SHORT", "LONG"]
