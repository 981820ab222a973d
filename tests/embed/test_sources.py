"""Layer sources by name: every encoder has one interface, is stored alike, and comes back from disk."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toy import toy_model

from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.embed.sources import open_layer_source, save_layer_source
from elmokit.encoders.context2vec import Context2Vec
from elmokit.encoders.cove import CoVeEncoder
from elmokit.encoders.layer_sources import Context2VecLayers, CoVeLayers, LayerSource, StaticLayers
from elmokit.encoders.saved import compact_cove, save_encoder
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.text.vocab import Vocab

WORDS = ["the", "cat", "sleeps", "runs"]
SENTENCES = [["The", "cat", "sleeps"], ["cat"], ["a", "zebra"], ["the", "cat", "runs", "the", "cat"]]
KINDS = {
    "bilm": ("bilm", 3, 12),
    "untrained": ("untrained:{}/bilm", 3, 12),
    "glove": ("glove:{}/vectors.npz", 1, 6),
    "word2vec": ("word2vec:{}/vectors.txt", 1, 6),
    "cove": ("cove", 2, 10),
    "published cove": ("cove:{0}/cove.pth,{0}/vectors.npz", 2, 10),
    "context2vec": ("context2vec", 1, 5),
    "taglm": ("taglm:{0}/bilm,{0}/other", 3, 12),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    torch.manual_seed(0)
    Embedder(BiLM(toy_model())).save_pretrained(root / "bilm")
    Embedder(BiLM(toy_model())).save_pretrained(root / "other")
    Embedder(BiLM(toy_model(num_layers=1))).save_pretrained(root / "shallow")
    vectors = StaticVectors(WORDS, np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32))
    np.savez(root / "vectors.npz", words=np.array(WORDS), vectors=vectors.vectors_VD)
    rows = zip(WORDS, vectors.vectors_VD, strict=True)
    lines = [f"{word} {' '.join(f'{number:.9g}' for number in vector)}" for word, vector in rows]
    (root / "vectors.txt").write_text("4 6\n" + "\n".join(lines) + "\n", "utf-8")
    lstm = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
    torch.save(lstm.state_dict(), root / "cove.pth")
    save_encoder(CoVeLayers(CoVeEncoder(6, 5), vectors, lower="always"), root / "cove", description="CoVe")
    vocab = Vocab.from_counts(dict.fromkeys(WORDS, 2))
    model = Context2Vec(len(vocab), (vocab.bos_id, vocab.eos_id), word_dim=3, hidden_dim=4, context_dim=5)
    save_encoder(Context2VecLayers(model, vocab), root / "context2vec", description="context2vec")
    return root


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, folder: Path) -> tuple[LayerSource, int, int]:
    spec, num_layers, width = KINDS[request.param]
    return open_layer_source(spec.format(folder) if ":" in spec else folder / spec), num_layers, width


def test_every_source_gives_its_layers_whatever_the_batch(opened: tuple[LayerSource, int, int]) -> None:
    source, num_layers, width = opened
    assert (source.num_layers, source.width) == (num_layers, width)
    assert source.state != "carry"
    together = list(source.iter_layers(SENTENCES))
    for sentence, layers_LTD in zip(SENTENCES, together, strict=True):
        assert layers_LTD.shape == (num_layers, len(sentence), width)
        assert layers_LTD.dtype == np.float32
        (alone,) = source.iter_layers([sentence])
        np.testing.assert_allclose(alone, layers_LTD, atol=1e-5)
    unordered = dict(source.iter_unordered(SENTENCES[::-1], batch_size=2))
    for index, layers_LTD in enumerate(reversed(together)):
        np.testing.assert_allclose(unordered[index], layers_LTD, atol=1e-5)


def test_every_source_is_stored_and_saved_alike(opened: tuple[LayerSource, int, int], tmp_path: Path) -> None:
    source, num_layers, width = opened
    store = LayerStore.open(tmp_path / "layers", source)
    store.add(SENTENCES)
    assert store.join(SENTENCES[:2]).shape == (num_layers, 4, width)
    save_layer_source(source, tmp_path / "saved", description="A source.")
    loaded = open_layer_source(tmp_path / "saved")
    assert loaded.fingerprint() == source.fingerprint()
    for found, expected in zip(loaded.iter_layers(SENTENCES), source.iter_layers(SENTENCES), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_static_layers_are_the_vectors_of_the_words(folder: Path) -> None:
    (found,) = open_layer_source(f"glove:{folder}/vectors.npz").iter_layers([["The", "zebra", "runs"]])
    vectors_VD = np.load(folder / "vectors.npz")["vectors"]
    np.testing.assert_array_equal(found[0], [vectors_VD[0], np.zeros(6), vectors_VD[3]])


def test_seeds_give_other_untrained_weights(folder: Path) -> None:
    spec = f"untrained:{folder}/bilm"
    prints = {open_layer_source(spec, seed=seed).fingerprint() for seed in (0, 0, 1)}
    assert len(prints) == 2
    assert open_layer_source(folder / "bilm").fingerprint() not in prints


def test_a_compact_cove_takes_its_own_vectors_and_no_others(folder: Path, tmp_path: Path) -> None:
    compact_cove(folder / "cove", tmp_path / "compact", description="Compact.")
    assert not (tmp_path / "compact" / "vectors").exists()
    found = open_layer_source(f"cove:{tmp_path}/compact,{folder}/vectors.npz")
    for layers_LTD, exact_LTD in zip(
        found.iter_layers(SENTENCES), open_layer_source(folder / "cove").iter_layers(SENTENCES), strict=True
    ):
        np.testing.assert_allclose(layers_LTD, exact_LTD, atol=2e-3)
    save_layer_source(found, tmp_path / "whole", description="Whole again.")
    assert open_layer_source(tmp_path / "whole").fingerprint() == found.fingerprint()
    np.savez(tmp_path / "other.npz", words=np.array(WORDS), vectors=np.ones((4, 6), dtype=np.float32))
    with pytest.raises(InputError, match="compact: was trained on other static vectors than those given"):
        open_layer_source(f"cove:{tmp_path}/compact,{tmp_path}/other.npz")
    with pytest.raises(WeightsError, match=r"has no static vectors; name them too: cove:.*compact,VECTORS"):
        open_layer_source(tmp_path / "compact")
    with pytest.raises(InputError, match="context2vec: holds no CoVe"):
        compact_cove(folder / "context2vec", tmp_path / "x", description="")


def test_unknown_specs_are_rejected(folder: Path) -> None:
    with pytest.raises(InputError, match="expected two, cove:WEIGHTS,VECTORS"):
        open_layer_source(f"cove:{folder}/cove.pth")
    with pytest.raises(InputError, match="expected two, taglm:FORWARD,BACKWARD"):
        open_layer_source(f"taglm:{folder}/bilm")
    with pytest.raises(InputError, match="3 layers of width 12, the backward one 2 of 12"):
        open_layer_source(f"taglm:{folder}/bilm,{folder}/shallow")
    with pytest.raises(WeightsError, match="does not exist"):
        open_layer_source(folder / "nothing")
    with pytest.raises(InputError, match="no such file"):
        open_layer_source("glove:nothing.txt")


def test_a_pair_whose_half_was_exchanged_is_rejected(folder: Path, tmp_path: Path) -> None:
    pair = open_layer_source(f"taglm:{folder}/bilm,{folder}/other")
    save_layer_source(pair, tmp_path / "pair", description="A pair.")
    Embedder.from_pretrained(folder / "bilm").save_pretrained(tmp_path / "pair" / "backward")
    with pytest.raises(WeightsError, match="is not what the pair was saved with"):
        open_layer_source(tmp_path / "pair")


def test_exchanged_vectors_of_a_saved_encoder_are_found(tmp_path: Path) -> None:
    vectors = StaticVectors(WORDS, np.ones((4, 6), dtype=np.float32))
    save_encoder(StaticLayers(vectors), tmp_path / "static", description="Vectors.")
    StaticVectors(WORDS, np.zeros((4, 6), dtype=np.float32)).save(tmp_path / "static" / "vectors")
    with pytest.raises(WeightsError, match="is not what the encoder was saved with"):
        open_layer_source(tmp_path / "static")
